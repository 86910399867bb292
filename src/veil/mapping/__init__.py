"""Maps from matches: cameras and points, from positions through COLMAP or from lines alone (`veil.mapping.lines`)."""

from veil.mapping.colmap import Limits
from veil.mapping.images import MapImage
from veil.mapping.options import MapOptions
from veil.mapping.points import NoMap, build_map

__all__ = ["Limits", "MapImage", "MapOptions", "NoMap", "build_map"]

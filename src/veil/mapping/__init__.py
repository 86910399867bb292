"""Mapping: matches -> tracks -> cameras and points."""

from veil.mapping.colmap import Limits
from veil.mapping.images import MapImage
from veil.mapping.options import MapOptions
from veil.mapping.points import NoMap, build_map

__all__ = ["Limits", "MapImage", "MapOptions", "NoMap", "build_map"]

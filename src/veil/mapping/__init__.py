"""Mapping: matches -> tracks -> cameras and points."""

from veil.mapping.points import MapImage, MapOptions, NoMap, build_map

__all__ = ["MapImage", "MapOptions", "NoMap", "build_map"]

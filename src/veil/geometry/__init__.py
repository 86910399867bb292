"""Geometry of views: cameras, motions, gravity, triangulation, robust pose search, bundle adjustment."""

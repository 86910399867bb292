"""Photographs (`pictures`) and what stands beside them, and the `examples` that ship with the package.

Beside them stand camera matrices (`calibration`), COLMAP's cameras and poses (`colmap_text`), and readings of `gravity`.
"""

"""Photographs (`pictures`) and what stands beside them, and the `examples` that ship with the package.

Beside them stand camera matrices (`calibration`), readings of `gravity`, and cameras and poses of other tools: `posed_models`
reads whole models, from COLMAP's text files (`colmap_text`), its binary ones, and `transforms`.
"""

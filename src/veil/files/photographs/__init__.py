"""Photographs (`pictures`, and `kinds` of other files), what stands beside them, and the `examples` of the package.

Beside them stand `masks`, camera matrices (`calibration`), COLMAP's cameras and poses (`colmap_text`), and `gravity`.
"""

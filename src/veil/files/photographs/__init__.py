"""Photographs (`pictures`, and `kinds` of other files), what stands beside them, and the `examples` of the package.

Beside them stand their `names` by message, `masks`, camera matrices (`calibration`), readings of `gravity`, the motions of a
sequence (`frame_motions`), and cameras and poses of other tools: `posed_models` reads whole models, from COLMAP's text files
(`colmap_text`), its binary ones, and `transforms`.
"""

"""Geometry of views: cameras, motions, gravity, triangulation, robust pose search, bundle adjustment.

- `camera`, `rigid` motions, `similarity`. `views` bound which cameras can have seen a point.
- Gravity: `gravity`, `device_axes`, `gravity_check`, `gravity_consensus`, `vanishing_point`.
- Earth: `earth`, `georeference`.
- Points and lines: `triangulation` (slowly in `triangulation_reference`), `anchors`, `free_calibration`.

`solvers/` has one solver a file, minimal or of least squares. `robust/` has the searches among wrong matches, `bundle/`
adjustment from lines.
"""

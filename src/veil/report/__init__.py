"""Figures of studies, and the HTML pages of the demo and of the audit.

- Pages: `audit`, `tile_audit`, `demo` with `demo_forms`; `pictures` brings images into them, `page_templates` reads their
  templates, and `viewer/` shows a map.
- Figures: `figures` is their style; `gravity`, `maps_from_above`, `plans` and `quantization` draw one each.
- `tables`: plain text.
"""

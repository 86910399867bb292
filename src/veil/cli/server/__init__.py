"""Commands of the server.

- `map` holds match and map. `line_maps`, `map_gravity`, `map_writing`, `matching_arguments` and `matcher_arguments` are its.
- `removal`, `align`, `index` and `plan` are further commands about maps. `localize` prints by `pose_rows`.
- `tiles` and `tile_plan` cut tiles and plan them.
- `serve` runs the service; `serve_demo`, `serve_adopt`, `serve_backup`, `serve_tiles` and `suspects` are its actions.
"""

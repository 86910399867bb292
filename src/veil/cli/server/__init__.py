"""Commands of the server.

- `map` makes maps, `line_maps` those from lines; `map_options` has its options, and `map_writing` writes and reports maps.
- `map_import` makes maps of models of other tools. `removal`, `align`, `index` and `plan` are further commands about maps.
- `localize` prints by `pose_rows`.
- `tiles` cuts tiles and plans their fetching.
- `serve` runs the service, and has its places and tokens; `serve_tiles` gives it tiles, `serve_upkeep` is its administrator's.
"""

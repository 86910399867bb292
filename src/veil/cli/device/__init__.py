"""Commands of the device: `extract`, `gravity`, `privatize`, `budget` and its `plan`, and `client`.

`asked_protection` reads options of a protection. `client_connection` and `client_maps` belong to `client`. `tile_queries` is
`veil localize tiles:PLACE`.
"""

"""Places on the server's side: maps, and the poses of queries in them, from forms and public descriptors alone.

Three rooms hold what is computed: `pairs` (which pairs of images are matched, and their matches), `maps` (maps from matches)
and `poses` (the pose of a query, and its judge). The files beside them are what a server and a command call:

- `uploads` reads messages from files. `images_on_demand` reads their descriptors again when they are needed.
- `held_map` is a map with its folder, its indexes and its place on Earth.
- `localization` answers a query of any form on a map, and `sequences` one of several frames.
- `building` makes a map, of positions itself and of lines through `line_mapping`. `growth` adds images to one.
- `built_maps` holds the options and the result of both. `located_images` adds images by their poses. `kept_clusters` keeps
  what a killed run has mapped.
- `removal` takes images out of a map on disk. `weighing` weighs contributions by their matches.
- `tiles` cuts a map into tiles. `tiles` and `unit_costs` plan, from times measured on this machine.

Nothing here imports raw features, extraction, mechanisms or the device: raw features come through `veil.device.doors`.
"""

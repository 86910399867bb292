"""Audits of releases: attacks are run and scored against the originals, which only this part of veil knows.

- `run`: every attack on every release, and the findings. `veil.device.auditing` reads the files and calls it.
- `ground_truth`: the original of each released feature. `score`: estimates against it.
- `finding`: shares with intervals of `statistics`.
- `laws`: what outcomes of attacks must obey. `verdict`: the verdict in words. `policy`: rules that make a build fail.
- `epsilon`: a measured lower bound. `audit_result`: the record of all. `measured_forms`: the record of `veil evaluate forms`.
- `on_pictures`: pictures of releases. `recovered`: features by how well they were recovered.
- `on_tiles`, with `tile_findings`: the audit of a map's tiles.
"""

"""Private tiles: a public map in pieces of equal size; a device fetches a few and localizes itself (docs/theory/tiles.md).

Operator side: `cutting` makes the tiles (`cells`, `coding`, `sketches`, `merkle`); `tile_format` and `manifest` are
bytes; `plans` say what fetching costs. Between: `exits` says how records are fetched and what that promises. Device: `fetching`
decides which, `device` localizes in the `union` of what came.
"""

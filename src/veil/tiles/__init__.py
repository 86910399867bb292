"""Private tiles: a public map in pieces of equal size, of which a device fetches a few and localizes itself (docs/theory/tiles.md).

Operator side: `cutting` makes the tiles (`cells`, `coding`, `sketches`, `merkle`), `tile_format` and `manifest` are their bytes.
Between: `exits` says how records are fetched and what that promises. Device: `fetching` decides which, `device` localizes.
"""

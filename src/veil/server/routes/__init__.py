"""Routes of one subject each; those of maps, contributions and tokens are in `veil.server.app`.

- `health`: whether the server lives, numbers for Prometheus, and what the service keeps and promises.
- `demo`: the page for browsers, and the public dictionaries.
- `geopose`: the GeoPoseProtocol, version 2.
- `tiles`: private tiles, without a token.
"""

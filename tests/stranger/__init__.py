"""A second implementation of what is sent, stored and served, written from docs/reference alone, and importing nothing of veil.

It shows that wire.md, tiles.md and service.md are enough to write a client: where it could not be written from them, the page
was amended first. It is small and not for use: it hides no positions, keeps no ledger, and checks only what its pages ask of
a client.

- `messages`, `codebooks`, `words`: wire.md.
- `service`, `receipts`, `canonical`: service.md, and geopose.md.
- `tiles`, `one_server`, `hintless`: tiles.md.
"""

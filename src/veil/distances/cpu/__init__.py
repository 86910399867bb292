"""Backend `cpu`: distances of all pairs by code generated for the processor at hand (distances.md#the-compiled-kernel).

- `codegen/` writes code, and `compile` makes functions of it.
- `prepared`, `pack` and `sides` bring sets into the layout of the `sweep`, which `stream` runs over a database.
- `bests` and `candidates` find the two nearest exactly. `prune` and `axes` leave out what cannot be near.
"""

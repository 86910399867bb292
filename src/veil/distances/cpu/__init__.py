"""Backend `cpu`: distances of all pairs by code generated for the processor at hand (distances.md#the-compiled-kernel).

- `codegen/` writes code, and `compile` makes functions of it.
- `prepared` and `pack` bring sets into the layout of the `sweep`, which `stream` runs over a database.
- `candidates` finds the two nearest exactly. `prune` leaves out what cannot be near.
"""

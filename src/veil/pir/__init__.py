"""Private information retrieval: records of equal size are fetched, and the server does not learn which (docs/theory/pir.md).

- `two_servers`: each of k servers XORs a random subset of the records; perfect privacy unless all of them collude.
- `one_server`: SimplePIR; privacy rests on learning with errors. `layout` chooses how records lie in its `matrix`, with which
  `kernels` multiply; `public_matrix` and `gaussian` are its randomness.
- `hintless`: one server, and no hint; privacy rests on ring learning with errors. Answers are packed (`packing`) with keys that
  a query brings, in a `ring` with `ring_kernels`; `hintless_layout` has its numbers.
- `security`: estimated cost of the best known attack, in three counts.
- `reference`: all, slow and obvious.
"""

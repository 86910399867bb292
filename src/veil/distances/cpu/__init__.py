"""Distances of all pairs by code generated for the processor at hand; see docs/theory/distances.md, "The compiled kernel"."""

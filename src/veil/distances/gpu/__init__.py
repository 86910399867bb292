"""Distances of all pairs on a graphics processor, by Triton code generated for each pair of dimensions (extra veil[gpu]).

`source` writes the code, `device` runs it.
"""

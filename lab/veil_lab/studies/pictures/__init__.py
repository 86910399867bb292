"""Studies of pictures that networks draw: after attacks on subspaces, from words, and from what a map of lines gives away.

- `inversion`: from raw descriptors, attacked subspaces and directly ([P23] Table 1).
- `word_inversion`: from words at equal posterior ([P23] Table 4).
- `map_pictures`: from the positions that a map of lines names ([G20] Fig. 8).
"""

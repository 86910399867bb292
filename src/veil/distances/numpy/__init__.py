"""Distances of all pairs with plain NumPy: no compiler is needed."""

"""Backend `numpy`: distances of all pairs with plain NumPy, without a compiler.

`planes` computes squared distances, `tiles` goes through all pairs, or through a large database.
"""

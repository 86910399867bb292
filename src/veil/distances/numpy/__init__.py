"""Backend `numpy`: distances of all pairs with plain NumPy, without a compiler."""

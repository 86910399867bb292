"""`veil inversion`."""

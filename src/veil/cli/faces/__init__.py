"""`veil faces`."""

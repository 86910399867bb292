"""`veil codebook`."""

"""The commands of `veil codebook`."""

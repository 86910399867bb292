"""The commands of `veil inversion`."""

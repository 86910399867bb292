"""The commands of `veil faces`."""

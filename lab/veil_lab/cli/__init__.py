"""The commands `veil evaluate` and `veil lab`."""

"""The commands `veil evaluate faces` and `attributes`."""

"""The commands of `veil lab train`."""

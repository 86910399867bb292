"""Public protocols, one file each."""

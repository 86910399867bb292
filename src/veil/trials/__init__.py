"""Photographs that a map does not hold, localized in every form, and a map from lines, against reference poses."""

"""Attacks by whoever matches a release: inliers of a pose tell their descriptors."""

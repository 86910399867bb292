"""Attacks by whoever matches a release: what an inlier of a pose tells of its descriptor."""

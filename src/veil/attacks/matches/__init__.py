"""Attacks by whoever matches a release: inliers of a pose tell their descriptors.

`matched` localizes a release on a map for the attack of `inliers`. `matched_views` uses two photographs of a place.
`positions_alone` localizes a photograph without any descriptor.
"""

"""Attacks by whoever matches a release: inliers of a pose tell their descriptors.

`inliers` localizes a release on a map, and `matched_views` uses two photographs of a place.
`matched_candidates` weighs what they show with learned networks and `view_weights`. The attack that localizes a photograph
without any descriptor stands in `veil.attacks.on_positions`.
"""

"""Attacks on several releases together: subspaces that meet do so in a descriptor or in a shared decoy.

`repeat` intersects releases of one feature, and `several_releases` does it for one release of an audit. `shared_decoys`
intersects features that share a decoy.
"""

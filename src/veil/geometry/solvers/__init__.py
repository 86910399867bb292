"""Minimal and least-squares solvers, one in each file, documented by its equation.

Poses: `p3p` (points), `p6lp` (lines), `up2p` and `up4lp` (with gravity; `up2p` of rigs, too). Poses of rigs: `gp3p` (points),
`gp4ps` (with the scale of the rig), `gp6lp` (lines). Planar views: `planar`, `trifocal`, `resection_planar`, `out_of_plane`.
Points: `planes`. Below them: `vectors`, `hidden`.
"""

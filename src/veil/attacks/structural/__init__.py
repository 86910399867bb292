"""Attacks on a lifted descriptor by its own structure: integers and zeros reveal it without any database.

`lattice` finds integers by `lattice_reduction` and `enumeration`, and `lattice_certificate` says how sure it is. `vertex` finds
zeros by `vertex_search`, which solves its linear programs by `simplex`.
"""

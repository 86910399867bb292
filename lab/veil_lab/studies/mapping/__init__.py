"""Studies of mapping: maps from lines and from points against reference cameras, and the positions that maps give away."""

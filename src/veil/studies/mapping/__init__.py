"""Studies of mapping: maps from lines and points against reference cameras, and what maps give away."""

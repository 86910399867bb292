"""Studies of attacks: how much each attack recovers, and how much accuracy each defense costs."""

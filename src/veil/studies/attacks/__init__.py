"""Studies of attacks: what each recovers, and what each defense costs."""

"""Studies of matching: accuracy on homographies, and what dictionaries cost in detail."""

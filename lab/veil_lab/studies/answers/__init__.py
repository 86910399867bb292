"""Studies of attacks through answers, and of what defends against them.

- `planting`: flat objects in photographs of scenes with known cameras.
"""

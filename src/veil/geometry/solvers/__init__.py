"""Minimal and least-squares solvers, one in each file, documented by its equation."""

"""Minimal and least-squares solvers, one a file, each documented by its equation."""

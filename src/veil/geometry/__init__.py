"""Cameras, rigid motions, similarities."""

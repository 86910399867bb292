"""Planted faces, templates and networks, for tests."""

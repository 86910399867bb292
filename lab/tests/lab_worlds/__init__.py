"""Planted results of studies, for tests."""

"""Localization of queries in words, subspaces, lines or raw features against a map."""

"""Findings -> one HTML page, figures, JSON."""

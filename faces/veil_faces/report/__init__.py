"""Figures of studies on faces."""

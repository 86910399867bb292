"""Figures of studies, and the HTML pages of the demo and of the audit."""

"""veil: cameras localize, map and recognize through a server that cannot see what they saw."""

from __future__ import annotations

__version__ = "0.1.0"

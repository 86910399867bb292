"""Audits of releases: attacks are run and scored against the originals, which only this part of veil knows."""

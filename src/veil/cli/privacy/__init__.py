"""Commands that say what a release gives away: `audit`, `inspect` and `inversion`.

`audit_tiles` audits a map's tiles, and `originals` reads the photographs that both audits compare with.
"""

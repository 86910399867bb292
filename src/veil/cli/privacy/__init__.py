"""Commands that say what a release gives away: `audit`, `inspect` and `inversion`.

`audit_table` prints an audit, `audit_tiles` audits a map's tiles, and `originals` reads the photographs that both compare with.
"""

"""Commands that say what a release gives away: `audit`, `inspect` and `inversion`.

`audit_tiles` audits a map's tiles and `audit_answers` its answers. `originals` reads the photographs that audits compare with.
"""

"""Protocols of poses, in `veil evaluate`: queries to maps of scenes whose cameras are known.

`queries` (tables: `query_tables`), `localization` (its options and trials: `localization_trials`, several descriptors:
`localization_table`, ways of lifting: `localization_lifting`), `retrieval`, `upright`, `plans` and `tiles` are one protocol
each.
"""

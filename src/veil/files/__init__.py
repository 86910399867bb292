"""Reading and writing files: formats on disk, by subject.

- `device/`: the secret, the ledger and the outbox of a client. `photographs/`: pictures and the readings beside them.
- `maps/`: maps, their indexes, exports, and unfinished runs. `service/`: the store of a server.
- Features: `features` in hloc's layout, `colmap_databases`.
- Books and networks: `codebooks`, `weights` of extractors and matchers, `state_dicts` of any network, `attack_networks`.
- `tiles`: private tiles of public maps. Pages of audits: `audit_pages`. What forms were measured at: `measured_forms`.
- Below all of them: `atomic` writing, text and `tables`, `containers` whose declared sizes are checked, `sqlite`.
"""

"""The JSON that the service reads and answers, as types, from which the schemas of the contract come.

- `values`: numbers, ids and lists that these records share, beside those of `veil.json_records`.
- `of_maps`: maps, jobs, contributions, receipts. `of_service`: answers to queries, tokens, tiles, and the server itself.

`python docs/extensions/schemas.py` writes `schemas/` from them. Examples, prose of whole records, the GeoPoseProtocol's own
schemas and those of parameters stand in these files alone.
"""

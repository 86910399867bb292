"""Who asks, and how much each may have, without HTTP.

- `tokens`: hashed, with scopes, quotas and the maps that they may use, and their use while the disk was full.
- `addresses`: whose address a request counts for, also behind proxies.
- `shares`: parts of an amount that holders share.
"""

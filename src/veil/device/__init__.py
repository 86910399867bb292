"""The device and its owner, the raw side: what takes photographs and raw features, and lets forms alone leave.

- `protection` says how a photograph is protected, and how it usually is. `device` releases it: secret, ledger and
  budgets together.
- `photographs` gives a photograph its camera. `gravity` measures which way is down in it.
- `descriptor_books` makes the codebook and the pool of decoys of a descriptor from photographs.
- `doors` are the ways into `veil.places` for raw features that their owner makes public: `localize`, `map_images`, `match`.
- `importing` makes public maps of models of other tools.
- `tiles` localizes a photograph here, in tiles that are fetched without telling which.
- `auditing` attacks one's own releases as the `attacker` could. `tile_audit` shows what publishing a map's tiles means,
  `answer_audit` which objects a map's answers give away.
- `viewing` makes the view of a map or an audit, with what its owner knows of the photographs.
- `inverting` draws pictures from raw features and messages, as whoever holds them could.
"""

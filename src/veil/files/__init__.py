"""Reading and writing files: photographs, features, codebooks, maps, the secret and the ledger. One format a file.

- The client's: `client` (secret and ledger) over `secret` and `ledger_file`, `private`, `outbox`.
- Photographs and what stands beside them: `pictures`, `maker_notes`, `calibration`, `accelerometers`, `gravity`, `priors`,
  `places`, `examples`.
- Features: `features`, `colmap_databases`, `colmap_text`.
- Books and networks: `codebooks`, `shards`, `weights`, `state_dicts`, `inverters`, `learned_models`, `pair_networks`.
- Maps: `maps`, `map_folders`, `map_exports`, `vocabularies`, `point_indexes`. Unfinished: `checkpoints`, `cluster_results`.
- Tiles: `tiles`, `served_tiles`.
- The server's: `blobs`, `bucket_blobs`, `backup_file`, `reserve`, `schemas`, `web_pages`.
- Pages and records: `audit_pages`, `measured_forms`.
- Below all of them: `atomic`, `containers`, `array_folders`, `kept_arrays`, `sqlite`.
"""

"""The service: messages in over HTTP, maps, poses and receipts out; nothing raw can be sent to it, and no query is kept.

`service.Service` does the work without HTTP, `app.create_app` puts it behind routes (docs/reference/service.md), and
`veil serve` runs both. It needs the extra `veil[serve]`.

- Routes: `app`, `demo_routes`, `geopose_routes`, `health_routes`, `tile_routes`; `contract` and `schema_check` say what they
  take, `strictness`, `bodies` and `conditional` keep HTTP to it, `problems` tells errors. `geopose_protocol` and
  `earth_answers` are answers on Earth.
- Who asks: `admission`, `tokens`, `identities`, `addresses`. Who gets what: `entrance`, `connections`, `connection_pools`,
  `shares`, `uncounted`. `listening` takes the addresses, `metrics` counts.
- Maps: `map_records`, `map_names`, `map_facts`, `map_views`, `policy`, `answerable`. Contributions: `contributions`,
  `entering`, `suspects`, `deletion`, `receipts`. Tiles: `tile_answers`, `shared_passes`.
- Work: `tasks` are what `processes` run; `jobs`, `waiting_jobs` and `runner` do it in the background, with `sweeping`.
- State: `settings`, `storage`, `store_identity`, `database` (or `postgres_database`) with `schema` and `statements`,
  `blob_use`, `room`, `readiness`. Copies: `backups`, `backup_rows`, `restoring`.
"""

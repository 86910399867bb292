"""The service: messages in over HTTP, maps, poses and receipts out; nothing raw can be sent to it, and no query is kept.

`service.Service` does the work without HTTP, `app.create_app` puts it behind routes (docs/reference/service.md), and
`veil serve` runs both. It needs the extra `veil[serve]`. From the top:

- `app`: the application, with the routes of maps, contributions, queries and tokens. `routes/`: those of other subjects.
- `http/`: connections, bodies, who asks, errors and the contract.
- `runner`: jobs and deletions in the background. `service`: the work. `deletion`: of contributions, maps and leftovers.
- `backups` are written, and follow deletions; `restoring` makes a store of one.
- `storage` opens what `settings` name. `access/`: tokens, addresses and shares.
- `jobs/`: the queue, processes and their tasks. `maps/`: records of maps and contributions. `store/`: the database,
  and the use of blobs.
- `answers/`: the JSON that is read and answered, from which `schemas/` come; `schema_check` compares values
  with them. `static/` is the page for browsers.
"""

"""What a server keeps: rows in a database, blobs beside it, and the id that says that they belong together.

- `schema`: the tables, and statements on them. `database`: the interface, and SQLite. `postgres`: PostgreSQL.
- `blob_use`: which blobs rows name. `identity`: the id of a store.
- `room`: room on the disk.
"""

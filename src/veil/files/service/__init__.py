"""The store of a server.

Bytes by their digest are `blobs`, of which `bucket_blobs` keeps them in a bucket. `backup_file` is a backup, `served_tiles` are
tiles by name and version, with `hintless_tiles` for one of their exits. `reserve` holds room on a disk, and `shipped` are the
schemas and pages of the package.
"""

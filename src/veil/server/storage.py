"""Which database and which blobs a server has: those in its folder, or shared ones that its settings name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes, write_text
from veil.files.blobs import Blobs, FolderBlobs
from veil.server.database import Database, SqliteDatabase
from veil.server.settings import ServerSettings

DATABASE, BLOBS, STORAGE = "veil.sqlite", "blobs", "storage.json"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def open_storage(folder: Path, settings: ServerSettings) -> tuple[Database, Blobs]:
    """The database and the blobs of a server; the folder notes which they are, and is refused with others.

    Raises InputError for settings that cannot be used or a database that does not answer, StorageTrouble for a bucket that does
    not, FileFormatError for a folder that was used with other storage, or a database that cannot be read.
    """
    kinds = {
        "database": "postgresql" if settings.database else "folder",
        "blobs": settings.blobs.rstrip("/") or "folder",
    }
    noted = _noted(folder)
    if noted is not None and noted != kinds:
        told = ", ".join(f"{name} = {value}" for name, value in sorted(noted.items()))
        raise FileFormatError(f"{folder} was used with {told}; give its settings by --config or the environment")
    blobs = _open_blobs(folder, settings.blobs)
    database = _open_database(folder, settings.database)
    if noted is None and (settings.database or settings.blobs):
        write_text(folder / STORAGE, json.dumps(kinds, indent=1) + "\n")
    return database, blobs


def _noted(folder: Path) -> dict[str, str] | None:
    """What a folder was used with, None for a new one."""
    if not (folder / STORAGE).is_file():
        return {"database": "folder", "blobs": "folder"} if (folder / DATABASE).is_file() else None
    try:
        found = json.loads(read_bytes(folder / STORAGE))
        return {name: str(found[name]) for name in ("database", "blobs")}
    except (ValueError, KeyError, TypeError):
        raise FileFormatError(f"{folder / STORAGE} cannot be read; restore or delete it") from None


def _open_database(folder: Path, address: str) -> Database:
    if not address:
        return SqliteDatabase(folder / DATABASE)
    try:
        from veil.server.postgres_database import PostgresDatabase
    except ImportError as error:
        raise InputError(f"a database of PostgreSQL needs {error.name}; run `pip install 'veil[grown]'`") from None
    return PostgresDatabase(address)


def _open_blobs(folder: Path, address: str) -> Blobs:
    if not address:
        return FolderBlobs(folder / BLOBS)
    try:
        from veil.files.bucket_blobs import S3Blobs
    except ImportError as error:
        raise InputError(f"a bucket needs {error.name}; run `pip install 'veil[grown]'`") from None
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT", ""))
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
    return S3Blobs(address, plain=allowed or endpoint.hostname in _LOOPBACK)

"""Which database and which blobs a server has: those in its folder, or shared ones that its settings name."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.service.blobs import Blobs, FolderBlobs
from veil.server.settings import ServerSettings
from veil.server.store.database import Database, SqliteDatabase
from veil.server.store.identity import REMEDY, StoreParts, noted_kinds

DATABASE, BLOBS = "veil.sqlite", "blobs"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def open_parts(folder: Path, settings: ServerSettings, *, anew: bool = False, owned: Collection[str] = ()) -> StoreParts:
    """The parts of a server's store, not compared with each other yet; the folder is refused with other storage than it notes.

    `anew` makes a database also where the one of the blobs is missing; where they are of a store that is `owned`, too.

    Raises InputError for settings that cannot be used or a database that does not answer, StorageTrouble for a bucket that does
    not, FileFormatError for a folder that was used with other storage, or a database that cannot be read.
    """
    kinds = {
        "database": "postgresql" if settings.database else "folder",
        "blobs": settings.blobs.rstrip("/") or "folder",
    }
    noted = noted_kinds(folder)
    if noted is None and (folder / DATABASE).is_file():
        # A first start that was killed before its note: blobs may lie in the folder already, or in none.
        noted = {"database": "folder", "blobs": "folder" if (folder / BLOBS).is_dir() else kinds["blobs"]}
    if noted is not None and noted != kinds:
        settings_before = ", ".join(f"{name} = {value}" for name, value in sorted(noted.items()))
        raise FileFormatError(f"{folder} was used with {settings_before}", remedy=Remedy("give", "the server's settings"))
    blobs = _open_blobs(folder, settings.blobs)
    if not settings.database and not anew and not (folder / DATABASE).is_file():
        _require_unused(blobs, folder, owned)
    return StoreParts(folder=folder, database=_open_database(folder, settings.database), blobs=blobs, kinds=kinds)


def _require_unused(blobs: Blobs, folder: Path, owned: Collection[str]) -> None:
    """Raise FileFormatError for blobs of a store whose database is away, before a new one is made in its place."""
    owner = blobs.owner()
    if owner not in owned and (owner is not None or next(iter(blobs.names()), None) is not None):
        raise FileFormatError(f"{folder / DATABASE} is missing beside the blobs of a store", remedy=REMEDY)


def _open_database(folder: Path, address: str) -> Database:
    if not address:
        return SqliteDatabase(folder / DATABASE)
    try:
        from veil.server.store.postgres import PostgresDatabase
    except ImportError as error:
        raise InputError(f"a database of PostgreSQL needs {error.name}; run `pip install 'veil[grown]'`") from None
    return PostgresDatabase(address)


def _open_blobs(folder: Path, address: str) -> Blobs:
    if not address:
        return FolderBlobs(folder / BLOBS)
    try:
        from veil.files.service.bucket_blobs import S3Blobs
    except ImportError as error:
        raise InputError(f"a bucket needs {error.name}; run `pip install 'veil[grown]'`") from None
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT", ""))
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
    return S3Blobs(address, plain=allowed or endpoint.hostname in _LOOPBACK)

"""Bytes that are named by what they hold, as objects of a bucket that speaks S3."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from veil.errors import FileFormatError, InputError, StorageTrouble
from veil.files.atomic import replacing
from veil.files.service.blobs import OWNER, blob_name, is_name, noted_owner, owner_note, require_name

# A request is given up after so long, and the whole with its retries after so long.
REQUEST_S, PATIENCE_S, RETRIES = 20, 30, 4
_CHUNK = 4 << 20
# What is written at a start to find out whether the bucket keeps versions.
PROBES = "probes"


class S3Blobs:
    """Bytes by their SHA-256 (hex), as objects of a bucket; what `Blobs` says holds for several machines.

    - `url`: `s3://BUCKET` or `s3://BUCKET/PREFIX`. Endpoint, region and credentials come from the environment (AWS_ENDPOINT,
      AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or what the machine's role gives).
    - `plain`: whether an endpoint without encryption is allowed.

    What is read is compared with its name. Raises InputError for what is no such address, or a bucket that keeps versions: what
    is deleted there stays; StorageTrouble for one that does not answer.
    """

    def __init__(self, url: str, *, plain: bool = False) -> None:
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
            raise InputError("blobs must be s3://BUCKET or s3://BUCKET/PREFIX; credentials come from the environment")
        self.place_name = f"s3://{parts.netloc}{parts.path.rstrip('/')}"
        self._store = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={"timeout": f"{REQUEST_S}s", "connect_timeout": "5s", "allow_http": plain},
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=PATIENCE_S)},
        )
        self._require_forgetting()

    def put(self, data: bytes) -> str:
        """Keep bytes, as `Blobs` says."""
        name = blob_name(data)
        with self._asking():
            if not self._is_there(name):
                # In one request, however long: parts of an upload that was broken off would stay in the bucket.
                obstore.put(self._store, _key(name), data, use_multipart=False)
        return name

    def has(self, name: str) -> bool:
        """Whether the bytes of a name are there, as `Blobs` says."""
        with self._asking():
            return self._is_there(name)

    def get(self, name: str) -> bytes:
        """The bytes of a name, as `Blobs` says."""
        with self._asking(name):
            data = bytes(obstore.get(self._store, _key(name)).bytes())
        if blob_name(data) != name:
            raise FileFormatError(f"{self.place_name}/{_key(name)} is damaged: it does not hold what its name says; restore it")
        return data

    def place(self, name: str, path: Path) -> None:
        """Write the bytes of a name into a file, as `Blobs` says; they are not in memory at once."""
        hasher = hashlib.sha256()
        with replacing(path, private=True) as temporary:
            with self._asking(name), temporary.open("wb") as stream:
                for part in obstore.get(self._store, _key(name)).stream(min_chunk_size=_CHUNK):
                    hasher.update(part)
                    stream.write(part)
            if hasher.hexdigest() != name:
                raise FileFormatError(f"{self.place_name}/{_key(name)} is damaged: it does not hold what its name says")

    def delete(self, name: str) -> None:
        """Delete the bytes of a name, as `Blobs` says."""
        with self._asking():
            self._drop(_key(name))

    def names(self) -> Iterator[str]:
        """Names of all that is kept, as `Blobs` says; another store below a longer prefix is not seen."""
        with self._asking():
            for batch in obstore.list(self._store):
                for item in batch:
                    name = item["path"].rpartition("/")[2]
                    if is_name(name) and item["path"] == _key(name):
                        yield name

    def owner(self) -> str | None:
        """The id of the store, as `Blobs` says."""
        with self._asking():
            try:
                data = bytes(obstore.get(self._store, OWNER).bytes())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None
        return noted_owner(data, f"{self.place_name}/{OWNER}")

    def claim(self, store: str, *, anew: bool = False) -> str:
        """Note the owner, as `Blobs` says; of two stores that begin at a time one is."""
        with self._asking(), suppress(AlreadyExistsError):
            mode: Literal["create", "overwrite"] = "overwrite" if anew else "create"
            obstore.put(self._store, OWNER, owner_note(store), use_multipart=False, mode=mode)
        return self.owner() or store

    def clear(self, *, older_than_s: float) -> None:
        """Delete what killed starts left, as `Blobs` says: bytes themselves come in one request, or not."""
        latest = datetime.now(timezone.utc) - timedelta(seconds=older_than_s)
        with self._asking():
            for batch in obstore.list(self._store, prefix=PROBES):
                for item in batch:
                    if item["last_modified"] <= latest:
                        self._drop(item["path"])

    def _is_there(self, name: str) -> bool:
        try:
            obstore.head(self._store, _key(name))
        except FileNotFoundError:
            return False
        return True

    def _drop(self, key: str) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(self._store, key)

    def _require_forgetting(self) -> None:
        """Raise InputError if the bucket keeps versions, StorageTrouble if it cannot be written."""
        probe = f"{PROBES}/{secrets.token_hex(8)}"
        with self._asking():
            version = obstore.put(self._store, probe, b"veil", use_multipart=False)["version"]
            self._drop(probe)
        if version not in (None, "null"):
            raise InputError(
                f"{self.place_name} keeps versions of its objects: what is deleted would stay; take a bucket without versioning"
            )

    @contextmanager
    def _asking(self, name: str = "") -> Iterator[None]:
        """A block that asks the bucket, in which its errors become ours; they name no credentials."""
        try:
            yield
        except FileNotFoundError as error:
            if not name or "NoSuchBucket" in str(error):
                raise StorageTrouble(f"{self.place_name} is not there, or may not be used with these credentials") from None
            raise FileFormatError(f"{self.place_name}/{_key(name)} is missing; restore it from a backup") from None
        except (BaseError, PermissionError, TimeoutError) as error:
            reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            raise StorageTrouble(f"{self.place_name} cannot be used now: {reason}") from None


def _key(name: str) -> str:
    """The object of a name."""
    return f"{require_name(name)[:2]}/{name}"

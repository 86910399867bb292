"""A bucket of moto's S3 server, within the tests' own process."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

NAME, SECRET = "veil-tests", "a-secret-that-no-log-may-hold"


def missing() -> str:
    """Why there is no bucket for tests, empty if there is one."""
    try:
        import flask_cors
        import moto.server
        import obstore
    except ImportError as error:
        return f"{error.name} is not installed"
    assert flask_cors and moto.server and obstore
    return ""


@dataclass(frozen=True)
class Buckets:
    """A running S3 server; its buckets as they are in memory."""

    server: Any
    backend: Any

    def make(self, name: str, *, versions: bool = False) -> str:
        """The address of a new bucket."""
        self.backend.create_bucket(name, "us-east-1")
        if versions:
            self.backend.put_bucket_versioning(name, "Enabled")
        return f"s3://{name}"

    def objects(self, name: str) -> dict[str, bytes]:
        """Contents of a bucket by key, old versions and parts of uploads included."""
        bucket = self.backend.buckets[name]
        contents = {
            key if number == 0 else f"{key} {number}": item.value
            for key in bucket.keys
            for number, item in enumerate(bucket.keys.getlist(key))
            if hasattr(item, "value")  # the mark of a deletion has none
        }
        for upload in bucket.multiparts.values():
            contents |= {f"{upload.id} {number}": part.value for number, part in upload.parts.items()}
        return contents

    def damage(self, name: str, key: str, data: bytes) -> None:
        """Have an object hold something else."""
        self.backend.put_object(name, key, data)


@contextmanager
def running_buckets() -> Iterator[Buckets]:
    """An S3 server, which the environment names to its clients."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    names = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    try:
        with patch.dict(os.environ, {**names, "AWS_ENDPOINT": f"http://{host}:{port}"}):
            yield Buckets(server=server, backend=s3_backends[DEFAULT_ACCOUNT_ID]["aws"])
    finally:
        server.stop()

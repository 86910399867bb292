"""Settings of a server: one TOML file, and environment variables over it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from veil.engine import check_engine
from veil.errors import FileFormatError, InputError, RangeError
from veil.files.atomic import read_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "VEIL_SERVE_"


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server; each is a name in the TOML file, and VEIL_SERVE_NAME in the environment.

    - `host`, `port`: where it listens.
    - `workers`: processes that localize queries.
    - `map_workers`: pairs of images that a job matches at a time.
    - `engine`: where a job matches pairs, as `veil map --engine`.
    - `deadline_s`: seconds that a query or the examination of a message may take.
    - `body_s`: seconds within which a body must arrive.
    - `waiting`: requests that may wait for a process; more are told to come again.
    - `map_seconds`: seconds that a job on a map may take.
    - `database`: a PostgreSQL database (`postgresql://USER@HOST/NAME`) that servers share; empty: SQLite in the folder.
    - `blobs`: bucket (`s3://BUCKET/PREFIX`) that servers share; empty: files in the folder.
    - `log_requests`: one line for each request, with its route and no address, path, token or content.
    - `metrics_open`: whether /metrics needs no token.
    - `demo_page`: whether the server has a page for browsers at /, which also shows the points of public maps.

    Raises RangeError or InputError for values outside their range.
    """

    host: str = "127.0.0.1"
    port: int = 8700
    workers: int = 2
    map_workers: int = 2
    engine: str = "local"
    deadline_s: float = 30.0
    body_s: float = 30.0
    waiting: int = 64
    map_seconds: float = 86400.0
    # It may hold a password.
    database: str = field(default="", repr=False)
    blobs: str = ""
    log_requests: bool = False
    metrics_open: bool = False
    demo_page: bool = False

    def __post_init__(self) -> None:
        check_engine(self.engine)
        if self.database and not self.database.startswith(("postgresql://", "postgres://")):
            raise InputError("database must be postgresql://USER@HOST/NAME, or empty for SQLite in the folder")
        if self.blobs and not self.blobs.startswith("s3://"):
            raise InputError(f"blobs must be s3://BUCKET/PREFIX, or empty for files in the folder, got {self.blobs!r}")
        limits: tuple[tuple[str, float, float], ...] = (
            ("port", 0, 65535),
            ("workers", 1, 1024),
            ("map_workers", 1, 1024),
            ("deadline_s", 0.1, 3600),
            ("body_s", 0.1, 3600),
            ("waiting", 0, 1 << 20),
            ("map_seconds", 1, 1e9),
        )
        for name, least, most in limits:
            if not least <= getattr(self, name) <= most:
                raise RangeError(f"{name} must be {least:g} to {most:g}, got {getattr(self, name)!r}")


def read_settings(path: Path | None, environment: Mapping[str, str]) -> ServerSettings:
    """The settings of a TOML file (None: the defaults) and of the environment, which goes before it.

    Raises FileFormatError for a file that cannot be read, InputError for names and values that are no settings.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(read_bytes(path).decode("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path} is no TOML file: {error}") from None
    types = {item.name: type(item.default) for item in fields(ServerSettings)}
    for name, text in environment.items():
        if name.startswith(PREFIX):
            values[name.removeprefix(PREFIX).lower()] = text
    if unknown := sorted(set(values) - set(types)):
        raise InputError(f"there is no setting {', '.join(unknown)}; there are {', '.join(sorted(types))}")
    return replace(ServerSettings(), **{name: _typed(name, value, types[name]) for name, value in values.items()})


def _typed(name: str, value: Any, kind: type) -> Any:
    """A value as the type of its setting. Raises InputError for another one."""
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    if type(value) is kind:
        return value
    shown = "another value" if name == "database" else repr(value)
    raise InputError(f"the setting {name} takes {kind.__name__}, got {shown}")

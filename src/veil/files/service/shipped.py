"""Files of the service that ship with the package: JSON schemas of requests and answers, one a subject, and the demo page."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any


@lru_cache(maxsize=1)
def service_schemas() -> dict[str, dict[str, Any]]:
    """All schemas by name. They refer to each other as `FILE.json#/$defs/NAME`, or `#/$defs/NAME` within a file."""
    with as_file(files("veil") / "server" / "schemas") as folder:
        definitions = [json.loads(path.read_text("utf-8"))["$defs"] for path in sorted(folder.glob("*.json"))]
    return {name: schema for each in definitions for name, schema in each.items()}


def page_files() -> dict[str, bytes]:
    """Contents of the page's files by their path below its folder, with slashes: few and small enough to be kept in memory."""
    with as_file(files("veil") / "server" / "static") as folder:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

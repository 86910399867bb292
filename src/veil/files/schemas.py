"""The JSON schemas of the service's requests and answers, which ship with the package: one file a subject."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any


@lru_cache(maxsize=1)
def service_schemas() -> dict[str, dict[str, Any]]:
    """All schemas by name. They refer to each other as `FILE.json#/$defs/NAME`, or `#/$defs/NAME` within a file."""
    with as_file(files("veil") / "server" / "schemas") as folder:
        found = [json.loads(path.read_text("utf-8"))["$defs"] for path in sorted(folder.glob("*.json"))]
    return {name: schema for each in found for name, schema in each.items()}

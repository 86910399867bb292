"""The bundled record of `veil evaluate forms`, and records that it wrote elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from veil.audit.measured_forms import MeasuredForm
from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import read_bytes, write_text


def read_measured_forms(path: Path) -> tuple[MeasuredForm, ...]:
    """The forms of a record. Raises FileFormatError if the file is none."""
    try:
        return tuple(MeasuredForm.from_json(item) for item in json.loads(read_bytes(path))["forms"])
    except (ValueError, KeyError, TypeError, InputError) as error:
        raise FileFormatError(
            f"{path} is no record of measured forms ({error})", remedy=Remedy("make", "record of measured forms")
        ) from None


def write_measured_forms(path: Path, forms: Sequence[MeasuredForm]) -> None:
    """Write a record that `read_measured_forms` reads."""
    write_text(path, json.dumps({"forms": [item.as_json() for item in forms]}, indent=1) + "\n")


@cache
def bundled_measured_forms() -> tuple[MeasuredForm, ...]:
    """The record behind docs/choose.md."""
    with as_file(files("veil") / "data" / "forms.json") as path:
        return read_measured_forms(path)

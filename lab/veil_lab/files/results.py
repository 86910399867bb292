"""Files of results: a folder with one JSON file for each record.

A file of its own: what reads and writes files stands in `files`, and records know nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes, write_text
from veil_lab.results.record import ResultRecord


def read_records(folder: Path) -> dict[str, ResultRecord]:
    """The records of a folder by name. Raises FileFormatError for a file that is none, was changed by hand or is misnamed."""
    records = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = ResultRecord.from_json(json.loads(read_bytes(path)))
            if record.name != path.stem:
                raise InputError(f"it holds the record {record.name}; name it {record.name}.json")
        except (ValueError, TypeError, InputError) as error:
            raise FileFormatError(f"{path}: {error}") from None
        records[record.name] = record
    return records


def write_record(folder: Path, record: ResultRecord) -> Path:
    """Write a record into a folder, under its name; the path of the file."""
    path = folder / f"{record.name}.json"
    write_text(path, json.dumps(record.as_json(), indent=1, ensure_ascii=False) + "\n")
    return path


def sources(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """The texts of files by their path below `root`, without those that are not there."""
    return {path: (root / path).read_text(encoding="utf-8") for path in paths if (root / path).is_file()}

"""Records against the schemas of the reference, as readers of `--json` see them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from worlds.documents import REFERENCES

# The schema of each output, by its name.
SCHEMAS = {path.stem: path for folder in REFERENCES for path in (folder / "schema").glob("*.json")}


@cache
def validator(name: str) -> Draft202012Validator:
    """The checker of one output; a schema may refer to a file, such as those that a server sends, by its path."""
    path = SCHEMAS[name]
    schema = {"$id": path.as_uri(), **json.loads(path.read_text())}
    return Draft202012Validator(schema, registry=Registry(retrieve=_file))  # type: ignore[call-arg]


def _file(uri: str) -> Resource:
    return Resource.from_contents(json.loads(Path(unquote(urlsplit(uri).path)).read_text()))


def validate(name: str, record: object) -> None:
    """Raise ValidationError unless the record, once written, is what the schema promises."""
    # The command line writes tuples as lists, and numbers that JSON lacks as null.
    written = json.loads(json.dumps(record), parse_constant=lambda _: None)
    validator(name).validate(written)

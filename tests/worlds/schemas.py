"""Records against the schemas of docs/reference/schema, as readers of `--json` see them."""

from __future__ import annotations

import json
from functools import cache

from jsonschema import Draft202012Validator

from worlds.documents import REFERENCE

FOLDER = REFERENCE / "schema"


@cache
def validator(name: str) -> Draft202012Validator:
    """The checker of one output."""
    return Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text()))


def validate(name: str, record: object) -> None:
    """Raise ValidationError unless the record, once written, is what the schema promises."""
    # The command line writes tuples as lists, and numbers that JSON lacks as null.
    written = json.loads(json.dumps(record), parse_constant=lambda _: None)
    validator(name).validate(written)

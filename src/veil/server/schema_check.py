"""JSON values against the schemas of the contract, so that what it calls invalid is refused."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from veil.errors import InputError
from veil.files.service.shipped import service_schemas

SCHEMAS = "#/components/schemas"


def require_valid(name: str, value: object) -> None:
    """Raise InputError unless a JSON value is what a schema describes; the message names the place and what is wrong there."""
    error = best_match(_validator(name).iter_errors(value))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path)
        raise InputError(f"{where or name}: {error.message[:200]}")


@lru_cache(maxsize=1)
def components() -> dict[str, Any]:
    """The schemas by name, whose references lead to the components of an OpenAPI document."""
    return {name: _component(schema) for name, schema in service_schemas().items()}


@lru_cache(maxsize=64)
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"{SCHEMAS}/{name}", "components": {"schemas": components()}})


def _component(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: f"{SCHEMAS}/{value.rsplit('/', 1)[-1]}" if key == "$ref" else _component(value)
            for key, value in schema.items()
        }
    return [_component(item) for item in schema] if isinstance(schema, list) else schema

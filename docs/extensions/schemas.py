"""The schemas of the service: `python docs/extensions/schemas.py` writes them from the records of `veil.server.answers`.

Examples, descriptions of whole records, and definitions without a record are kept as they are written in the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from veil.server.answers import of_maps, of_service, values
from veil.server.answers.values import Limits, Written


@dataclass(frozen=True, kw_only=True)
class Partly:
    """A record all of whose keys may be left out."""

    record: type


FOLDER = Path(__file__).resolve().parents[2] / "src" / "veil" / "server" / "schemas"
KEYWORDS = {
    "minimum": "minimum",
    "above": "exclusiveMinimum",
    "maximum": "maximum",
    "pattern": "pattern",
    "fewest_characters": "minLength",
    "most_characters": "maxLength",
    "format": "format",
    "fewest_items": "minItems",
    "most_items": "maxItems",
    "description": "description",
}
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
WIDTH = 128
# By file of `schemas/`, the names of records there. Definitions that stand in a file alone are written by hand.
RECORDS: Mapping[str, Mapping[str, Any]] = {
    "contributions.json": {
        "Contribution": of_maps.ContributionJson,
        "Contributions": of_maps.ContributionsJson,
        "ContributionGiven": of_maps.ContributionGivenJson,
        "ContributionDeleted": of_maps.ContributionDeletedJson,
        "ContributionLeaving": of_maps.ContributionLeavingJson,
        "Suspects": of_maps.SuspectsJson,
        "Suspect": of_maps.SuspectJson,
        "TokenShare": of_maps.TokenShareJson,
        "Evidence": of_maps.EvidenceJson,
    },
    "demo.json": {"Photographs": of_service.PhotographsJson},
    "health.json": {
        "Alive": of_service.AliveJson,
        "Ready": of_service.ReadyJson,
        "ServicePolicy": of_service.ServicePolicyJson,
    },
    "jobs.json": {"Job": of_maps.JobJson, "Jobs": of_maps.JobsJson},
    "maps.json": {
        "NewMap": of_maps.NewMapJson,
        "MapPolicy": of_maps.MapPolicyJson,
        "NewMapPolicy": Partly(record=of_maps.MapPolicyJson),
        "Map": of_maps.MapJson,
        "Maps": of_maps.MapsJson,
        "MapDeleted": of_maps.MapDeletedJson,
        "MapView": of_maps.MapViewJson,
        "Place": of_maps.PlaceJson,
        "ModelSize": of_maps.ModelSizeJson,
        "Pose": of_maps.PoseJson,
    },
    "queries.json": {
        "Localized": of_service.LocalizedJson,
        "NoPose": of_service.NoPoseJson,
        "Answer": of_service.AnswerJson,
        "Remedies": values.RemediesJson,
        "Coverage": of_service.CoverageJson,
    },
    "receipts.json": {"Receipt": of_maps.ReceiptJson, "ReceiptChain": of_maps.ReceiptChainJson},
    "tiles.json": {
        "Tiles": of_service.TilesJson,
        "TilesVersion": of_service.TilesVersionJson,
        "TilesManifest": of_service.TilesManifestJson,
    },
    "tokens.json": {
        "NewToken": of_service.NewTokenJson,
        "Token": of_service.TokenJson,
        "Tokens": of_service.TokensJson,
        "TokenMade": of_service.TokenMadeJson,
        "Usage": of_service.UsageJson,
    },
}


def schema_of(kind: Any, file: str, *, whole: bool = False) -> dict[str, Any]:
    """The schema of a type, in a file of schemas; `whole` spells out one that has a name among them.

    Raises TypeError for a type that no schema is known for: none is left open in silence.
    """
    if not whole and (place := _place_of(kind)) is not None:
        return {"$ref": f"{'' if place.file == file else place.file}#/$defs/{place.name}"}
    if isinstance(kind, Partly):
        return {**schema_of(kind.record, file, whole=True), "required": []}
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {
            "type": "object",
            "properties": {name: schema_of(hint, file) for name, hint in hints.items()},
            "required": [name for name in hints if name in kind.__required_keys__],
            "additionalProperties": False,
        }
    if get_origin(kind) is Annotated:
        return _limited(schema_of(kind.__origin__, file), kind.__metadata__)
    if get_origin(kind) is Literal:
        values = list(get_args(kind))
        return {"const": values[0]} if len(values) == 1 else {"enum": values}
    if get_origin(kind) in (Union, UnionType):
        return _any_of([schema_of(each, file) for each in get_args(kind)])
    if get_origin(kind) is list:
        return {"type": "array", "items": schema_of(get_args(kind)[0], file)}
    if kind in TYPES:
        return {"type": TYPES[kind]}
    raise TypeError(f"no schema is known for {kind}")


def _place_of(kind: Any) -> Written | None:
    """Where a type has a schema of its own."""
    if get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], Written):
        return kind.__metadata__[0]
    places = (Written(file=file, name=name) for file, names in RECORDS.items() for name in names if names[name] == kind)
    return next(places, None)


def _limited(schema: dict[str, Any], limits: tuple[Limits, ...]) -> dict[str, Any]:
    given = ((KEYWORDS[field.name], getattr(each, field.name)) for each in limits for field in fields(each))
    return {**schema, **{keyword: value for keyword, value in given if value is not None}}


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Any of some schemas: one type or null, exactly one of several records, or any."""
    first, *others = schemas
    if others == [{"type": "null"}] and first.get("type") in ("integer", "number", "string") and "pattern" not in first:
        return {**first, "type": [first["type"], "null"]}
    return {"oneOf" if all("$ref" in each for each in schemas) else "anyOf": schemas}


def written(file: str) -> str:
    """The text of a file of schemas, with the examples, descriptions and definitions that are written in it by hand."""
    held = json.loads((FOLDER / file).read_text("utf-8"))
    made = dict(held["$defs"])
    for name, kind in RECORDS[file].items():
        by_hand = {key: value for key, value in made.get(name, {}).items() if key in ("description", "examples")}
        made[name] = {**schema_of(kind, file, whole=True), **by_hand}
    return f"{_laid_out({**held, '$defs': made})}\n"


def _laid_out(value: Any, before: str = "", indent: str = "") -> str:
    """JSON with each value on one line where it fits."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + before + line) < WIDTH or not isinstance(value, (dict, list)):
        return before + line
    inner = indent + "  "
    items = [("", each) for each in value] if isinstance(value, list) else [(f"{json.dumps(k)}: ", value[k]) for k in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(inner + _laid_out(each, name, inner) for name, each in items)
    return f"{before}{opening}\n{lines}\n{indent}{closing}"


if __name__ == "__main__":
    for name in RECORDS:
        (FOLDER / name).write_text(written(name), "utf-8")

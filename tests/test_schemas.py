"""The schemas of the reference are valid, strict and used, and records are spelled out key by key."""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from extensions.schemas import COMMANDS
from veil.inversion.quality import Quality
from veil.scene import MapCheck
from worlds.documents import REFERENCES, ROOT
from worlds.schemas import SCHEMAS, validate

NAMES = sorted(SCHEMAS)
PACKAGES = [Path(str(files("veil"))), ROOT / "lab" / "veil_lab", ROOT / "faces" / "veil_faces"]
TESTS = [ROOT / "tests", ROOT / "lab" / "tests", ROOT / "faces" / "tests"]


def objects(schema: object) -> Iterator[dict]:
    """Every part of a schema that describes an object by its keys."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from objects(item)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_valid_strict_and_used(name: str) -> None:
    schema = json.loads(SCHEMAS[name].read_text())
    Draft202012Validator.check_schema(schema)
    assert schema["title"].replace("--", "").replace(" ", "-").startswith(f"veil-{name}")
    for part in objects(schema):
        assert part["additionalProperties"] is False and set(part["required"]) <= set(part["properties"])
    tests = [path for folder in TESTS for path in folder.rglob("*.py")]
    assert any(f'validate("{name}"' in path.read_text() for path in tests), "no test validates a record of it"


def test_every_documented_output_has_a_schema() -> None:
    pages = [(folder / "json.md").read_text() for folder in REFERENCES]
    sections = [section for page in pages for section in re.findall("^## veil (.*)$", page, re.M)]
    for section in sections:
        assert any(name.startswith(section.replace(" ", "-")) for name in NAMES), section


@pytest.mark.parametrize("name", sorted(COMMANDS.records))
def test_schemas_of_commands_are_those_of_the_records(name: str) -> None:
    """Second method: the files as `docs/extensions/schemas.py` makes them of the records."""
    assert (COMMANDS.path / name).read_text("utf-8") == COMMANDS.written(name), "run: python docs/extensions/schemas.py"


def test_no_schema_of_a_command_is_without_a_record() -> None:
    """Neither a file nor a definition in one: whatever a command writes, a type says."""
    assert {path.name for path in COMMANDS.path.iterdir()} == set(COMMANDS.records)
    for name, records in COMMANDS.records.items():
        assert set(json.loads((COMMANDS.path / name).read_text("utf-8")).get("$defs", {})) == set(records) - {""}, name


def made_of_fields(module: ast.Module) -> list[int]:
    """The lines at which a module makes a record for JSON out of the names of its fields."""
    lines = []
    for part in ast.walk(module):
        if isinstance(part, ast.FunctionDef) and part.name in ("as_json", "as_record"):
            scope: ast.AST = part
        elif isinstance(part, ast.Call) and getattr(part.func, "id", getattr(part.func, "attr", "")) in ("write_json", "dumps"):
            scope = part
        else:
            continue
        for node in ast.walk(scope):
            named = getattr(node, "attr", getattr(node, "id", ""))
            if isinstance(node, (ast.Attribute, ast.Name)) and named in ("__dict__", "asdict", "vars", "fields", "getattr"):
                lines.append(node.lineno)
    return lines


@pytest.mark.slow
def test_no_record_follows_the_names_of_fields() -> None:
    """A renamed field must not rename a key. Broken twins: the ways in which records were made before."""
    for path in (path for package in PACKAGES for path in package.rglob("*.py")):
        assert made_of_fields(ast.parse(path.read_text())) == [], path
    for body in (
        "def as_json(self): return dict(self.__dict__)",
        "def as_json(self): return asdict(self)",
        "def as_record(self): return {f.name: getattr(self, f.name) for f in fields(self)}",
        "write_json(path, {'rows': [row.__dict__ for row in rows]})",
        "json.dumps(dataclasses.asdict(row))",
    ):
        assert made_of_fields(ast.parse(body)), body


CHECK = MapCheck(
    pairs=3, explained_pairs=3, contradicting_pairs=0, explained_matches=0.9, neck=40, uncertainty=float("inf"), step_ratio=None
)
NO_MAP: dict[str, Any] = {"images": 4, "registered": 0, "reason": "r", "left_out": {"a.jpg": "w"}, "skipped": {}}
NO_MAP["check"] = CHECK.as_json()


def test_a_renamed_key_is_refused() -> None:
    """Broken twins of a true record: a key renamed at the top or deep within, one too many, one of another type."""
    validate("map", NO_MAP)
    twins = [copy.deepcopy(NO_MAP) for _ in range(4)]
    twins[0]["why"] = twins[0].pop("reason")
    twins[1]["check"]["bottleneck"] = twins[1]["check"].pop("neck")
    twins[2]["check"]["more"] = 1
    twins[3]["check"]["pairs"] = "3"
    for twin in twins:
        with pytest.raises(ValidationError):
            validate("map", twin)


def test_a_check_is_read_by_its_keys() -> None:
    assert MapCheck.from_json(CHECK.as_json()) == CHECK
    old = {key: value for key, value in CHECK.as_json().items() if key not in ("rotation_deg", "gravity_deg", "left_out")}
    assert MapCheck.from_json(old) == CHECK
    for broken in ({**old, "more": 1}, {key: value for key, value in old.items() if key != "neck"}):
        with pytest.raises(ValueError, match=r"more|neck"):
            MapCheck.from_json(broken)
    with pytest.raises(TypeError):
        MapCheck.from_json(["pairs"])  # type: ignore[arg-type]


# Of commands that need PyTorch, dlib or hundreds of people: records by hand, beside those of the commands' own tests.


def test_pictures_are_described_with_and_without_an_original() -> None:
    measured = Quality(mae=0.0, ssim=1.0, psnr=float("inf")).as_json()
    drawn = [{"name": "a", "features": 3}, {"name": "b", "features": 3, **measured}]
    validate("invert", {"pictures": drawn, "skipped": {"photos/cut.jpg": "it cannot be decoded"}})

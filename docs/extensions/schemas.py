"""The schemas of the service and of commands: `python docs/extensions/schemas.py` writes them from records for JSON.

The records are TypedDicts: those of `veil.server.answers`, and those beside the code of commands and results.

Titles, examples, descriptions of whole records, and definitions without a record are kept as they are written in the files, and
so is what a whole file demands beside its record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from veil.audit.audit_result import AuditTimeJson
from veil.audit.epsilon import EpsilonBoundJson
from veil.audit.finding import FindingJson
from veil.audit.on_pictures import DrawnPictureJson
from veil.audit.on_tiles import DescriptorErrorsJson, TilePictureJson
from veil.cli.codebook.build import BuildCodebookJson, CodebookInfoJson
from veil.cli.device.budget import ComposedJson, SetBudgetJson, ShowBudgetJson, SpentImageJson
from veil.cli.device.extract import ExtractJson
from veil.cli.device.gravity import GravityAnswersJson, GravityFoundJson, NoGravityJson, Source
from veil.cli.device.plan import BudgetPlanJson, ReleasePlanJson
from veil.cli.device.privatize import PrivatizeJson, SubspaceReleasesJson, WordReleasesJson
from veil.cli.doctor import DoctorJson, RateJson
from veil.cli.privacy.audit import AuditedReleaseJson, AuditUploadsJson
from veil.cli.privacy.audit_answers import AuditAnswersJson
from veil.cli.privacy.audit_tiles import AuditTilesJson
from veil.cli.privacy.inspect import (
    CodebookFactsJson,
    FeatureFactsJson,
    FileFactsJson,
    LedgerFactsJson,
    MapFactsJson,
    MessageFactsJson,
    SeveralFactsJson,
)
from veil.cli.privacy.inversion import ComparedJson, DrawnJson, InvertJson
from veil.cli.server.index import IndexJson
from veil.cli.server.line_maps import LineMapJson
from veil.cli.server.map import NoMapJson, PositionMapJson
from veil.cli.server.map_import import ImportedMapJson
from veil.cli.server.map_writing import GravityReadingsJson
from veil.cli.server.plan import PlanMapJson
from veil.cli.server.pose_rows import LocalizedQueryJson, LocalizeJson, QueryWithoutPoseJson
from veil.cli.server.serve_tiles import ServedTilesJson
from veil.cli.server.serve_upkeep import AdoptionJson
from veil.cli.server.tiles import CutTilesJson, TilePlanJson
from veil.cli.view import ViewExportJson, ViewPageJson
from veil.codebooks.quantization import DistanceStatisticsJson, QuantizationJson
from veil.demo import DemoJson
from veil.device.answer_audit import AnsweredObjectJson
from veil.geometry.gravity_check import CheckedJson
from veil.json_records.values import Digest, Limits, PoseJson, Written
from veil.places.removal import RemovalReceiptJson
from veil.scene import LineMapCheckJson, MapCheckJson
from veil.server.answers import of_maps, of_service, values
from veil.trials.held_out import TrialOutcomeJson
from veil.trials.position_leakage import PositionLeakageJson
from veil.trials.reconstruction_run import ErrorStatisticsJson, RunJson
from veil.trials.tile_exits import ExitOutcomeJson


@dataclass(frozen=True, kw_only=True)
class Partly:
    """A record all of whose keys may be left out."""

    record: type


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """A record that has its schema in another folder, whose files refer to each other."""

    record: type
    folder: Folder


ROOT = Path(__file__).resolve().parents[2]
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


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of schemas.

    - `records`: by file the names of records there; "" is the file as a whole. Definitions that stand in a file alone are
      written by hand.
    - `across`: whether a file refers to the records of the others.
    - `choice`: the keyword of a choice between records.
    """

    path: Path
    records: Mapping[str, Mapping[str, Any]]
    across: bool
    choice: Literal["anyOf", "oneOf"]

    def schema_of(self, kind: Any, file: str, *, whole: bool = False) -> dict[str, Any]:
        """The schema of a type, in a file of the folder; `whole` spells out one that has a name among them.

        Raises TypeError for a type that no schema is known for: none is left open in silence.
        """
        if not whole and (place := self._place_of(kind, file)) is not None:
            return {"$ref": f"{'' if place.file == file else place.file}#/$defs/{place.name}"}
        if isinstance(kind, Elsewhere):
            beside = PurePath(os.path.relpath(kind.folder.path, self.path)).as_posix()
            return {"$ref": f"{beside}/{kind.folder.schema_of(kind.record, '')['$ref']}"}
        if isinstance(kind, Partly):
            return {**self.schema_of(kind.record, file, whole=True), "required": []}
        if is_typeddict(kind):
            hints = get_type_hints(kind, include_extras=True)
            return {
                "type": "object",
                "properties": {name: self.schema_of(hint, file) for name, hint in hints.items()},
                "required": [name for name in hints if name in kind.__required_keys__],
                "additionalProperties": False,
            }
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return _limited(self.schema_of(kind.__origin__, file), kind.__metadata__)
        if origin is Literal:
            return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        if origin in (Union, UnionType):
            return self._any_of([self.schema_of(each, file) for each in arguments])
        if origin in (list, Sequence):
            return {"type": "array", "items": self.schema_of(arguments[0], file)}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.schema_of(arguments[1], file)}
        if kind in TYPES:
            return {"type": TYPES[kind]}
        raise TypeError(f"no schema is known for {kind}")

    def written(self, file: str) -> str:
        """The text of a file, with the examples, descriptions and definitions that are written in it by hand."""
        held = json.loads((self.path / file).read_text("utf-8"))
        made = dict(held.get("$defs", {}))
        for name, kind in self.records[file].items():
            schema = self.schema_of(kind, file, whole=True)
            if name:
                by_hand = {key: value for key, value in made.get(name, {}).items() if key in ("description", "examples")}
                made[name] = {**schema, **by_hand}
            else:
                held |= schema
        return f"{_laid_out(held | ({'$defs': made} if made else {}))}\n"

    def _place_of(self, kind: Any, file: str) -> Written | None:
        """Where a type has a schema of its own, as a file refers to it."""
        if get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], Written):
            return kind.__metadata__[0]
        places = (
            Written(file=each, name=name)
            for each in (self.records if self.across else [file])
            for name, record in self.records[each].items()
            if record == kind and name
        )
        return next(places, None)

    def _any_of(self, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        """Any of some schemas: one type or null, a choice between records, or any."""
        first, *others = schemas
        if others == [{"type": "null"}] and first.get("type") in ("integer", "number", "string") and "pattern" not in first:
            return {**first, "type": [first["type"], "null"]}
        return {self.choice if all("$ref" in each for each in schemas) else "anyOf": schemas}


def _limited(schema: dict[str, Any], limits: tuple[Limits, ...]) -> dict[str, Any]:
    given = ((KEYWORDS[field.name], getattr(each, field.name)) for each in limits for field in fields(each))
    return {**schema, **{keyword: value for keyword, value in given if value is not None}}


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


SERVICE = Folder(
    path=ROOT / "src" / "veil" / "server" / "schemas",
    across=True,
    choice="oneOf",
    records={
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
            "Pose": PoseJson,
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
    },
)
# The records that `--json` writes.
COMMANDS = Folder(
    path=ROOT / "docs" / "reference" / "schema",
    across=False,
    choice="anyOf",
    records={
        "extract.json": {"": ExtractJson},
        "serve-adopt.json": {"": AdoptionJson},
        "serve-suspects.json": {"": Elsewhere(record=of_maps.SuspectsJson, folder=SERVICE)},
        "serve-tiles.json": {"": ServedTilesJson},
        "plan-map.json": {"": PlanMapJson},
        "tiles-cut.json": {"": CutTilesJson},
        "tiles-plan.json": {"": TilePlanJson},
        "doctor.json": {"": DoctorJson, "rate": RateJson},
        "budget-set.json": {"": SetBudgetJson},
        "budget-show.json": {"": ShowBudgetJson, "image": SpentImageJson, "composed": ComposedJson},
        "budget-plan.json": {"": BudgetPlanJson, "plan": ReleasePlanJson},
        "codebook-build.json": {"": BuildCodebookJson, "quality": QuantizationJson, "spread": DistanceStatisticsJson},
        "codebook-info.json": {"": CodebookInfoJson},
        "index.json": {"": IndexJson},
        "gravity.json": {
            "": GravityAnswersJson,
            "found": GravityFoundJson,
            "no_gravity": NoGravityJson,
            "source": Source,
            "check": CheckedJson,
        },
        "view.json": {"": ViewPageJson | ViewExportJson},
        "privatize.json": {"": PrivatizeJson, "subspaces": SubspaceReleasesJson, "words": WordReleasesJson},
        "invert.json": {"": InvertJson, "compared": ComparedJson, "drawn": DrawnJson},
        "demo.json": {
            "": DemoJson,
            "query": TrialOutcomeJson,
            "fetched": ExitOutcomeJson,
            "run": RunJson,
            "spread": ErrorStatisticsJson,
            "leak": PositionLeakageJson,
            "map_check": MapCheckJson,
            "line_map_check": LineMapCheckJson,
        },
        "inspect.json": {
            "": FileFactsJson | SeveralFactsJson,
            "facts": FileFactsJson,
            "message": MessageFactsJson,
            "map": MapFactsJson,
            "features": FeatureFactsJson,
            "codebook": CodebookFactsJson,
            "ledger": LedgerFactsJson,
            "several": SeveralFactsJson,
        },
        "audit.json": {
            "": AuditUploadsJson,
            "release": AuditedReleaseJson,
            "attack": FindingJson,
            "measured": EpsilonBoundJson,
            "picture": DrawnPictureJson,
            "time": AuditTimeJson,
        },
        "audit-answers.json": {"": AuditAnswersJson, "object": AnsweredObjectJson},
        "audit-tiles.json": {"": AuditTilesJson, "descriptors": DescriptorErrorsJson, "picture": TilePictureJson},
        "localize.json": {"": LocalizeJson, "localized": LocalizedQueryJson, "no_pose": QueryWithoutPoseJson},
        "map.json": {
            "": PositionMapJson | LineMapJson | NoMapJson,
            "map_of_positions": PositionMapJson,
            "map_of_lines": LineMapJson,
            "no_map": NoMapJson,
            "check": MapCheckJson,
            "line_check": LineMapCheckJson,
            "gravity": GravityReadingsJson,
        },
        "map-import.json": {
            "": ImportedMapJson | NoMapJson,
            "imported_map": ImportedMapJson,
            "no_map": NoMapJson,
            "check": MapCheckJson,
        },
        "map-remove.json": {
            "": RemovalReceiptJson,
            "sha256": Digest,
            "check": MapCheckJson,
            "line_check": LineMapCheckJson,
        },
    },
)


if __name__ == "__main__":
    for folder in (SERVICE, COMMANDS):
        for name in folder.records:
            (folder.path / name).write_text(folder.written(name), "utf-8")

"""`veil map import`: public maps from models of other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from veil.cli.common import at_least, quiet_colmap, report, say, say_left_out, write_json
from veil.cli.device.extract import imported_space
from veil.cli.input_options import DATABASE, FEATURES, MAP_IMPORT, PHOTOGRAPHS, require_applicable
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.cli.server.index import index_large
from veil.cli.server.map import no_map_facts
from veil.cli.server.map_options import TimedSteps
from veil.cli.server.map_writing import GravityReadingsJson, gravity_facts, say_gravity
from veil.device.importing import ImportedMap, import_map, usual_database
from veil.errors import InputError
from veil.files.atomic import require_vacant
from veil.files.features import holds_features
from veil.files.maps.folders import write_models
from veil.files.photographs.gravity import read_gravity
from veil.json_records.values import Reasons
from veil.places.built_maps import MappingOptions
from veil.places.maps import NoMap
from veil.scene import MapCheckJson
from veil.space import DIMS

EXAMPLES = """\
  veil map import sparse/0 -o map/                    with the database.db in its folder or above it
  veil map import sparse/0 database.db -o map/        a COLMAP model and its features
  veil map import sfm/ feats-superpoint.h5 -o map/ --imported superpoint   an hloc model and its features
  veil map import sparse/0 images/ -o map/            no features: SIFT of the photographs, at the model's poses
  veil map import transforms.json -o map/             poses of nerfstudio or instant-ngp, and the photographs beside
"""


@dataclass(frozen=True, kw_only=True)
class ImportMap(Record):
    """Make a public map of a model of another tool, in the model's own coordinates. Descriptors are those that the model was
    made of: of a COLMAP database (.db) or hloc's features (.h5). Where there are none, SIFT is extracted from the photographs:
    at the model's keypoints if the database has their scale and orientation, or anew and triangulated from the model's
    poses. RootSIFT is converted to SIFT in L2. The model, the features and the photographs are only read. A public map has
    raw descriptors of the place.
    """

    model: Path = positional("folder with a COLMAP model (cameras, images, points3D; .bin or .txt), or transforms.json")
    source: tuple[Path, ...] = positional(
        "the model's features (.db or .h5), the folder of its photographs, or both (default: database.db, images/ beside it)",
        optional=True,
    )
    output: Path = option("map to write", required=True, short="-o", metavar="FOLDER")
    imported: str | None = option(
        "what an .h5 of another tool holds: " + ", ".join(DIMS) + ", or another NAME:DIM", metavar="NAME[:DIM]"
    )
    normalization: Literal["L2", "L1_ROOT"] | None = option(
        "normalization of the features' SIFT (default: as its numbers show)"
    )
    gravity: Path | None = option(
        "gravity in the model's images, to serve queries in words with lines (of photographs that COLMAP read turned, from its "
        "database: veil gravity FILE.db)",
        metavar="CSV",
    )
    workers: int = option("image pairs at a time that are matched (default 2)", default=2, parse=at_least(1))
    seed: int = option("seed of RANSAC and mapping (default 0)", default=0, parse=at_least(0))
    json: Path | None = json_file()


class ImportedMapJson(TypedDict):
    """A map of a model of another tool.

    `descriptors` tells where they come from, `points` whether they are the model's own.
    """

    registered: int
    points: int
    observations: int
    mean_reprojection_error_px: float
    space: str
    descriptors: Literal["stored", "at keypoints", "extracted"]
    source: str | None
    keeps_points: bool
    check: MapCheckJson | None
    left_out: Reasons
    gravity: GravityReadingsJson | None


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil map import` to the parser's commands."""
    add_record_command(commands, "map import", "a model of COLMAP, hloc or nerfstudio -> a map", EXAMPLES, ImportMap, _import)


def _import(arguments: ImportMap) -> int:
    quiet_colmap()
    require_vacant(arguments.output)
    features, photographs = _sources(arguments.source)
    source = features or usual_database(arguments.model)
    kind = PHOTOGRAPHS if source is None else FEATURES if holds_features(source) else DATABASE
    require_applicable(arguments, MAP_IMPORT, kind, source or arguments.model)
    if kind == FEATURES and arguments.normalization and not arguments.imported:
        raise InputError("--normalization of a file of features goes with --imported, which names what it holds; leave it out")
    made = import_map(
        arguments.model,
        features=features,
        photographs=photographs,
        space=imported_space(arguments.imported, arguments.normalization),
        gravity=None if arguments.gravity is None else read_gravity(arguments.gravity),
        options=MappingOptions(workers=arguments.workers, seed=arguments.seed),
        steps=TimedSteps(),
    )
    if isinstance(made, NoMap):
        write_json(arguments.json, no_map_facts(len(made.left_out), made, {}))
        say_left_out(arguments, made.left_out)
        raise InputError(f"no map: {made.reason}", remedy=made.remedy)
    scene = made.map.scene
    if made.readings is not None:
        say_gravity(arguments, made.readings)
        if scene.measured_down is None:
            raise InputError(f"{arguments.gravity} has no gravity of a mapped image on which the others agree; check its names")

    def complete(new: Path) -> None:
        index_large(arguments, new, scene, threads=arguments.workers, shown=arguments.output)

    write_models(arguments.output, [scene], complete)
    write_json(arguments.json, _facts(made))
    _tell(arguments, made)
    return 0


def _sources(paths: tuple[Path, ...]) -> tuple[Path | None, Path | None]:
    """The features and the folder of photographs among paths. Raises InputError for two of a kind, or another kind."""
    features = [path for path in paths if path.suffix.lower() == ".db" or holds_features(path)]
    folders = [path for path in paths if path not in features]
    for path in folders:
        if not path.is_dir():
            raise InputError(f"{path} is neither features (.db, .h5) nor a folder of photographs; check it")
    if len(features) > 1 or len(folders) > 1:
        raise InputError("a model has one file of features and one folder of photographs at most; leave the others out")
    return next(iter(features), None), next(iter(folders), None)


def _facts(made: ImportedMap) -> ImportedMapJson:
    scene = made.map.scene
    return {
        "registered": len(scene.images),
        "points": len(scene.points),
        "observations": scene.observation_count,
        "mean_reprojection_error_px": scene.mean_reprojection_error_px,
        "space": str(scene.space),
        "descriptors": made.origin,
        "source": None if made.source is None else str(made.source),
        "keeps_points": made.keeps_points,
        "check": None if made.check is None else made.check.as_json(),
        "left_out": dict(made.left_out),
        "gravity": None if made.readings is None else gravity_facts(made.readings),
    }


def _tell(arguments: ImportMap, made: ImportedMap) -> None:
    """Print for people where the descriptors and points come from, and what is left out."""
    scene = made.map.scene
    origins = {
        "stored": f"descriptors of {made.source}",
        "at keypoints": f"SIFT of the photographs at the keypoints of {made.source}",
        "extracted": "SIFT of the photographs",
    }
    points = "the model's own points" if made.keeps_points else "points triangulated from the model's poses"
    say(arguments, f"{origins[made.origin]} ({scene.space}), {points}")
    say(
        arguments,
        f"{len(scene.images)} of {len(scene.images) + len(made.left_out)} images, {len(scene.points)} points, "
        f"{scene.mean_reprojection_error_px:.2f} px mean reprojection error",
    )
    if made.check is not None:
        say(arguments, f"checked: {made.check.described()}")
    say_left_out(arguments, made.left_out)
    report(arguments, arguments.output, "the public map")

"""Tasks of the server's processes: read messages, localize queries, and build, extend and shrink maps, and draw public ones."""

from __future__ import annotations

import math
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from veil.engine import open_engine
from veil.errors import FileFormatError, InputError, Remedy, SpaceError, told_as_json
from veil.files.codebooks import bundled_codebook
from veil.files.maps.folders import model_folders, write_models
from veil.files.maps.format import read_map
from veil.forms import Lines, Subsets
from veil.geometry.camera import FocalPrior
from veil.places.building import map_positions
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.growth import add_positions
from veil.places.held_map import INDEXED_FROM, Map, make_point_index
from veil.places.images_on_demand import GIB, uploads_on_demand
from veil.places.line_mapping import map_lines
from veil.places.localization import WORD_SECONDS, AnswerGuard, localize_loaded
from veil.places.maps import NoMap
from veil.places.maps.removal import named_in
from veil.places.pairs.blocks import KIND
from veil.places.pairs.images import LoadedImage
from veil.places.pairs.matching import MatchingWork
from veil.places.pairs.store import MatchStore
from veil.places.poses.answer import Localization, NoPose, camera_json
from veil.places.poses.options import LocalizeOptions, WordOptions
from veil.places.removal import forgetting, remove_from_map
from veil.places.uploads import files_of, loaded
from veil.places.weighing import weighed
from veil.progress import Progress
from veil.scene import Scene
from veil.server.jobs.entering import built_by_any, degenerate_message, evidence_of, farthest_move, usable_images
from veil.server.jobs.processes import Tell
from veil.server.maps.answerable import facts_of, require_comparable
from veil.server.maps.policy import MapPolicy
from veil.wire import decode
from veil.wire.message import LineUpload, Message, Upload

HELD = 8  # maps that each process keeps in memory
_held: OrderedDict[str, Map] = OrderedDict()
MOST_POINTS, MOST_CAMERAS = 4000, 200


def ready(tell: Tell) -> bool:
    """Have what tasks need loaded."""
    bundled_codebook()
    return True


def examine(message: bytes, policy: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Content of a message, as JSON values. Raises WireError for a damaged one, Refused for one that is not accepted."""
    upload = decode(message)
    MapPolicy.of(policy).require_content(upload)
    form = upload.form
    return {
        "form": "words" if isinstance(form, Subsets) else "subspaces",
        "profile": None if isinstance(form, Subsets) else form.profile,
        "epsilon": form.mechanism.epsilon if isinstance(form, Subsets) else None,
        "positions": "lines" if isinstance(upload, LineUpload) else "positions",
        "features": len(upload),
        "kind": loaded(upload).kind,
        "guarantee": getattr(form.guarantee, "reason", None),
        "degenerate": degenerate_message(upload),
    }


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Facts about an image that a request states beside its message.

    - `gravity`: unit vector of down in the camera frame, for a message with positions that does not bring it.
    - `focal_deviation`: relative standard deviation of the focal length, in place of what the message says.
    """

    gravity: tuple[float, ...] | None = None
    focal_deviation: float | None = None

    def added_to(self, upload: Message) -> Message:
        """The upload with these facts."""
        if self.gravity is not None and isinstance(upload, Upload) and upload.gravity is None:
            upload = replace(upload, gravity=np.array(self.gravity))
        if self.focal_deviation is None:
            return upload
        focal = FocalPrior(origin="undisclosed", deviation=self.focal_deviation)
        return replace(upload, camera=replace(upload.camera, focal=focal))


NOTHING_BESIDE = Beside()
# Key of an answer that a guard looked at, for the service alone: it is given at the end of a whole step of time.
GUARDED = "guarded"


def localize_query(message: bytes, policy: Mapping[str, Any], folder: str, beside: Beside, tell: Tell) -> dict[str, Any] | None:
    """The answer to a query on the map of a folder, as JSON values (docs/reference/service.md#localize); None if it is gone.

    `beside`: what else the request says of the image. The policy's guard decides which answers a private map tells. Those are
    `GUARDED`, and tell no `seconds`: a pose that is withheld takes longer than none.
    """
    begun = time.perf_counter()
    upload, accepted = beside.added_to(decode(message)), MapPolicy.of(policy)
    accepted.require_content(upload)
    try:
        where = held_map(folder)
        require_comparable(upload, where)
        pose = localize_loaded(
            loaded(upload),
            where,
            options=LocalizeOptions(workers=1),
            word_options=_word_options() if isinstance(upload.form, Subsets) else None,
        )
    except (FileFormatError, OSError):  # indexes are read when they are first needed
        if Path(folder).is_dir():
            raise
        return None
    if accepted.largest_object is None or where.scene.is_public:
        return {**answer_of(pose), "seconds": time.perf_counter() - begun}
    pose = AnswerGuard(largest_object=float(accepted.largest_object)).told(pose, where.scene)
    return {**without_evidence(answer_of(pose)), GUARDED: True}


def without_evidence(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer that says no more than its pose: evidence tells what the map holds (docs/theory/answers.md, Eq. 4)."""
    if answer["status"] != "localized":
        return dict(answer)
    return {**answer, "covariance": None, "turn_deviation_deg": None, "evidence": None}


def answer_of(pose: Localization | NoPose) -> dict[str, Any]:
    """An answer as JSON values; numbers that JSON lacks are None."""
    if isinstance(pose, NoPose):
        remedies = told_as_json(pose.remedy)
        return {"status": "no pose", "reason": pose.reason, **remedies, "correspondences": pose.correspondences}
    known = np.isfinite(0.0 if pose.covariance is None else pose.covariance)
    return {
        "status": "localized",
        "cam_from_world": {
            "rotation": pose.cam_from_world.rotation.tolist(),
            "translation": pose.cam_from_world.translation.tolist(),
        },
        "camera_center": pose.cam_from_world.center.tolist(),
        "camera": camera_json(pose.camera),
        "covariance": None if pose.covariance is None or not known.all() else pose.covariance.tolist(),
        "turn_deviation_deg": _finite(pose.turn_deviation_deg),
        "evidence": {
            "inliers": pose.inliers,
            "correspondences": pose.correspondences,
            "log10_nfa": _finite(pose.log10_nfa),
        },
    }


def _word_options() -> WordOptions:

    return WordOptions(max_seconds=WORD_SECONDS, threads=1)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def held_map(folder: str) -> Map:
    """The map of a folder, which stays in memory; a folder never changes what it holds."""
    for gone in [path for path in _held if not Path(path).is_dir()]:  # replaced, perhaps because something was deleted
        del _held[gone]
    if folder not in _held:
        _held[folder] = Map.read(folder)
        while len(_held) > HELD:
            _held.popitem(last=False)
    _held.move_to_end(folder)
    return _held[folder]


@dataclass(frozen=True, kw_only=True)
class MapWork:
    """Work of a job on a map.

    - `base`: folder of the present map; None where there is none.
    - `messages`: folder of messages to enter, each file named by its contribution; None without any.
    - `remove`: contributions to take out.
    - `output`: folder to write the new map to.
    - `matches`, `unfinished`: folders that keep matches, and what a killed job goes on from.
    - `owners`: contributions with the tokens that gave them, in the order in which they came; `doubted` are suspect.
    - `engine`, `workers`: where pairs are matched.
    """

    base: Path | None = None
    messages: Path | None = None
    remove: tuple[str, ...] = ()
    output: Path
    matches: Path
    unfinished: Path
    owners: tuple[tuple[str, str], ...] = ()
    doubted: tuple[str, ...] = ()
    engine: str = "local"
    workers: int = 2


@dataclass(frozen=True, kw_only=True)
class MapOutcome:
    """Result of a job on a map.

    - `written`: whether there is a map in the output; otherwise the old one stays, or there is none any more (`emptied`).
    - `models`: contributions of each model.
    - `left_out`: why contributions are not in the map.
    - `facts`: of the map, as JSON values.
    - `removed`: what a removal took out, as JSON values.
    - `evidence`: what the map says of contributions, as JSON values (docs/theory/contributions.md#evidence).
    - `moved`: the farthest that a camera which was in the map moved, as a share of the map's extent; None for a new map.
    - `reason`, `remedy`: why nothing was written, and what may help.
    """

    written: bool
    emptied: bool = False
    models: tuple[tuple[str, ...], ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    removed: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    moved: float | None = None
    reason: str = ""
    remedy: tuple[Remedy, ...] = ()


def change_map(work: MapWork, tell: Tell) -> MapOutcome:
    """Take contributions out of a map, or enter messages into it; the new map is in `work.output` when this returns."""
    tempfile.tempdir = str(work.output.parent)  # what a kill leaves must lie where it is looked for
    return _removed(work, tell) if work.remove else _entered(work, tell)


def _removed(work: MapWork, tell: Tell) -> MapOutcome:
    """The map without some contributions."""
    assert work.base is not None
    tell("removing", 0, 1)
    known = set[str]().union(*(named_in(read_map(model)) for model in model_folders(work.base)))
    names = sorted(set(work.remove) & known)
    matches = work.matches if work.matches.is_dir() else None
    if not names:  # it was pending when the map was made
        scenes = [read_map(model) for model in model_folders(work.base)]
        if matches is not None:
            forgetting(matches)(work.remove)
        return _written(work, scenes, left_out={}, tell=tell)
    removal = remove_from_map(work.base, names, output=work.output, matches=matches)
    if isinstance(removal, NoMap):
        if matches is not None:
            forgetting(matches)(work.remove)
        return MapOutcome(written=False, emptied=True, reason=removal.reason, remedy=removal.remedy)
    record = removal.as_json()
    scenes = [item.scene for item in removal.removals]
    _index(work, scenes[0], tell)
    return MapOutcome(
        written=True,
        models=tuple(tuple(sorted(scene.images)) for scene in scenes),
        left_out=dict(removal.left_out),
        facts=facts_of(scenes, work.output),
        removed={name: record[name] for name in ("removed", "points", "features_of_others", "kept_pairs") if name in record},
        evidence=evidence_of(weighed(scenes, dict(work.owners))),
    )


def _entered(work: MapWork, tell: Tell) -> MapOutcome:
    """The map with more messages, or a first one."""
    if work.messages is None:
        return MapOutcome(written=False, reason="there is nothing to map yet")
    try:
        uploads = uploads_on_demand(work.messages, budget_bytes=GIB)
    except InputError as error:
        return MapOutcome(written=False, reason=error.cause, remedy=error.remedy)
    skipped = {name.removesuffix(".veil"): reason for name, reason in uploads.skipped.items()}
    base = None if work.base is None else Map.read(work.base)
    first = None if base is None else base.scene
    images, unusable = usable_images(uploads.images, first, order=[name for name, _ in work.owners])
    skipped |= unusable
    further = [] if work.base is None else [read_map(model) for model in model_folders(work.base)[1:]]

    def weigh(scenes: list[Scene]) -> dict[str, dict[str, Any]]:
        tell("weighing", 0, 1)
        store = MatchStore(work.matches, KIND)
        return evidence_of(weighed(scenes, dict(work.owners), entered=images, bases=bases, store=store))

    def build(some: Mapping[str, LoadedImage], present: Map | None, folder: str) -> BuiltMap | NoMap:
        bases.extend([] if present is None else [present.scene])
        return _built(replace(work, unfinished=work.unfinished / folder), some, present, tell)

    before, bases = (further if first is None else [first, *further]), list[Scene]()
    try:
        built = built_by_any(images, dict(work.owners), base, build, doubted=work.doubted)
    except (InputError, SpaceError) as error:  # too few images
        evidence = weigh(before)
        return MapOutcome(written=False, left_out=skipped, reason=error.cause, remedy=error.remedy, evidence=evidence)
    if isinstance(built, NoMap):
        left_out = {**skipped, **built.left_out}
        evidence = weigh(before)
        return MapOutcome(written=False, left_out=left_out, reason=built.reason, remedy=built.remedy, evidence=evidence)
    scenes = [built.map.scene, *(item.scene for item in built.further), *further]
    outcome = _written(work, scenes, left_out={**skipped, **built.left_out}, tell=tell)
    return replace(outcome, evidence=weigh(scenes), moved=None if first is None else farthest_move(first, scenes[0]))


def _built(work: MapWork, images: Mapping[str, LoadedImage], base: Map | None, tell: Tell) -> BuiltMap | NoMap:
    """A map of messages, or one with more of them."""
    options = MappingOptions(workers=work.workers)
    assert work.messages is not None

    @contextmanager
    def steps(what: str) -> Iterator[Progress]:
        yield lambda done, total: tell(what, done, total)

    with open_engine(work.engine, workers=work.workers) as engine:
        matching = MatchingWork(
            store=MatchStore(work.matches, KIND),
            engine=engine if work.engine != "local" else None,
            files=files_of(work.messages, list(images)),
            unfinished=work.unfinished,
        )
        if images and all(isinstance(image.positions, Lines) for image in images.values()):
            return map_lines(images, options=options, add_to=base, work=matching, steps=steps)
        if base is None:
            return map_positions(images, options=options, work=matching, steps=steps)
        return add_positions(base, images, options=options, work=matching, steps=steps)


def _written(work: MapWork, scenes: list[Scene], *, left_out: Mapping[str, str], tell: Tell) -> MapOutcome:
    """The outcome of a map that is now written to the output."""
    tell("writing", 0, 1)
    write_models(work.output, scenes)
    _index(work, scenes[0], tell)
    models = tuple(tuple(sorted(scene.images)) for scene in scenes)
    mapped = {name for model in models for name in model}
    return MapOutcome(
        written=True,
        models=models,
        left_out={name: reason for name, reason in left_out.items() if name not in mapped},
        facts=facts_of(scenes, work.output),
    )


def _index(work: MapWork, scene: Scene, tell: Tell) -> None:
    """Index a large map for queries by distance."""
    from veil.files.maps.indexes import read_point_index, write_point_index

    where = Map(scene=scene, folder=work.output)
    if len(scene.images) < INDEXED_FROM or isinstance(where.form, Subsets):
        return
    known = None if work.base is None else read_point_index(work.base)
    try:
        made = make_point_index(where, known=known, threads=1, progress=lambda done, total: tell("indexing", done, total))
        write_point_index(work.output, made)
    except SpaceError:  # of another dictionary than the bundled one: queries are matched with all images
        return


def view_of(folder: str, tell: Tell) -> dict[str, Any] | None:
    """An even sample of the points and cameras of a public map, as JSON values; None for a map that is not public, or is gone.

    Positions are rounded to a ten-thousandth of the map's extent. Nothing of any descriptor is in it.
    """
    if not Path(folder).is_dir():
        return None
    scene = held_map(folder).scene
    if not scene.is_public:
        return None
    digits = max(0, 4 - math.floor(math.log10(max(scene.extent, 1e-9))))
    cameras = [scene.images[name].cam_from_world for name in sorted(scene.images)]
    rows, shown = _evenly(len(scene.points), MOST_POINTS), _evenly(len(cameras), MOST_CAMERAS)
    return {
        "points": np.round(scene.points[rows], digits).tolist(),
        "all_points": len(scene.points),
        "cameras": [
            {"rotation": cameras[row].rotation.tolist(), "translation": cameras[row].translation.tolist()} for row in shown
        ],
        "all_cameras": len(cameras),
    }


def _evenly(count: int, most: int) -> np.ndarray:
    """At most `most` of the numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))

"""The demo: the whole path on bundled photographs, its uploads, and a page that tells what happened."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict

import numpy as np
from jaxtyping import UInt8

from veil.attacks.attack import Attempt
from veil.attacks.intersection.repeat import intersect
from veil.attacks.registry import named, unbounded
from veil.attacks.target import Effort, ReleasedImage, Target
from veil.audit.on_pictures import as_sift
from veil.audit.run import try_attacks
from veil.device.attacker import Attacker, knowledge_of
from veil.device.device import Device
from veil.device.doors import localize, map_images
from veil.device.protection import HideInWords, Protection
from veil.device.viewing import inverted, shown_query
from veil.errors import InputError
from veil.extraction.segments import vertical_of
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.atomic import write_bytes, write_text
from veil.files.attack_networks import bundled_inverter
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.features import write_features
from veil.files.maps.indexes import write_vocabulary
from veil.files.photographs.examples import HELD_OUT as HELD_OUT
from veil.files.photographs.examples import ExamplePlace, lund_door, other_place
from veil.files.photographs.pictures import find_pictures, read_picture, read_rgb
from veil.geometry.vanishing_point import Vertical
from veil.inversion.forward import PlainInverter
from veil.inversion.maps import points_map
from veil.inversion.whole import whole
from veil.matching import match_pairs
from veil.matching.inverted_index import index_map
from veil.matching.pairs import all_pairs
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.places.built_maps import MappingOptions
from veil.places.held_map import Map
from veil.places.maps import NoMap
from veil.places.poses.answer import Localization, NoPose
from veil.places.uploads import loaded
from veil.progress import Progress, Steps, ignore_progress, silent
from veil.randomness import Secret, fresh, memoized
from veil.report.demo import LineMapSection, page
from veil.report.viewer.content import Known, View, view_of_scene
from veil.report.viewer.page import page as viewer_page
from veil.scene import Scene
from veil.tiles.cutting import CutOptions
from veil.trials.form_answers import Variant, demo_variants
from veil.trials.held_out import HeldOutSetup, Query, TrialOutcome, TrialOutcomeJson, run_variants
from veil.trials.line_maps import MappableScene, line_views, map_lines
from veil.trials.reconstruction_run import Run, RunJson
from veil.trials.tile_exits import ExitStudy, ExitStudyJson, exit_study
from veil.wire import Upload, decode

VIEW = "view.html"
# Tiles that are small enough for a map of nine photographs to have several.
TILES = CutOptions(tile_bytes=64 << 10, asked=2)
REPEAT_M, REPEAT_FEATURES, REPEAT_TOLERANCE = 4, 200, 1e-4


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Input of the demo: `max_features` of each image, a folder of photographs of another place beside the bundled one
    (`strangers`), and how many pairs of images are matched at a time."""

    max_features: int = 1536
    strangers: Path | None = None
    workers: int = 2


class DemoJson(TypedDict):
    """Result of the demo."""

    queries: list[TrialOutcomeJson]
    strangers: list[TrialOutcomeJson]
    tiles: ExitStudyJson
    lines: RunJson


@dataclass(frozen=True, kw_only=True, eq=False)
class DemoResult:
    """Result of the demo: the outcome of each held-out photograph and of each stranger in every form and from tiles, the map
    from lines alone, and the diagonal of the box around the reference cameras (`extent`), which is the only scale that there
    is."""

    outcomes: tuple[TrialOutcome, ...]
    strangers: tuple[TrialOutcome, ...]
    tiles: ExitStudy
    lines: Run
    extent: float

    def as_json(self) -> DemoJson:
        """The stable record of docs/reference/json.md."""
        return {
            "queries": [outcome.as_json() for outcome in self.outcomes],
            "strangers": [outcome.as_json() for outcome in self.strangers],
            "tiles": self.tiles.as_json(),
            "lines": self.lines.as_json(),
        }


def run_demo(folder: Path, *, options: DemoOptions | None = None, steps: Steps[Progress] = silent) -> DemoResult:
    """Map nine bundled photographs and localize three others and strangers, raw and through every private form.

    Writes into `folder` the page `report.html`, the map in three dimensions (`view.html`), the uploads of the held-out
    photographs in a folder for each form, and their features (`features.h5`), for `veil audit` and `run_audit`. Raises
    InputError if raw features give no map.
    """
    options = options or DemoOptions()
    start = time.perf_counter()
    sift = SiftOptions(max_features=options.max_features)
    with _material(options.strangers, sift, steps) as material, tempfile.TemporaryDirectory(prefix="veil-demo-") as workdir:
        setup = HeldOutSetup(
            mapped={name: item for name, item in material.features.items() if name not in HELD_OUT},
            references=material.example.poses,
            codebook=bundled_codebook(),
            decoys=bundled_decoys(),
            # A secret of its own: the demo releases photographs under many profiles, which a client must never do.
            randomness=memoized(Secret.generate()),
            workdir=Path(workdir),
            workers=options.workers,
        )
        outcomes, strangers = _outcomes(setup, material, steps)
        tiles = _from_tiles([*outcomes, *strangers], material, steps)
        lines = _from_lines(material, options.workers, steps)
        extent = _extent(material.example)
        result = DemoResult(outcomes=outcomes, strangers=strangers, tiles=tiles, lines=lines.run, extent=extent)
        with steps("inverting the public map") as bar:
            view = demo_view(outcomes, material.features, lambda name: read_rgb(material.paths[name]), bar)
        with steps("attacking what was sent"):
            drawn = next((rgb for outcome in outcomes if (rgb := drawn_by_attacker(outcome)) is not None), None)
        html = page(
            outcomes,
            strangers,
            drawn=drawn,
            extent=extent,
            tiles=tiles,
            read_rgb=lambda name: read_rgb(material.paths[name]),
            repeat=_repeat(setup, material.features[HELD_OUT[0]]),
            lines=lines,
            seconds=time.perf_counter() - start,
            view=None if view is None else VIEW,
        )
        if view is not None:
            write_text(folder / VIEW, viewer_page(view).html)
    write_text(folder / "report.html", html)
    _write_releases(folder, outcomes, material)
    return result


@dataclass(frozen=True, kw_only=True)
class _Material:
    """The demo's photographs as features, and where each picture lies."""

    example: ExamplePlace
    features: dict[str, Features]
    strangers: dict[str, Features]
    gravity: dict[str, np.ndarray]
    paths: dict[str, Path]


@contextmanager
def _material(strangers_in: Path | None, sift: SiftOptions, steps: Steps[Progress]) -> Iterator[_Material]:
    with lund_door() as example, other_place() as elsewhere:
        ours = {path.name: path for path in find_pictures(example.folder)}
        theirs = {elsewhere.name: elsewhere}
        for path in find_pictures(strangers_in) if strangers_in else []:
            theirs[str(path) if path.name in ours or path.name in theirs else path.name] = path
        features, strangers, gravity = {}, {}, {}
        with steps("extracting") as bar:
            for done, (name, path) in enumerate([*ours.items(), *theirs.items()]):
                bar(done, len(ours) + len(theirs))
                if name in theirs:
                    strangers[name] = extract_sift(read_picture(path), sift)
                    continue
                picture = read_picture(path, camera=example.camera)
                features[name] = extract_sift(picture, sift)
                vertical = vertical_of(picture)
                if isinstance(vertical, Vertical):
                    gravity[name] = vertical.gravity.direction
            bar(len(ours) + len(theirs), len(ours) + len(theirs))
        yield _Material(example=example, features=features, strangers=strangers, gravity=gravity, paths=ours | theirs)


def _outcomes(
    setup: HeldOutSetup, material: _Material, steps: Steps[Progress]
) -> tuple[tuple[TrialOutcome, ...], tuple[TrialOutcome, ...]]:
    """Outcomes of the held-out photographs and of the strangers."""
    queries = [
        Query(name=n, features=material.features[n], reference=material.example.poses[n], gravity=material.gravity.get(n))
        for n in HELD_OUT
    ]
    others = [Query(name=n, features=f, reference=None) for n, f in material.strangers.items()]
    variants = demo_variants(len(setup.codebook))
    total = len(variants) * (len(queries) + len(others))
    done: list[TrialOutcome] = []
    with steps("localizing in every form") as bar:
        for outcome in run_variants(setup, [*queries, *others], variants):
            done.append(outcome)
            bar(len(done), total)
    known = tuple(outcome for outcome in done if outcome.query.reference is not None)
    return known, tuple(outcome for outcome in done if outcome.query.reference is None)


def _from_tiles(outcomes: Sequence[TrialOutcome], material: _Material, steps: Steps[Progress]) -> ExitStudy:
    """The same photographs, localized on the device in tiles of the public map, by each exit."""
    raw = [outcome for outcome in outcomes if outcome.variant.profile is None and outcome.variant.mechanism is None]
    scene = raw[0].scene
    assert isinstance(scene, Scene)  # the demo stops without a map of raw features
    with steps("localizing in tiles") as bar:
        return exit_study(scene, [item.query for item in raw], material.example.poses, TILES, progress=bar)


def _from_lines(material: _Material, workers: int, steps: Steps[Progress]) -> LineMapSection:
    """All photographs mapped from lines, gravity estimated from their own edges."""
    names = sorted(material.features)
    with steps("mapping from lines") as bar:
        forms = {name: publish(material.features[name]) for name in names}
        subject = MappableScene(
            name="lund_door",
            features=material.features,
            matches=match_pairs(forms, all_pairs(names), workers=workers, progress=bar),
            reference=material.example.poses,
            gravity=material.gravity,
            gravity_is_measured=True,
        )
        run = map_lines(subject, seed=0)
    shown = HELD_OUT[1]
    view = line_views(subject, seed=0)[shown]
    return LineMapSection(run=run, reference=material.example.poses, name=shown, view=view)


def _extent(example: ExamplePlace) -> float:
    """Diagonal of the box around the reference cameras: the only scale that the reference fixes."""
    centers = np.array([pose.center for pose in example.poses.values()])
    return float(np.linalg.norm(centers.max(axis=0) - centers.min(axis=0)))


def _repeat(setup: HeldOutSetup, features: Features) -> dict:
    """Release the same features twice, afresh and memoized, and count what the two releases together give away."""
    profile = Profile.paper(REPEAT_M, "sub-hybrid")
    few = _first(features, REPEAT_FEATURES)
    truth = publish(few).vectors.astype(np.float64)
    counts = {}
    for kind in ("fresh", "memoized"):
        sources = (fresh(), fresh()) if kind == "fresh" else (setup.randomness, setup.randomness)
        forms = [
            lift(few, profile=profile, compression=setup.codebook.compression, decoys=setup.codebook, randomness=s).form
            for s in sources
        ]
        intersection = intersect(forms)
        counts[kind] = int((np.linalg.norm(intersection.points - truth, axis=1) < REPEAT_TOLERANCE).sum())
    return {
        "features": len(few),
        "m": REPEAT_M,
        "tolerance": f"{REPEAT_TOLERANCE:g}",
        "recovered_fresh": counts["fresh"],
        "recovered_memoized": counts["memoized"],
    }


def demo_features(*, max_features: int = 1536, steps: Steps[Progress] = silent) -> dict[str, Features]:
    """Features of the bundled photographs that the demo maps, by name."""
    options = SiftOptions(max_features=max_features)
    features = {}
    with lund_door() as example, steps("extracting") as bar:
        paths = [path for path in find_pictures(example.folder) if path.name not in HELD_OUT]
        for done, path in enumerate(paths):
            bar(done, len(paths))
            features[path.name] = extract_sift(read_picture(path, camera=example.camera), options)
        bar(len(paths), len(paths))
    return features


def demo_messages(features: Mapping[str, Features], home: Path, *, steps: Steps[Progress] = silent) -> dict[str, bytes]:
    """Hardened messages of the demo's photographs, by name, released under a secret that is made in `home`."""
    device = Device(home)
    messages = {}
    with steps("releasing") as bar:
        for done, (name, item) in enumerate(features.items()):
            bar(done, len(features))
            messages[name] = device.release(item, purpose="map", name=name).message
        bar(len(features), len(features))
    return messages


def write_demo_map(features: Mapping[str, Features], folder: Path, *, workers: int = 2, steps: Steps[Progress] = silent) -> Map:
    """Write a public map of the demo's photographs, with an index for queries in words, and return it.

    It holds raw descriptors of these photographs, which are public anyway. Raises InputError if they give no map.
    """
    built = map_images(features, options=MappingOptions(workers=workers), steps=steps)
    if isinstance(built, NoMap):
        raise InputError(f"the bundled photographs give no map: {built.reason}", remedy=built.remedy)
    made = built.map.write(folder)
    write_vocabulary(folder, index_map(made.scene, bundled_codebook()))
    return made


def rehearse_words(features: Features, where: Map) -> Localization | NoPose:
    """Localize a photograph by words once and return the answer: the code that it compiles is kept for the first query."""
    with tempfile.TemporaryDirectory(prefix="veil-demo-") as home:
        message = Device(Path(home)).release(features, Protection(descriptors=HideInWords(epsilon=10.0))).message
    return localize(decode(message), where)


def _write_releases(folder: Path, outcomes: Sequence[TrialOutcome], material: _Material) -> None:
    """Messages of the held-out photographs to the public map, form by form, and their features, which stay."""
    for outcome in outcomes:
        variant = outcome.variant
        if outcome.message is None or variant.distance == "s2s":
            continue
        form = "words" if variant.profile is None else f"{variant.profile.name}-m{variant.profile.m}{'-lines' * variant.lines}"
        write_bytes(folder / "uploads" / form / f"{Path(outcome.query.name).stem}.veil", outcome.message)
    write_features(folder / "features.h5", [(name, material.features[name]) for name in HELD_OUT])


def _first(features: Features, count: int) -> Features:
    return Features(
        keypoints=features.keypoints[:count],
        descriptors=features.descriptors[:count],
        space=features.space,
        camera=features.camera,
        image_digest=features.image_digest,
    )


def demo_view(
    outcomes: Sequence[TrialOutcome],
    features: Mapping[str, Features],
    read_rgb: Callable[[str], np.ndarray],
    progress: Progress = ignore_progress,
) -> View | None:
    """The view of the demo's public map with the queries that were sent to it in hardened form; None if there is no such map.

    The photographs are bundled, and so public: the page holds them, and true keypoints, as those of a device.
    """
    own = [outcome for outcome in outcomes if _is_shown(outcome.variant)]
    scene = next((outcome.scene for outcome in own if isinstance(outcome.scene, Scene)), None)
    if scene is None:
        return None
    queries = [
        shown_query(outcome.query.name, loaded(decode(outcome.message)), outcome.pose)
        for outcome in own
        if outcome.message is not None and isinstance(outcome.pose, Localization)
    ]
    view = view_of_scene(scene, "veil demo: Door, Lund")
    images = [*view.images, *queries]
    known = {
        image.name: Known(photograph=read_rgb(image.name), keypoints=features[image.name].keypoints.astype(np.float64))
        for image in images
    }
    recovered = {name: [item] for name, item in inverted(Map(scene=scene), len(scene.images), progress).items()}
    return replace(view, images=images, known=known, recovered=recovered)


def drawn_by_attacker(outcome: TrialOutcome) -> UInt8[np.ndarray, "height width 3"] | None:
    """The picture that an attacker draws of one photograph sent in hardened form; None if it was sent in another one.

    The attacker has all that is public: the message, and the bundled pool, from which the demo draws its decoys. The attack
    `database` estimates the descriptors of all features, and the bundled network draws the whole photograph.
    """
    message = None if outcome.message is None else decode(outcome.message)
    if not isinstance(message, Upload) or not _is_shown(outcome.variant):
        return None
    knowledge = knowledge_of(Attacker(), [message])
    target = Target(
        image=ReleasedImage.of(message), rows=np.arange(len(message)), knowledge=knowledge, effort=Effort(), time=unbounded()
    )
    attempt = try_attacks(target, named("database"))[0].outcome
    if not isinstance(attempt, Attempt) or attempt.estimates is None:
        return None
    points = as_sift(attempt.estimates.points, message.form.space, knowledge)
    known = partial(points_map, keypoints=message.keypoints[attempt.rows], points=points)
    return whole(PlainInverter(bundled_inverter()), message.camera.width_px, message.camera.height_px, known)[0]


def _is_shown(variant: Variant) -> bool:
    """Whether queries of a variant are shown: those in subspaces with positions, sent to the public map."""
    return (
        variant.profile is not None and variant.profile.name == "hardened" and variant.distance == "p2s" and not variant.lines
    )

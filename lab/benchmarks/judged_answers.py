"""Answers of localization to held-out and adversarial queries in every form, in full precision, to compare two versions of it.

    python lab/benchmarks/judged_answers.py --sets planted -o before.jsonl
    python lab/benchmarks/judged_answers.py --sets lund_door castle-P19 --strangers sacre_coeur --keep maps/ -o before.jsonl
    python lab/benchmarks/judged_answers.py --compare before.jsonl after.jsonl

"planted" are the worlds of the tests: a place and its copies, collages of two views, crowds, prints, what a map knows in part,
and lines along gravity that leave the height open. Every other set is a folder of photographs with reference poses below
VEIL_DATA; a third of them is held out, and asked as they are, changed and forged (`veil evaluate queries --forged`). The forms:
raw features and hardened subspaces with positions or lines, among all images and among those that an index ranks; words with
positions, with positions and gravity, and with lines. One line a query and form tells the pose (bits of float64) or the reason,
and whether it is right.

`--compare` lists the answers that differ. Its exit code is 1 if a right answer is lost or a wrong one new.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil import Localization, LocalizeOptions, NoPose, WordOptions
from veil.cli.common import quiet_colmap
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.pictures import read_picture
from veil.forms import Form, Lines, Points
from veil.geometry.camera import GUESS, UNDISCLOSED, Camera
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.similarity import Similarity, pose_error
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize, privatize_words
from veil.places.held_map import Map, make_point_index, ranked_images
from veil.places.poses.by_distance import localize
from veil.places.poses.by_words import localize_words
from veil.randomness import seeded
from veil.scene import Scene
from veil.wire import LineUpload
from veil.wire.message import Message
from veil_lab.cli.evaluate.poses.queries import strange_pictures
from veil_lab.cli.evaluate.scene_arguments import extracted_features, reference_place
from veil_lab.files.scenes import read_scene
from veil_lab.studies.localization.forged_answers import EPSILON, FormLocalizer, M, form_localizer
from veil_lab.studies.localization.forged_queries import ForgedOptions, ForgedQuery, forged_queries, true_counterparts
from worlds import World, generator, project, unit, world
from worlds.copied_places import COUNT, QUERY, WORLD, City
from worlds.word_worlds import dictionary_of, lines_of, scene_of, with_down, words_of

DOWN = np.array([0.0, 1.0, 0.0])
NEAR, NEAR_DEG = 0.05, 5.0  # share of the extent of the reference's cameras (of photographs), and degrees
NEAR_PLANTED = 0.5  # of places six units deep
BY_DISTANCE = LocalizeOptions(workers=1)
SEARCH: dict[str, Any] = dict(min_iterations=500, max_iterations=20_000)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One query in one form, its true pose (None: it has none), and its answer."""

    group: str
    query: str
    form: str
    answer: Localization | NoPose
    error: tuple[float, float] | None
    limit: float
    has_pose: bool
    seconds: float

    def as_json(self) -> dict:
        """One line of the output."""
        right = self.error is not None and self.error[0] <= self.limit and self.error[1] <= NEAR_DEG
        answer = self.answer
        line: dict[str, Any] = {
            "key": f"{self.group} | {self.query} | {self.form}",
            "has_pose": self.has_pose,
            "verdict": "none" if isinstance(answer, NoPose) else "right" if right else "wrong",
            "inliers": answer.inliers,
            "log10_nfa": answer.log10_nfa.hex(),
            "seconds": round(self.seconds, 2),
        }
        if isinstance(answer, NoPose):
            return line | {"reason": answer.reason}
        pose = np.concatenate([answer.cam_from_world.rotation.ravel(), answer.cam_from_world.translation])
        variance = None if answer.covariance is None else float(np.trace(answer.covariance)).hex()
        line |= {"pose": pose.astype("<f8").tobytes().hex(), "covariance": variance, "turn": answer.turn_deviation_deg.hex()}
        line["rows"] = [answer.keypoint_rows.tolist(), answer.point_rows.tolist()]
        return line | {"error": self.error and [round(one, 4) for one in self.error]}


def main() -> int:
    """Write one line an answer, or compare two files of them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["planted"], help="planted, or folders below VEIL_DATA")
    parser.add_argument("--strangers", default="sacre_coeur", help="folder below VEIL_DATA (default %(default)s)")
    parser.add_argument("--draws", type=int, default=1, help="of each kind of forgery (default %(default)s)")
    parser.add_argument("--keep", type=Path, help="folder that keeps maps and queries between runs")
    parser.add_argument("--groups", nargs="+", default=list(PLANTED), choices=list(PLANTED), help="of the planted queries")
    parser.add_argument("--only-words", action="store_true", help="ask photographs in words alone")
    parser.add_argument("-o", "--output", type=Path, help="the answers, as JSON lines")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    parser.set_defaults(max_features=2000, first_octave=-1, workers=1, json_to_stdout=False)
    arguments = parser.parse_args()
    if arguments.compare:
        return compared(*arguments.compare)
    if arguments.output is None:
        parser.error("name the file of the answers with -o")
    quiet_colmap()
    with arguments.output.open("w") as file:
        for name in arguments.sets:
            for one in planted(arguments.groups) if name == "planted" else photographed(name, arguments):
                file.write(json.dumps(one.as_json()) + "\n")
                file.flush()
    return 0


def compared(before: Path, after: Path) -> int:
    """Print the answers that differ; returns 1 if one is lost or wrong that was not."""
    old, new = ({line["key"]: line for line in map(json.loads, path.open())} for path in (before, after))
    both = [key for key in old if key in new]
    print(f"{len(both)} answers in both, {len(old) - len(both)} only before, {len(new) - len(both)} only after")
    for label, lines in (("before", old), ("after", new)):
        counts = {name: sum(lines[key]["verdict"] == name for key in both) for name in ("right", "wrong", "none")}
        print(f"{label}: {counts}, {sum(lines[key]['seconds'] for key in both):.0f} s")
    worse = 0
    for key in both:
        a, b = ({name: value for name, value in lines[key].items() if name != "seconds"} for lines in (old, new))
        if a == b:
            continue
        lost = a["verdict"] == "right" and b["verdict"] != "right"
        wrong = b["verdict"] == "wrong" and a["verdict"] != "wrong"
        worse += lost or wrong
        print(f"{'WORSE ' * (lost or wrong)}{key}\n  before: {_said(a)}\n  after:  {_said(b)}")
    print(f"{worse} right answers lost or wrong ones new")
    return int(worse > 0)


def _said(line: dict) -> str:
    weight = f"{line['inliers']} inliers, log10 {float.fromhex(line['log10_nfa']):.2f}"
    return f"{line['verdict']}, {weight}, {line.get('reason') or line['error']}" + ("" if line["has_pose"] else ", has no pose")


def in_forms(
    camera: Camera,
    keypoints: np.ndarray,
    lines: Lines | None,
    form: Form,
    scene: Scene,
    ranked: Any,
    gravity: np.ndarray | None,
    words: tuple[Form, InvertedIndex, WordOptions] | None,
) -> Iterator[tuple[str, Localization | NoPose, float]]:
    """Answers to one query of planted worlds in all forms, with seconds."""
    shown: list[tuple[str, np.ndarray | Lines]] = [("points", keypoints), *([("lines", lines)] if lines is not None else [])]
    for name, seen in shown:
        for how, images in (("all", None), ("ranked", ranked)):
            if how == "all" or images is not None:
                yield _timed(f"raw {name}, {how}", localize, camera, seen, form, scene, ranked=images, options=BY_DISTANCE)
    if words is None:
        return
    sent, index, options = words
    guessed = replace(camera, focal=GUESS)
    forms: list[tuple[str, np.ndarray | Lines, np.ndarray | None, Camera]] = [
        ("words", keypoints, None, camera),
        ("words, focal guessed", keypoints, None, guessed),
        ("words with gravity", keypoints, gravity, camera),
        *([("words with lines", lines, None, camera)] if lines is not None else []),
    ]
    for name, seen, down, by in forms:
        if seen is None or (name == "words with gravity" and gravity is None):
            continue
        for how, count in (("alone", 0), ("compared", options.compared)):
            own = replace(options, compared=count)
            yield _timed(f"{name}, {how}", localize_words, by, seen, sent, scene, index, gravity=down, options=own)


def _timed(name: str, ask: Any, *given: Any, **more: Any) -> tuple[str, Localization | NoPose, float]:
    start = time.perf_counter()
    return name, ask(*given, **more), time.perf_counter() - start


def planted(groups: list[str]) -> Iterator[Asked]:
    """Answers to the queries of planted worlds."""
    for group in groups:
        for query, pose, answers in PLANTED[group]():
            for form, answer, seconds in answers:
                error = None
                if isinstance(answer, Localization) and pose is not None:
                    estimate = answer.cam_from_world
                    turn = rotation_angle_deg(estimate.rotation @ pose.rotation.T)
                    error = float(np.linalg.norm(estimate.center - pose.center)), float(turn)
                common: dict[str, Any] = {"answer": answer, "error": error, "limit": NEAR_PLANTED, "seconds": seconds}
                yield Asked(group=group, query=query, form=form, has_pose=pose is not None, **common)


Case = tuple[str, Rigid | None, Iterator[tuple[str, Localization | NoPose, float]]]


def _copies() -> Iterator[Case]:
    """A place that stands in the map several times, in whole or in part."""
    cities = {
        "whole copy": City(alike=COUNT, own_images=4),
        "whole copy, place known in part": City(alike=COUNT, own_images=3, own_share=0.5),
        "place known in two fifths": City(alike=COUNT, own_images=3, own_share=0.4),
        "two copies, one in half": City(alike=COUNT, alike_third=COUNT // 2, own_images=4),
        "strangers": City(alike=COUNT, own_images=3, own_share=0.5, strangers=10),
        "copy in two thirds": City(alike=2 * COUNT // 3),
        "copy in half, place seldom": City(alike=COUNT // 2, own_images=3),
        "copy in nine tenths": City(alike=9 * COUNT // 10),
        "nine lesser copies": City(alike=0, lesser=9),
        "no copy": City(alike=0),
        "place known in a fifth": City(alike=COUNT // 3, own_images=2, own_share=0.2),
    }
    for name, city in cities.items():
        descriptors = np.concatenate([city.looks(place) for place in (0, 1)])
        dictionary = dictionary_of(SimpleNamespace(descriptors=np.unique(descriptors, axis=0)), others=1000)  # type: ignore[arg-type]
        scene = with_down(city.scene, DOWN)
        index = index_map(scene, dictionary)
        for epsilon in (12.0, 6.0):
            sent = words_of(WORLD.form(QUERY), dictionary, epsilon=epsilon)
            upright = replace(WordOptions().upright, samples=20_000, kept=20, refined=10)
            options = WordOptions(retrieved=10, compared=10, threads=1, **SEARCH, upright=upright)
            gravity = WORLD.poses[QUERY].rotation @ DOWN
            for order in ("copy first", "place first") if epsilon == 12.0 else ("copy first",):
                ranked = sorted(scene.images, reverse=order == "place first")
                lines = lines_of(WORLD, QUERY)
                keypoints = WORLD.keypoints[QUERY]
                asked = in_forms(
                    WORLD.camera, keypoints, lines, WORLD.form(QUERY), scene, ranked, gravity, (sent, index, options)
                )
                yield f"{name}, {order}, epsilon {epsilon:g}", WORLD.poses[QUERY], asked


def _worded(place: World, form: Form, epsilon: float) -> tuple[Form, InvertedIndex, WordOptions]:
    dictionary = dictionary_of(place, others=600)
    scene = with_down(scene_of(place, without="02"), DOWN)
    upright = replace(WordOptions().upright, samples=50_000, kept=50, refined=20)
    options = WordOptions(retrieved=10, compared=5, threads=1, **SEARCH, upright=upright)
    assert isinstance(form, Points)
    return words_of(form, dictionary, epsilon=epsilon), index_map(scene, dictionary), options


def _case(name: str, place: World, keypoints: np.ndarray, form: Form, pose: Rigid | None, down: np.ndarray) -> Iterator[Case]:
    """One query of a planted world with positions and descriptors as given, at several epsilons of its words."""
    scene = with_down(scene_of(place, without="02"), DOWN)
    moved = replace(place, keypoints={**place.keypoints, "02": keypoints.astype(np.float32)})
    lines = replace(lines_of(moved, "02"), gravity=down)
    for epsilon in (10.0, 5.0):
        words = _worded(place, form, epsilon)
        asked = in_forms(place.camera, moved.keypoints["02"], lines, form, scene, None, down, words)
        yield f"{name}, epsilon {epsilon:g}", pose, (one for one in asked if epsilon == 10.0 or one[0].startswith("words"))


def _collages() -> Iterator[Case]:
    """Features of which a share is as one camera sees them and the others as another, with and without strange ones."""
    place = world("forged", points=400)
    points = place.points[place.visible["02"]]
    first, second = (project(place.poses[name], points, place.camera) for name in ("01", "04"))
    random = generator("shares of collages")
    order = random.permutation(len(points))
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        mask = np.isin(np.arange(len(points)), order[: round(share * len(points))])
        noisy = np.where(mask[:, None], first, second) + 0.3 * random.normal(size=first.shape)
        # Nine in ten of one camera are a photograph with a poster in it; below, no answer but none is right.
        pose = place.poses["01"] if share >= 0.9 else None
        yield from _case(f"collage {share:g}", place, noisy, place.form("02"), pose, place.poses["01"].rotation @ DOWN)
    few = order[:60]
    for share in (0.5, 0.8, 1.0):
        mask = np.arange(len(few)) < share * len(few)
        around = random.uniform([0, 0], [640, 480], (600, 2))
        shown = np.vstack([np.where(mask[:, None], first[few], second[few]), around])
        nowhere = unit(np.abs(random.normal(size=(600, 128)))).astype(np.float32)
        form = place.form("02").take(few)
        sent = Points(vectors=np.vstack([form.vectors, nowhere]), space=form.space)
        pose = place.poses["01"] if share >= 0.9 else None
        yield from _case(f"weak collage {share:g}", place, shown, sent, pose, place.poses["01"].rotation @ DOWN)


def _forged() -> Iterator[Case]:
    """Crowds, prints, few and strange features."""
    place = world("forged", points=400)
    keypoints, form, random = place.keypoints["02"].astype(np.float64), place.form("02"), generator("judged")
    down, pose = place.poses["02"].rotation @ DOWN, place.poses["02"]
    count = len(keypoints)
    yield from _case("true", place, keypoints, form, pose, down)
    for size in (20, 60, 120):
        yield from _case(f"crowd {size}", place, np.array([200.0, 150.0]) + size * random.random((count, 2)), form, None, down)
    for share in (0.3, 0.65, 0.78):
        yield from _case(f"print {share}", place, np.array([50.0, 60.0]) + share * keypoints, form, None, down)
    yield from _case("mirrored", place, np.array([640.0, 0.0]) + keypoints * [-1, 1], form, None, down * [-1.0, 1, 1])
    yield from _case("shuffled", place, keypoints[random.permutation(count)], form, None, down)
    for few in (15, 25, 40, 80):
        rows = random.permutation(count)[:few]
        around = random.uniform([0, 0], [640, 480], (300, 2))
        nowhere = unit(np.abs(random.normal(size=(300, 128)))).astype(np.float32)
        part = form.take(rows)
        sent = Points(vectors=np.vstack([part.vectors, nowhere]), space=form.space)
        yield from _case(f"{few} features among 300", place, np.vstack([keypoints[rows], around]), sent, pose, down)
    yield from _case("twice", place, np.vstack([keypoints, keypoints]), form.take(np.tile(np.arange(count), 2)), pose, down)


def _heights() -> Iterator[Case]:
    """Words with lines most of which follow gravity; of the others a share passes through the features, the rest anywhere."""
    place = world("forged", points=400)
    scene = with_down(scene_of(place, without="02"), DOWN)
    keypoints, pose = place.keypoints["02"].astype(np.float64), place.poses["02"]
    down = pose.rotation @ DOWN
    fx, fy, cx, cy = place.camera.params
    for along in (0.5, 0.8, 0.95):
        for right in (0.0, 0.05, 0.1, 0.2, 0.4, 1.0):
            random = generator(f"heights {along} {right}")
            aligned = random.random(len(keypoints)) < along
            moved = ~aligned & (random.random(len(keypoints)) >= right)
            shown = keypoints.copy()
            shown[moved] = random.uniform([0, 0], [640, 480], (int(moved.sum()), 2))
            lines = lines_of(replace(place, keypoints={**place.keypoints, "02": shown.astype(np.float32)}), "02")
            xy = (keypoints - [cx, cy]) / [fx, fy]
            normals = np.cross(np.hstack([xy, np.ones((len(xy), 1))]), down)
            normals /= np.linalg.norm(normals[:, :2], axis=1, keepdims=True)
            coefficients = np.where(aligned[:, None], normals, lines.coefficients).astype(np.float32)
            lines = replace(lines, coefficients=coefficients, aligned=aligned)
            sent, index, options = _worded(place, place.form("02"), 10.0)
            answers = [
                _timed("words with lines, alone", localize_words, place.camera, lines, sent, scene, index, options=options),
                _timed("raw lines, all", localize, place.camera, lines, place.form("02"), scene, options=BY_DISTANCE),
            ]
            # Where no line tells the height, no answer but none is right.
            yield f"{along:g} along gravity, {right:g} of the others right", pose if right else None, iter(answers)


def photographed(name: str, arguments: argparse.Namespace) -> Iterator[Asked]:
    """Answers to held-out photographs of a place as they are, changed and forged."""
    localizer, queries = _kept(name, arguments)
    fold = localizer.fold
    extent = float(np.ptp([pose.center for pose in fold.place.cam_from_world.values()], axis=0).max())
    ranks = {id(scene): Map(scene=scene) for scene in _scenes(localizer)}
    for where in () if arguments.only_words else ranks.values():
        make_point_index(where, threads=1)
    for query in queries:
        truth = None if query.shows is None else fold.place.cam_from_world[query.shows]
        down = fold.place.down.get(query.shows or "", DOWN)
        by_distance = () if arguments.only_words else _by_distance(localizer, query, down, ranks)
        for form, scene, answer, seconds in (*by_distance, *_in_words(localizer, query, down)):
            error = None
            alignment: Similarity | None = (
                fold.reference_from_map if scene is localizer.public else localizer.reference_from_private
            )
            if isinstance(answer, Localization) and truth is not None and alignment is not None:
                error = pose_error(answer.cam_from_world, truth, alignment)
            common: dict[str, Any] = {"answer": answer, "error": error, "limit": NEAR * extent, "seconds": seconds}
            yield Asked(group=name, query=f"{query.kind} {query.name}", form=form, has_pose=truth is not None, **common)


def _scenes(localizer: FormLocalizer) -> list[Scene]:
    return [localizer.public, *([] if localizer.private is None else [localizer.private])]


def _kept(name: str, arguments: argparse.Namespace) -> tuple[FormLocalizer, list[ForgedQuery]]:
    """Maps and queries of one place, from the folder `--keep` if it holds them."""
    path = None if arguments.keep is None else arguments.keep / f"{Path(name).name}-{arguments.draws}.pickle"
    if path is not None and path.exists():
        return pickle.loads(path.read_bytes())  # written and read by this benchmark alone
    root = Path(os.environ["VEIL_DATA"])
    scene = read_scene(root / name)
    place = reference_place(
        scene, extracted_features(scene, max_features=arguments.max_features, first_octave=arguments.first_octave)
    )
    options = ForgedOptions(draws=arguments.draws)
    photographs = {one: read_picture(scene.pictures[one], camera=scene.cameras[one]) for one in place.features}
    with tempfile.TemporaryDirectory() as workdir:
        localizer = form_localizer(place, bundled_codebook(), bundled_decoys(), Path(workdir), options)
    strangers = strange_pictures(root / arguments.strangers)
    queries = [
        *forged_queries(scene.name, photographs, strangers, options),
        *true_counterparts(scene.name, photographs, localizer.fold.held_out, options),
    ]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps((localizer, queries)))
    return localizer, queries


def _by_distance(
    localizer: FormLocalizer, query: ForgedQuery, down: np.ndarray, ranks: dict[int, Map]
) -> Iterator[tuple[str, Scene, Localization | NoPose, float]]:
    """Answers to one photograph in raw features and in subspaces."""
    features, public, book = query.features, localizer.public, localizer.codebook
    where = ranks[id(public)]
    sent = publish(features)
    for how in ("all", "ranked"):
        ranked = ranked_images(where, sent, book, threads=1) if how == "ranked" else None
        camera, keypoints = features.camera, features.keypoints
        yield _with(
            public, _timed(f"raw, {how}", localize, camera, keypoints, sent, public, ranked=ranked, options=BY_DISTANCE)
        )
    upload: Message
    for name, lines, scene in (
        ("subspaces", None, public),
        ("subspaces, private map", None, localizer.private),
        ("subspaces with lines", HideInLines(gravity=down), public),
    ):
        if scene is None:
            continue
        upload = privatize(
            features,
            profile=Profile.hardened(quantized=features.is_quantized),
            compression=book.compression,
            decoys=localizer.decoys,
            randomness=seeded(f"forged {query.place} {query.kind} {query.name}"),
            lines=lines,
        ).upload
        shown = upload.lines if isinstance(upload, LineUpload) else upload.keypoints
        codebook = book if scene.is_public else None
        for how in ("all", "ranked"):
            ranked = ranked_images(ranks[id(scene)], upload.form, codebook, threads=1) if how == "ranked" else None
            more = {"codebook": codebook, "ranked": ranked, "options": BY_DISTANCE}
            yield _with(scene, _timed(f"{name}, {how}", localize, upload.camera, shown, upload.form, scene, **more))


def _in_words(
    localizer: FormLocalizer, query: ForgedQuery, down: np.ndarray
) -> Iterator[tuple[str, Scene, Localization | NoPose, float]]:
    mechanism = SubsetMechanism(dictionary_size=len(localizer.dictionary), epsilon=EPSILON, m=M)
    features: Features = query.features
    upright = replace(WordOptions().upright, samples=300_000)
    options = WordOptions(**{**SEARCH, "min_iterations": 4000}, threads=1, retrieved=5, compared=5, upright=upright)
    for name, lines, gravity in (
        ("words", None, None),
        ("words with gravity", None, down),
        ("words with lines", HideInLines(gravity=down), None),
    ):
        upload = privatize_words(
            features,
            mechanism=mechanism,
            dictionary=localizer.dictionary,
            randomness=seeded(f"forged {query.place} {query.kind} {query.name}"),
            lines=lines,
        ).upload
        shown: np.ndarray | Lines = upload.lines if isinstance(upload, LineUpload) else upload.keypoints
        # A guessed focal length counts as known: else another search would be asked, the one without gravity.
        camera = upload.camera if gravity is None else replace(upload.camera, focal=UNDISCLOSED)
        more = {"gravity": gravity, "options": options}
        given = camera, shown, upload.form, localizer.public, localizer.vocabulary
        yield _with(localizer.public, _timed(name, localize_words, *given, **more))


def _with(scene: Scene, timed: tuple[str, Localization | NoPose, float]) -> tuple[str, Scene, Localization | NoPose, float]:
    name, answer, seconds = timed
    return name, scene, answer, seconds


PLANTED: dict[str, Callable[[], Iterator[Case]]] = {
    "copies": _copies,
    "collages": _collages,
    "forged": _forged,
    "heights": _heights,
}

if __name__ == "__main__":
    sys.exit(main())

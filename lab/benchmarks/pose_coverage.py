"""Coverage: how often does the 95 % region that an answer claims hold the true pose, by form and by what is wrong with a query?

    python lab/benchmarks/pose_coverage.py --quick
    python lab/benchmarks/pose_coverage.py --record whole.jsonl --figure pose_coverage.png

The oracle is the simulated city (docs/theory/city.md): the map has true poses and true points, so that all of an error is the
query's. Even images are the map, as raw features, and odd ones are asked. One factor differs from the usual at a time:

- focal length: off by a factor exp(N(0, s)) with s of 0, 5, 10 and 20 %, and the device states that deviation (1 % for 0),
  which a message says in classes (20 % is a guess there); "undisclosed" is exact and says 5 %, "guess" is COLMAP's guess of
  1.2 times the longer side;
- size: the same camera with half and a quarter of the pixels a side;
- JPEG 20: a city has no pixels, so keypoints move, descriptors change and features vanish as they were measured to do on
  lund_door, between photographs and their copies at that quality.

An answer's position is covered if the Mahalanobis distance of its center under the answer's covariance is within the 95 %
quantile. So is its turn, or, without a covariance, if it is within that quantile times `turn_deviation_deg`. Columns: poses of
asked queries; covered positions and turns, with the exact binomial interval (Clopper and Pearson 1934) and whether it holds
95 %; poses off by more than 0.5 m or 2 degrees that lie outside of the region; medians of error and of the region's radius
towards the truth, in millimeters; processor seconds of one query. `--record` appends a line for each query; queries that
stand there are not asked again.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city import simulated
from mirrored import message

import veil
from veil.cli.common import quiet_colmap
from veil.device.doors import published
from veil.geometry.camera import FocalPrior, guessed, resized
from veil.geometry.rigid import Rigid, center_covariance
from veil.mechanisms.public import publish
from veil.places.held_map import Map
from veil.places.localization import localize_loaded
from veil.report.figures import SERIES, drawn
from veil.scene import MappedImage, Scene
from veil.threads import settle
from veil_lab.city.images import PHONE, City, CityImage
from veil_lab.studies.localization.answer_counts import LEVEL, quantile, squared_distance

FORMS = ("raw", "subspaces", "lines", "words", "words with gravity", "words with lines", "positions")
FOCAL = {"focal 0 %": 0.0, "focal 5 %": 0.05, "focal 10 %": 0.1, "focal 20 %": 0.2}
SIZES = {"size 1/2": 2, "size 1/4": 4}
UNDISCLOSED, GUESS, JPEG = "undisclosed", "guess", "JPEG 20"
CONDITIONS = (*FOCAL, UNDISCLOSED, GUESS, *SIZES, JPEG)
NEAR_M, NEAR_DEG = 0.5, 2.0
# Least deviation that a message says of a focal length.
CALIBRATED = 0.01
EPSILON = 10.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One query: what was asked and answered.

    - `error_m`, `error_deg`: of the pose; None if there is none.
    - `position`, `turn`: squared Mahalanobis distances of the truth over the 95 % quantile, so that 1 is the region's border;
      None if there is no pose, or if it claims no region.
    - `reason`: why there is no pose, or "".
    """

    form: str
    condition: str
    query: int
    error_m: float | None = None
    error_deg: float | None = None
    position: float | None = None
    turn: float | None = None
    inliers: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share of covered poses with its exact 95 % interval."""

    covered: int
    count: int

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of Clopper and Pearson."""
        k, n = self.covered, self.count
        low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
        return low, float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0

    @property
    def verdict(self) -> str:
        """Whether the interval holds 95 %: "holds", or "below" or "above" it; "none" without poses."""
        low, high = self.interval
        if not self.count:
            return "none"
        return "below" if high < LEVEL else "above" if low > LEVEL else "holds"

    def __str__(self) -> str:
        low, high = self.interval
        if not self.count:
            return "-"
        return f"{self.covered} of {self.count} ({100 * low:.0f} to {100 * high:.0f} %, {self.verdict})"


def outcome(form: str, condition: str, query: int, answer: object, truth: Rigid, seconds: float = 0.0) -> Outcome:
    """An answer against the truth."""
    if not isinstance(answer, veil.Localization):
        reason = str(getattr(answer, "reason", ""))
        return Outcome(form=form, condition=condition, query=query, seconds=seconds, reason=reason)
    pose, covariance = answer.cam_from_world, answer.covariance
    turn = rotation_vector(truth.rotation @ pose.rotation.T)
    if covariance is None:
        position = None
        turned = float(turn @ turn) / math.radians(answer.turn_deviation_deg) ** 2
    else:
        position = squared_distance(truth.center - pose.center, center_covariance(pose, covariance)) / quantile(3)
        turned = squared_distance(turn, covariance[:3, :3])
    return Outcome(
        form=form,
        condition=condition,
        query=query,
        error_m=float(np.linalg.norm(truth.center - pose.center)),
        error_deg=math.degrees(float(np.linalg.norm(turn))),
        position=position,
        turn=turned / quantile(3),
        inliers=answer.inliers,
        seconds=seconds,
    )


def rotation_vector(rotation: Float64[np.ndarray, "3 3"]) -> Float64[np.ndarray, "3"]:
    """Axis times angle in radians of a rotation by less than half a turn."""
    odd = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]]) / 2
    sine = float(np.linalg.norm(odd))
    angle = math.atan2(sine, (float(np.trace(rotation)) - 1) / 2)
    return odd * (angle / sine) if sine > 0 else odd


def rate(values: Iterable[float | None]) -> Rate:
    """Coverage of the regions whose borders are at 1; None claims no region and does not count."""
    known = [value for value in values if value is not None]
    return Rate(covered=sum(value <= 1 for value in known), count=len(known))


def is_wrong(one: Outcome) -> bool:
    """Whether a pose is far off and its region does not say so; a pose without a covariance is far off by its meters alone."""
    if one.error_m is None or one.error_deg is None:
        return False
    far_m = one.error_m > NEAR_M and (one.position is None or one.position > 1)
    return far_m or (one.error_deg > NEAR_DEG and (one.turn is None or one.turn > 1))


def row(form: str, condition: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The facts of one condition."""
    posed = [one for one in outcomes if one.error_m is not None]
    radii = [one.error_m / math.sqrt(one.position) for one in posed if one.position and one.error_m is not None]
    return {
        "form": form,
        "condition": condition,
        "poses": len(posed),
        "asked": len(outcomes),
        "position": rate(one.position for one in posed),
        "turn": rate(one.turn for one in posed),
        "wrong": sum(is_wrong(one) for one in posed),
        "error_mm": round(1000 * float(np.median([one.error_m for one in posed])), 1) if posed else None,
        "radius_mm": round(1000 * float(np.median(radii)), 1) if radii else None,
        "seconds": round(sum(one.seconds for one in outcomes) / max(1, len(outcomes)), 2),
    }


def table(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Rows of all conditions, and of each form and everything pooled."""
    rows = []
    forms = [form for form in FORMS if any(one.form == form for one in outcomes)]
    for form in forms:
        own = [one for one in outcomes if one.form == form]
        rows += [
            row(form, condition, part)
            for condition in CONDITIONS
            if (part := [one for one in own if one.condition == condition])
        ]
    rows += [row(form, "pooled", [one for one in outcomes if one.form == form]) for form in forms]
    return [*rows, row("pooled", "pooled", outcomes)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Changes:
    """Changes of SIFT features by compression: shifts (px), differences of descriptors, and the share of features that stay."""

    shifts_px: Float64[np.ndarray, "_ 2"]
    differences: np.ndarray
    kept: float

    @staticmethod
    def measured(quality: int = 20, least_sigma_px: float = 1.8) -> Changes:
        """Changes on the photographs of lund_door: the same feature is the nearest one by place, scale and direction."""
        from PIL import Image

        shifts, differences, total = [], [], 0
        for path in sorted((Path(os.environ["VEIL_DATA"]) / "lund_door" / "images").iterdir())[:6]:
            photograph, copy = Image.open(path).convert("RGB"), io.BytesIO()
            photograph.save(copy, format="JPEG", quality=quality)
            one, two = (
                veil.extract(veil.Picture.of(np.asarray(picture), camera=guessed(*picture.size)))
                for picture in (photograph, Image.open(copy).convert("RGB"))
            )
            assert one.scales is not None
            near = _same(one, two)
            large = np.flatnonzero(one.scales >= least_sigma_px)
            stays = large[near[large] >= 0]
            total += len(large)
            shifts.append((two.keypoints[near[stays]] - one.keypoints[stays]).astype(np.float64))
            differences.append(two.descriptors[near[stays]].astype(np.int16) - one.descriptors[stays].astype(np.int16))
        count = sum(map(len, shifts))
        return Changes(shifts_px=np.concatenate(shifts), differences=np.concatenate(differences), kept=count / total)

    def of(self, features: veil.Features, random: np.random.Generator) -> veil.Features:
        """The features as a compressed copy of the picture would give them."""
        stay = np.flatnonzero(random.uniform(size=len(features.keypoints)) < self.kept)
        drawn_rows = random.integers(len(self.shifts_px), size=len(stay))
        camera = features.camera
        places = features.keypoints[stay] + self.shifts_px[drawn_rows]
        kept = features.take(stay)
        changed = np.clip(kept.descriptors.astype(np.int16) + self.differences[drawn_rows], 0, 255).astype(np.uint8)
        return replace(
            kept,
            keypoints=np.clip(places, 0, [camera.width_px, camera.height_px]).astype(np.float32),
            descriptors=changed,
        )


def _same(one: veil.Features, two: veil.Features) -> np.ndarray:
    """Row in `two` of each feature of `one`, or -1: within 3 px, a third of an octave and 20 degrees."""
    from scipy.spatial import cKDTree

    assert one.scales is not None and two.scales is not None and one.orientations is not None and two.orientations is not None
    gap, near = cKDTree(two.keypoints).query(one.keypoints, k=4, distance_upper_bound=3.0)
    safe = np.minimum(near, len(two.keypoints) - 1)
    octaves = np.abs(np.log2(two.scales[safe] / one.scales[:, None]))
    turn = np.abs((two.orientations[safe] - one.orientations[:, None] + math.pi) % (2 * math.pi) - math.pi)
    fits = np.isfinite(gap) & (octaves < 1 / 3) & (turn < math.radians(20))
    first = fits.argmax(axis=1)
    return np.where(fits.any(axis=1), safe[np.arange(len(safe)), first], -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """A city's map with true poses and points, and the city itself."""

    city: City
    where: Map
    seed: int

    @staticmethod
    def made(seed: int, images: int, features: int) -> Place:
        """The map of the even ones among the first images of a city."""
        city = simulated(seed, features=features)
        mapped = [city.image(number) for number in range(0, images, 2)]
        seen, counts = np.unique(np.concatenate([image.landmarks for image in mapped]), return_counts=True)
        known = seen[(counts >= 2) & (seen >= 0)]
        scene = Scene(
            images={image.name: _mapped(image, known) for image in mapped},
            points=city.points(known),
            mean_reprojection_error_px=1.0,
            measured_down=np.array([0.0, 0.0, -1.0]),
        )
        return Place(city=city, where=Map(scene=scene), seed=seed)

    def near(self, truth: Rigid) -> list[str]:
        """The two images of the map that stand nearest."""
        images = self.where.scene.images
        return sorted(images, key=lambda name: float(np.linalg.norm(images[name].cam_from_world.center - truth.center)))[:2]


def _mapped(image: CityImage, known: np.ndarray) -> MappedImage:
    held = np.flatnonzero(np.isin(image.landmarks, known))
    held = held[np.unique(image.landmarks[held], return_index=True)[1]]  # an image has one feature of a point
    return MappedImage(
        name=image.name,
        camera=image.features.camera,
        cam_from_world=image.cam_from_world,
        keypoints=image.features.keypoints[held],
        point_rows=np.searchsorted(known, image.landmarks[held]).astype(np.int64),
        form=publish(image.features.take(held)),
    )


def changed(place: Place, number: int, condition: str, changes: Changes | None) -> tuple[CityImage, veil.Features]:
    """Image `number` of the city under a condition, and its features with the camera that its device states."""
    city = place.city
    if condition in SIZES:
        shrunk = resized(PHONE, PHONE.width_px // SIZES[condition], PHONE.height_px // SIZES[condition])
        city = replace(city, options=replace(city.options, camera=shrunk))
    image = city.image(number)
    random = np.random.default_rng([place.seed, CONDITIONS.index(condition), number])
    features, camera = image.features, image.features.camera
    if condition == JPEG and changes is not None:
        features = changes.of(features, random)
    deviation = 0.05 if condition == UNDISCLOSED else max(CALIBRATED, FOCAL.get(condition, 0.0))
    factor = math.exp(random.normal(0.0, FOCAL[condition])) if condition in FOCAL else 1.0
    stated = replace(
        camera,
        params=(camera.params[0] * factor, *camera.params[1:]),
        focal=FocalPrior(origin="given", deviation=deviation),
    )
    if condition == GUESS:
        stated = guessed(camera.width_px, camera.height_px)
    return image, replace(features, camera=stated)


def asked(place: Place, device: veil.Device, form: str, condition: str, number: int, changes: Changes | None) -> Outcome:
    """The outcome of one query."""
    image, features = changed(place, number, condition, changes)
    sent = features if form == "raw" else message(device, features, form, image.gravity.direction, EPSILON)
    query = published(sent)
    near = place.near(image.cam_from_world) if form == "positions" else None
    begun = time.process_time()
    answer = localize_loaded(query, place.where, near=near)
    return outcome(form, condition, number, answer, image.cam_from_world, time.process_time() - begun)


def queries(given: argparse.Namespace) -> list[int]:
    """Numbers of the queries, spread over the images that are not the map's."""
    odd = np.arange(1, given.images, 2)
    return odd[np.unique(np.linspace(0, len(odd) - 1, min(given.queries, len(odd))).astype(int))].tolist()


class Asker:
    """Asks queries of one place by a device of its own; its secret lasts as long as the process."""

    def __init__(self, given: argparse.Namespace) -> None:
        """Make the place."""
        self.place = Place.made(given.seed, given.images, given.features)
        self.changes = Changes.measured() if JPEG in given.conditions else None
        self.folder = tempfile.TemporaryDirectory()
        self.device = veil.Device(Path(self.folder.name) / "home")

    def __call__(self, question: tuple[str, str, int]) -> Outcome:
        """The outcome of one query."""
        return asked(self.place, self.device, *question, self.changes)


_askers: list[Asker] = []


def _begin(given: argparse.Namespace) -> None:
    settle()
    quiet_colmap()
    _askers.append(Asker(given))


def _ask(question: tuple[str, str, int]) -> Outcome:
    return _askers[0](question)


def measured(given: argparse.Namespace, done: set[tuple[str, str, int]]) -> Iterator[Outcome]:
    """Outcomes of all queries that are not done, in any order; each query is one of all forms and conditions."""
    questions = [
        question
        for number in queries(given)
        for form in given.forms
        for condition in given.conditions
        if (question := (form, condition, number)) not in done
    ]
    pool = ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(given,))
    try:
        for future in as_completed([pool.submit(_ask, question) for question in questions]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """True errors of positions against the radius of the 95 % region towards the truth, one panel a form."""
    forms = [form for form in FORMS if any(one.form == form and one.position for one in outcomes)]
    colors = dict(zip(CONDITIONS, (*SERIES, *SERIES[:2]), strict=True))
    marks = dict(zip(CONDITIONS, "ooooss^^D", strict=True))
    columns = min(3, len(forms))
    rows = -(-len(forms) // columns)
    with drawn(path, rows, columns, size=(3.4 * columns, 3.2 * rows + 0.6), sharex=True, sharey=True) as (figure, panels):
        limits = np.array([1e-4, 1e2])
        for form, axes in zip(forms, panels.flat, strict=False):
            for condition in CONDITIONS:
                pairs = [
                    (one.error_m / math.sqrt(one.position), one.error_m)
                    for one in outcomes
                    if one.form == form and one.condition == condition and one.position and one.error_m
                ]
                if pairs:
                    axes.plot(
                        *zip(*pairs, strict=True), marks[condition], color=colors[condition], ms=3, label=condition, ls=""
                    )
            axes.plot(limits, limits, "k-", lw=0.8)
            axes.set(xscale="log", yscale="log", title=form, xlim=limits, ylim=limits)
        for axes in panels.flat[len(forms) :]:
            axes.set_visible(False)
        for axes in panels[-1]:
            axes.set_xlabel("radius of the 95 % region, m")
        for axes in panels[:, 0]:
            axes.set_ylabel("true error, m")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS[:-1]))
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument("--queries", type=int, default=24, help="of each form and condition (default %(default)s)")
    parser.add_argument("--images", type=int, default=80, help="of the city, of which half are the map (default %(default)s)")
    parser.add_argument("--features", type=int, default=400, help="of an image, at most (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="queries asked at a time (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two queries, without words: about a minute")
    parser.add_argument("--record", type=Path, metavar="JSONL", help="append a line for each query, and go on where it ends")
    parser.add_argument("--seconds", type=float, default=math.inf, help="ask no further query after this time")
    parser.add_argument("--figure", type=Path, help="write this picture")
    given = parser.parse_args()
    if given.quick:
        given.queries, given.forms = 2, [form for form in given.forms if "words" not in form]
    recorded = given.record.read_text().splitlines() if given.record and given.record.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in recorded]
    begun = time.monotonic()
    for one in measured(given, {(one.form, one.condition, one.query) for one in outcomes}):
        outcomes.append(one)
        if given.record:
            with given.record.open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")
        if time.monotonic() - begun > given.seconds:
            break
    rows = table(outcomes)
    print(*rows[0], sep=" | ")
    print(*["---"] * len(rows[0]), sep=" | ")
    for facts in rows:
        print(*("-" if cell is None else cell for cell in facts.values()), sep=" | ")
    print(f"processor seconds of all queries: {sum(one.seconds for one in outcomes):.0f}")
    if given.figure:
        draw(outcomes, given.figure)


if __name__ == "__main__":
    main()

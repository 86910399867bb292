"""Pictures of releases: inversions of what attacks recovered, beside the inversion of the raw features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from veil.attacks.attack import Attack, Attempt
from veil.attacks.claims import Estimates
from veil.attacks.registry import named, unbounded
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.attacks.time_budget import TimeBudget
from veil.audit.run import Examined, try_attacks, work_of
from veil.features import Features
from veil.forms import Subsets, Subspaces
from veil.inversion.maps import Frame, Inverts, Kind, SparseMap, back_projected, points_map, subspaces_map, words_map
from veil.inversion.quality import OptionalQualityJson, quality
from veil.inversion.whole import whole
from veil.mechanisms.public import publish
from veil.one_line import one_line
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.space import Space
from veil.wire.message import Upload

# Attacks that are cheap enough to run on every feature of a picture; the lattice attack is, too, where nothing is compressed.
CHEAP = ("nearest, projected", "database")
# The map of what is known inside a square of the photograph.
MapOf = Callable[[Frame], SparseMap]
LINES = ("line neighborhood", "line neighbors", "line density")
UNPROTECTED = "raw features, had they been sent"
# Work of drawing a picture, in the unit of `veil.audit.run.work_of`.
PICTURE_WORK = 0.5


class _OfReleaseJson(TypedDict):
    release: str
    attack: str
    features: int


class DrawnPictureJson(_OfReleaseJson, OptionalQualityJson):
    """A picture of a release; its quality is None without the photograph."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnPicture:
    """Picture `rgb` of one `release`, drawn from what `attack` recovered.

    `rgb` shows the whole photograph, its shorter side 256 px. Of its central square are `features`, the number of pixels of
    the sparse map that hold a feature. Compared with the photograph, `mae` is the mean absolute error in [0, 1], `ssim` the
    structural similarity in [-1, 1] and `psnr` the peak signal-to-noise ratio in dB; they are None without it.
    """

    release: str
    attack: str
    features: int
    rgb: UInt8[np.ndarray, "height width 3"]
    mae: float | None = None
    ssim: float | None = None
    psnr: float | None = None

    __repr__ = one_line

    def as_json(self) -> DrawnPictureJson:
        """Stable JSON record, as docs/reference/json.md describes it, without the picture."""
        return {
            "release": self.release,
            "attack": self.attack,
            "features": self.features,
            "mae": self.mae,
            "ssim": self.ssim,
            "psnr": self.psnr,
        }


def reconstructions(
    item: Examined,
    knowledge: Knowledge,
    inverters: Mapping[Kind, Inverts],
    *,
    effort: Effort | None = None,
    features: Features | None = None,
    photograph: UInt8[np.ndarray, "_ _ 3"] | None = None,
    time: TimeBudget | None = None,
    progress: StepProgress = ignore_steps,
) -> list[DrawnPicture]:
    """Pictures of one release: of the raw features, of what attacks recovered, and by direct inversion of the release.

    `inverters` holds a network for each kind of map: "raw" for the first two, the kind of the form for the last. At most
    `effort.pictured` features are drawn, the same for every picture. `features` and `photograph` are the originals, where they
    are known; the picture of raw features needs the former. The list is empty for descriptors other than SIFT.
    """
    message = item.message
    if message.form.space.descriptor != "sift":
        return []
    size = message.camera.width_px, message.camera.height_px
    frame = Frame(width=size[0], height=size[1])
    original = None if photograph is None else frame.crop(photograph)
    again = _attacks_again(item)
    # One picture of the raw features at most, one of what each attack recovered, and one by direct inversion.
    count = StepCount(progress, work_of(again) + PICTURE_WORK * (2 + (len(again) or len(item.attempts))))
    pictures = []
    for attack, kind, map_of in _maps(item, frame, knowledge, inverters, effort or Effort(), features, count, time):
        count.begin(f"{item.name} picture", PICTURE_WORK)
        rgb, central = whole(inverters[kind], *size, map_of)
        measured = {} if original is None else vars(quality(original, central))
        pictures.append(DrawnPicture(release=item.name, attack=attack, features=len(map_of(frame)), rgb=rgb, **measured))
    return pictures


def _maps(
    item: Examined,
    frame: Frame,
    knowledge: Knowledge,
    inverters: Mapping[Kind, Inverts],
    effort: Effort,
    features: Features | None,
    count: StepCount,
    time: TimeBudget | None,
) -> Iterator[tuple[str, Kind, MapOf]]:
    """Names, kinds and sparse maps of all pictures of one release that `inverters` can draw."""
    message = item.message
    rows = replace(effort, features=effort.pictured).rows(len(message), item.name)
    if "raw" in inverters:
        if features is not None and item.truth is not None and features.space.dim == 128:
            sent = item.truth.rows[rows]
            points = as_sift(publish(features).vectors[sent].astype(np.float64), features.space, knowledge)
            yield UNPROTECTED, "raw", partial(points_map, keypoints=features.keypoints[sent], points=points)
        everywhere = _places(item)
        for attack, attacked, estimates in _estimates(item, rows, knowledge, effort, count, time):
            places = everywhere[attacked]
            placed = np.isfinite(places).all(axis=1)
            points = as_sift(estimates.points, message.form.space, knowledge)
            yield attack, "raw", partial(points_map, keypoints=places[placed], points=points[placed])
    if isinstance(message, Upload):
        direct = _direct(message, rows, knowledge)
        if direct is not None and direct(frame).kind in inverters:
            yield "direct inversion", direct(frame).kind, direct


def _attacks_again(item: Examined) -> tuple[Attack, ...]:
    """The attacks that run again on the features of a picture; none on words, which all are attacked already."""
    form = item.message.form
    if isinstance(form, Subsets):
        return ()
    return named(*CHEAP) if form.space.codebook else named("lattice", *CHEAP)


def _estimates(
    item: Examined,
    rows: Int64[np.ndarray, "drawn"],
    knowledge: Knowledge,
    effort: Effort,
    count: StepCount,
    time: TimeBudget | None,
) -> Iterator[tuple[str, Int64[np.ndarray, "attacked"], Estimates]]:
    """Names of attacks, the rows that they attacked, and their estimates of the descriptors, for the features `rows`.

    Estimates from words are at hand already. Subspaces were attacked in part only, so attacks on them run again, on as many of
    `rows` as there is time for.
    """
    form = item.message.form
    if isinstance(form, Subsets):
        for attack, attempt in item.attempts:
            if attack.units == "word" and attempt.estimates is not None and len(attempt.rows) == len(form):
                yield attempt.label, rows, attempt.estimates.take(rows)
        return
    attacks = _attacks_again(item)
    target = Target(
        image=ReleasedImage.of(item.message), rows=rows, knowledge=knowledge, effort=effort, time=time or unbounded()
    )
    progress = count.part(work_of(attacks), f"{item.name} ", f", {len(rows)} features")
    for tried in try_attacks(target, attacks, progress):
        if isinstance(tried.outcome, Attempt) and tried.outcome.estimates is not None:
            yield tried.outcome.label, tried.outcome.rows, tried.outcome.estimates


def _places(item: Examined) -> Float64[np.ndarray, "features 2"]:
    """Positions (pixels) of the keypoints as sent, or as attacks on lines estimate them; NaN where none of these decides."""
    message = item.message
    if isinstance(message, Upload):
        return message.keypoints.astype(np.float64)
    places = np.full((len(message), 2), np.nan)
    for name in reversed(LINES):
        for attack, attempt in item.attempts:
            if attack.name == name and attempt.estimates is not None:
                known = attempt.estimates.decided
                places[attempt.rows[known]] = attempt.estimates.points[known]
    return places


def _direct(message: Upload, rows: Int64[np.ndarray, "drawn"], knowledge: Knowledge) -> MapOf | None:
    """Sparse map of the release itself; None if no network can read it.

    Networks read neither compressed descriptors nor RootSIFT, and words only with their dictionary.
    """
    form, keypoints = message.form.take(rows), message.keypoints[rows]
    if form.space.codebook or form.space.normalization != "L2":
        return None
    if isinstance(form, Subspaces):
        return partial(subspaces_map, keypoints=keypoints, form=form)
    dictionary = knowledge.codebook
    if dictionary is None or dictionary.digest != form.dictionary:
        return None
    return partial(words_map, keypoints=keypoints, form=form, dictionary=dictionary)


def as_sift(
    points: Float64[np.ndarray, "features dim"], space: Space, knowledge: Knowledge
) -> Float64[np.ndarray, "features 128"]:
    """SIFT descriptors of unit length behind estimates in `space`: PCA, dither and the square root of RootSIFT are undone.

    The networks were trained on such descriptors.
    """
    return without_root(back_projected(points, space, knowledge.codebook), space)


def without_root(points: Float64[np.ndarray, "features 128"], space: Space) -> Float64[np.ndarray, "features 128"]:
    """Descriptors of unit length, whose square root was not taken: of RootSIFT it is undone, others are as they were."""
    if space.normalization != "L1_ROOT":
        return points
    plain = np.square(points)
    return plain / np.maximum(np.linalg.norm(plain, axis=1, keepdims=True), 1e-12)

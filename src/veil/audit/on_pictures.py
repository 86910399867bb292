"""Pictures of releases: what attacks recovered of every feature, inverted, beside what raw features would have shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from veil.attacks.attack import Attempt
from veil.attacks.claims import Estimates
from veil.attacks.registry import named, unbounded
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.attacks.time_budget import TimeBudget
from veil.audit.run import Examined, StepProgress, try_attacks
from veil.features import Features
from veil.forms import Subsets, Subspaces
from veil.inversion.maps import Frame, Inverts, Kind, SparseMap, back_projected, points_map, subspaces_map, words_map
from veil.inversion.quality import Quality, quality
from veil.mechanisms.public import publish
from veil.space import Space
from veil.wire.message import Upload

# Attacks that are cheap enough to be run on every feature of a photograph; the lattice attack only where nothing is compressed.
CHEAP = ("nearest, projected", "database")
LINES = ("line neighbors", "line density")
UNPROTECTED = "raw features, had they been sent"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reconstruction:
    """One picture of one release: `features` pixels of the map had any. `quality` needs the photograph."""

    release: str
    attack: str
    features: int
    rgb: UInt8[np.ndarray, "256 256 3"]
    quality: Quality | None

    def as_json(self) -> dict:
        """The stable record, without the picture."""
        measured = self.quality
        return {
            "release": self.release,
            "attack": self.attack,
            "features": self.features,
            "mae": None if measured is None else measured.mae,
            "ssim": None if measured is None else measured.ssim,
            "psnr": None if measured is None else measured.psnr,
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
    progress: StepProgress = lambda step: None,
) -> list[Reconstruction]:
    """Pictures of one release, best known first: of what attacks recovered ("raw" in `inverters`), and by direct inversion.

    Of many features `effort.pictured` are drawn, the same for every picture. `features` and `photograph` are the originals,
    where they are known. Nothing is found for descriptors other than SIFT.
    """
    message = item.message
    if message.form.space.descriptor != "sift":
        return []
    frame = Frame(width=message.camera.width_px, height=message.camera.height_px)
    original = None if photograph is None else frame.crop(photograph)
    found = []
    for attack, seen in _maps(item, frame, knowledge, inverters, effort or Effort(), features, progress, time):
        progress(f"{item.name} picture")
        rgb = inverters[seen.kind].invert([seen])[0]
        measured = None if original is None else quality(original, rgb)
        found.append(Reconstruction(release=item.name, attack=attack, features=len(seen), rgb=rgb, quality=measured))
    return found


def _maps(
    item: Examined,
    frame: Frame,
    knowledge: Knowledge,
    inverters: Mapping[Kind, Inverts],
    effort: Effort,
    features: Features | None,
    progress: StepProgress,
    time: TimeBudget | None,
) -> Iterator[tuple[str, SparseMap]]:
    message = item.message
    rows = replace(effort, features=effort.pictured).rows(len(message), item.name)
    if "raw" in inverters:
        if features is not None and item.truth is not None and features.space.dim == 128:
            sent = item.truth.rows[rows]
            points = as_sift(publish(features).vectors[sent].astype(np.float64), features.space, knowledge)
            yield UNPROTECTED, points_map(frame, features.keypoints[sent], points)
        everywhere = _places(item)
        for attack, attacked, estimates in _estimates(item, rows, knowledge, effort, progress, time):
            places = everywhere[attacked]
            placed = np.isfinite(places).all(axis=1)
            points = as_sift(estimates.points, message.form.space, knowledge)
            yield attack, points_map(frame, places[placed], points[placed])
    if isinstance(message, Upload):
        direct = _direct(message, rows, frame, knowledge)
        if direct is not None and direct.kind in inverters:
            yield "direct inversion", direct


def _estimates(
    item: Examined,
    rows: Int64[np.ndarray, "drawn"],
    knowledge: Knowledge,
    effort: Effort,
    progress: StepProgress,
    time: TimeBudget | None,
) -> Iterator[tuple[str, Int64[np.ndarray, "attacked"], Estimates]]:
    """Descriptors of the features `rows`, or of those that there is time for. Those of words are there already, subspaces were
    attacked in part only."""
    form = item.message.form
    if isinstance(form, Subsets):
        for attack, attempt in item.attempts:
            if attack.units == "word" and attempt.estimates is not None and len(attempt.rows) == len(form):
                yield attempt.label, rows, attempt.estimates.take(rows)
        return
    attacks = named(*CHEAP) if form.space.codebook else named("lattice", *CHEAP)
    target = Target(
        image=ReleasedImage.of(item.message), rows=rows, knowledge=knowledge, effort=effort, time=time or unbounded()
    )
    for tried in try_attacks(target, attacks, lambda step: progress(f"{item.name} {step}, {len(rows)} features")):
        if isinstance(tried.outcome, Attempt) and tried.outcome.estimates is not None:
            yield tried.outcome.label, tried.outcome.rows, tried.outcome.estimates


def _places(item: Examined) -> Float64[np.ndarray, "features 2"]:
    """Keypoints, or where attacks on lines put them, NaN where none says anything."""
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


def _direct(message: Upload, rows: Int64[np.ndarray, "drawn"], frame: Frame, knowledge: Knowledge) -> SparseMap | None:
    """The release itself as a map, if a network can read it: neither compressed nor of RootSIFT."""
    form, keypoints = message.form.take(rows), message.keypoints[rows]
    if form.space.codebook or form.space.normalization != "L2":
        return None
    if isinstance(form, Subspaces):
        return subspaces_map(frame, keypoints, form)
    dictionary = knowledge.codebook
    if dictionary is None or dictionary.digest != form.dictionary:
        return None
    return words_map(frame, keypoints, form, dictionary)


def as_sift(
    points: Float64[np.ndarray, "features dim"], space: Space, knowledge: Knowledge
) -> Float64[np.ndarray, "features 128"]:
    """Estimates as SIFT of unit length, which networks were trained on: compression, dither and Hellinger's root undone."""
    plain = back_projected(points, space, knowledge.codebook)
    if space.normalization == "L1_ROOT":
        plain = np.square(plain)
        plain = plain / np.maximum(np.linalg.norm(plain, axis=1, keepdims=True), 1e-12)
    return plain

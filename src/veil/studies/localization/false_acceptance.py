"""Queries that are not of the map, and lines against points: the protocol of `veil evaluate queries`.

Each photograph of a place is held out once: the others are mapped by COLMAP from raw features, and the held-out ones are
localized from their lines and from their keypoints, with the same matches. The same maps are then asked about photographs
of other places and about noise; no answer but a refusal is right. Lines against points with a planted number of
wrong matches: `veil.studies.localization.robustness`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.errors import InputError
from veil.features import Features
from veil.forms import Lines
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_poses, pose_error
from veil.geometry.views import MapViews
from veil.localization.by_distance import Localization, LocalizeOptions, NoPose, correspondences, localize_matches
from veil.mapping import MapImage, NoMap, build_map
from veil.matching import Matches, match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.lines import LineOptions, lift_to_lines
from veil.mechanisms.public import publish
from veil.progress import Progress
from veil.randomness import seeded
from veil.scene import Scene
from veil.studies.localization.acceptance_counts import Kind, Sight, Verdict

LEVEL = np.array([0.0, 1.0, 0.0])  # down in a camera that is held level


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """Photographs with known intrinsics, their reference poses, and down in each camera's frame where it is known."""

    name: str
    features: Mapping[str, Features]
    cam_from_world: Mapping[str, Rigid]
    down: Mapping[str, Float64[np.ndarray, "3"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """A map of all photographs of a place but the held-out ones, and reference_from_map by its cameras."""

    place: Place
    held_out: tuple[str, ...]
    scene: Scene
    reference_from_map: Similarity


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """A query that was matched with a map, most distinctive pairs first; `reference` is its pose in the reference's world."""

    place: str
    query: str
    kind: Kind
    features: Features
    down: Float64[np.ndarray, "3"]
    keypoint_rows: Int64[np.ndarray, "pairs"]
    point_rows: Int64[np.ndarray, "pairs"]
    points: Float64[np.ndarray, "points 3"]
    views: MapViews
    reference: Rigid | None = None
    reference_from_map: Similarity | None = None

    def seen(self, sight: Sight, draw: int) -> Float32[np.ndarray, "features 2"] | Lines:
        """The keypoints, or the lines that hide them in this draw."""
        if sight == "points":
            return self.features.keypoints
        return lift_to_lines(
            self.features,
            gravity=self.down if sight == "aligned lines" else None,
            randomness=seeded(f"queries {self.place} {self.query} {draw}"),
            options=LineOptions(),
        )

    def errors(self, found: Localization | NoPose) -> tuple[float, float] | None:
        """Position (units of the reference) and rotation (degrees) error; None without a pose or a reference."""
        if isinstance(found, NoPose) or self.reference is None or self.reference_from_map is None:
            return None
        return pose_error(found.cam_from_world, self.reference, self.reference_from_map)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """`folds` of each place (more where a map would fall apart), `draws` of lines a true query, and `noise` queries of
    either kind a place; how queries are localized."""

    folds: int = 3
    draws: int = 3
    noise: int = 10
    workers: int = 2
    localize: LocalizeOptions = field(default_factory=LocalizeOptions)


def fold_maps(place: Place, protocol: Protocol, *, workdir: Path, progress: Progress | None = None) -> list[Fold]:
    """Maps that leave out every photograph once, every `folds`-th together.

    Where COLMAP cannot place all others, fewer are left out. Raises InputError if leaving out a single one gives no map.
    """
    names = sorted(place.features)
    if len(names) < 4:
        raise InputError(f"{place.name}: leaving photographs out needs four or more, got {len(names)}")
    forms = {name: publish(item) for name, item in place.features.items()}
    matches = match_pairs(forms, all_pairs(names), workers=protocol.workers)
    waiting = [tuple(names[k :: protocol.folds]) for k in range(min(protocol.folds, len(names)))]
    folds: list[Fold] = []
    while waiting:
        held_out = waiting.pop(0)
        workdir_of_one = workdir / "-".join([place.name, *(str(names.index(name)) for name in held_out)])
        fold = fold_without(place, held_out, matches, workdir_of_one)
        if fold is None or (len(fold.scene.images) + len(held_out) < len(names) and len(held_out) > 1):
            if len(held_out) == 1:
                raise InputError(f"{place.name}: no map without {held_out[0]}; give photographs with more overlap")
            waiting += [held_out[::2], held_out[1::2]]
            continue
        folds.append(fold)
        if progress is not None:
            progress(sum(len(done.held_out) for done in folds), len(names))
    return folds


def fold_without(
    place: Place, held_out: tuple[str, ...], matches: Mapping[tuple[str, str], Matches], workdir: Path
) -> Fold | None:
    """A map of all photographs but `held_out`; None where COLMAP gives none."""
    images = {
        name: MapImage(camera=item.camera, keypoints=item.keypoints, form=publish(item))
        for name, item in place.features.items()
        if name not in held_out
    }
    kept = {pair: found for pair, found in matches.items() if pair[0] in images and pair[1] in images}
    workdir.mkdir(parents=True)
    scene = build_map(images, kept, workdir=workdir)
    if isinstance(scene, NoMap) or len(scene.images) < 2:
        return None
    reference_from_map = align_poses(
        [image.cam_from_world for image in scene.images.values()], [place.cam_from_world[name] for name in scene.images]
    )
    return Fold(place=place, held_out=held_out, scene=scene, reference_from_map=reference_from_map)


def true_questions(fold: Fold, protocol: Protocol) -> Iterator[Question]:
    """The held-out photographs of a fold."""
    for name in fold.held_out:
        features = fold.place.features[name]
        question = _matched(fold, name, "true", features, fold.place.down.get(name, LEVEL), protocol)
        yield replace(question, reference=fold.place.cam_from_world[name], reference_from_map=fold.reference_from_map)


def false_questions(folds: Sequence[Fold], others: Mapping[str, Features], protocol: Protocol) -> Iterator[Question]:
    """Photographs of other places, and noise made of the place's own ones, in turn against its maps."""
    place = folds[0].place
    own = sorted(place.features)
    asked: list[tuple[str, Kind, Features]] = [(name, "other place", item) for name, item in sorted(others.items())]
    for index in range(protocol.noise):
        name = own[index % len(own)]
        random = np.random.default_rng([index, *place.name.encode()])
        asked.append((f"{name} #{index}", "random", random_features(random, place.features[name])))
        asked.append((f"{name} #{index}", "shuffled", shuffled_features(random, place.features[name])))
    for index, (name, kind, features) in enumerate(asked):
        fold = folds[index % len(folds)]
        if kind == "shuffled":  # of a photograph that the map does not hold
            fold = next((fold for fold in folds if name.split(" #")[0] in fold.held_out), fold)
        yield _matched(fold, name, kind, features, LEVEL, protocol)


def random_features(random: np.random.Generator, like: Features) -> Features:
    """Features at uniform places; each entry of a descriptor comes from another feature, so only marginals are real."""
    descriptors = random.permuted(like.descriptors, axis=0)
    if like.is_quantized:
        descriptors[~descriptors.any(axis=1), 0] = 1
    else:
        descriptors /= np.maximum(np.linalg.norm(descriptors, axis=1, keepdims=True), 1e-6)
    xy = random.random((len(like), 2)) * [like.camera.width_px, like.camera.height_px]
    return replace(like, keypoints=xy.astype(np.float32), descriptors=descriptors)


def shuffled_features(random: np.random.Generator, like: Features) -> Features:
    """The descriptors of a photograph at each other's places: they match, and nothing fits."""
    return replace(like, keypoints=like.keypoints[random.permutation(len(like))])


def _matched(
    fold: Fold, name: str, kind: Kind, features: Features, down: Float64[np.ndarray, "3"], protocol: Protocol
) -> Question:
    keypoint_rows, point_rows = correspondences(publish(features), fold.scene, None, protocol.localize)
    return Question(
        place=fold.place.name,
        query=name,
        kind=kind,
        features=features,
        down=down,
        keypoint_rows=keypoint_rows,
        point_rows=point_rows,
        points=fold.scene.points,
        views=fold.scene.views,
    )


def answer(question: Question, sight: Sight, draw: int, options: LocalizeOptions) -> Verdict:
    """Localize a question from what `sight` shows of its keypoints."""
    found = localize_matches(
        question.features.camera,
        question.seen(sight, draw),
        question.keypoint_rows,
        question.point_rows,
        question.points,
        views=question.views,
        options=options,
    )
    errors = question.errors(found)
    return Verdict(
        place=question.place,
        query=question.query,
        kind=question.kind,
        sight=sight,
        draw=draw,
        accepted=isinstance(found, Localization),
        matches=len(question.keypoint_rows),
        inliers=found.inliers,
        log10_nfa=found.log10_nfa,
        position_error=errors[0] if errors else None,
        rotation_error_deg=errors[1] if errors else None,
    )

"""Maps with held-out photographs, and true and false queries to them: the protocol of `veil evaluate queries`.

Each photograph of a place is held out once: the others are mapped by COLMAP from raw features, and the held-out ones are
localized from their lines and from their keypoints, with the same matches. The same maps are then queried with photographs
of other places and with noise; no answer but a refusal is right. `veil_lab.studies.localization.robustness` compares lines with
points when a planted share of the matches is wrong.
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
from veil.matching import Matches, match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.lines import ConvergentOptions, LineOptions, LineRule, ParallelOptions, lift_to_lines
from veil.mechanisms.public import publish
from veil.places.maps import MapImage, NoMap, build_map
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import correspondences, localize_matches
from veil.places.poses.options import LocalizeOptions
from veil.progress import Progress
from veil.randomness import seeded
from veil.scene import Scene, views_of
from veil_lab.studies.localization.acceptance_counts import ObservationKind, QueryAnswer, QueryKind

Progress = Progress
LEVEL_DOWN = np.array([0.0, 1.0, 0.0])  # the direction of gravity in the frame of a camera that is held level


@dataclass(frozen=True, kw_only=True, eq=False)
class ReferencePlace:
    """A place for an evaluation: features of its photographs (with intrinsics), reference poses, and gravity, by image name.

    `down` is the direction of gravity in the camera's frame, for the photographs where it is known.
    """

    name: str
    features: Mapping[str, Features]
    cam_from_world: Mapping[str, Rigid]
    down: Mapping[str, Float64[np.ndarray, "3"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """A map of all photographs of a place but the held-out ones, with `reference_from_map` as its cameras give it."""

    place: ReferencePlace
    held_out: tuple[str, ...]
    scene: Scene
    reference_from_map: Similarity


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedQuery:
    """A query with its 2D-3D matches to one map.

    Pair i joins keypoint `keypoint_rows[i]` with point `point_rows[i]` of `points`; the most distinctive pairs come first.
    `name` is the photograph's. `reference` is the query's true pose (camera from the reference's world) and
    `reference_from_map` aligns the map with it; both are None for false queries.
    """

    place: str
    name: str
    kind: QueryKind
    features: Features
    down: Float64[np.ndarray, "3"]
    keypoint_rows: Int64[np.ndarray, "pairs"]
    point_rows: Int64[np.ndarray, "pairs"]
    points: Float64[np.ndarray, "points 3"]
    views: MapViews
    reference: Rigid | None = None
    reference_from_map: Similarity | None = None

    def observed(self, observation: ObservationKind, draw: int) -> Float32[np.ndarray, "features 2"] | Lines:
        """Keypoints (pixels), or the lines that hide them; `draw` is the number of the random draw of lines."""
        if observation == "points":
            return self.features.keypoints
        options: Mapping[str, LineRule] = {"convergent lines": ConvergentOptions(), "parallel lines": ParallelOptions()}
        return lift_to_lines(
            self.features,
            gravity=self.down if observation in ("aligned lines", "parallel lines") else None,
            randomness=seeded(f"queries {self.place} {self.name} {draw}"),
            options=options.get(observation, LineOptions()),
        )

    def errors(self, result: Localization | NoPose) -> tuple[float, float] | None:
        """Position error (units of the reference) and rotation error (degrees); None without a pose or a reference."""
        if isinstance(result, NoPose) or self.reference is None or self.reference_from_map is None:
            return None
        return pose_error(result.cam_from_world, self.reference, self.reference_from_map)


@dataclass(frozen=True, kw_only=True)
class QueryProtocol:
    """Options of the protocol: how many maps are made, how many queries they get, and how these are localized.

    Each place has `folds` maps, or more where a map would fall apart. Each true query is localized from `draws` draws of each
    kind of lines. `noise` false queries of random and as many of shuffled features are made for each place.
    """

    folds: int = 3
    draws: int = 3
    noise: int = 10
    workers: int = 2
    localize: LocalizeOptions = field(default_factory=LocalizeOptions)


def fold_maps(place: ReferencePlace, protocol: QueryProtocol, *, workdir: Path, progress: Progress | None = None) -> list[Fold]:
    """Maps of a place that together leave out each photograph once; every `folds`-th photograph is left out together.

    Where COLMAP cannot register all other photographs, fewer are left out at a time. `workdir` takes COLMAP's files;
    `progress` is called with the number of photographs held out so far and the number of all. Raises InputError for fewer
    than four photographs, or where leaving out a single one gives no map.
    """
    folds: list[Fold] = []
    for fold in each_fold(place, protocol, workdir=workdir):
        folds.append(fold)
        if progress is not None:
            progress(sum(len(done.held_out) for done in folds), len(place.features))
    return folds


def each_fold(place: ReferencePlace, protocol: QueryProtocol, *, workdir: Path) -> Iterator[Fold]:
    """The maps of `fold_maps`, each as it is asked for; for studies that need one of them."""
    names = sorted(place.features)
    if len(names) < 4:
        raise InputError(f"{place.name}: leaving photographs out needs four or more, got {len(names)}")
    forms = {name: publish(item) for name, item in place.features.items()}
    matches = match_pairs(forms, all_pairs(names), workers=protocol.workers)
    waiting = [tuple(names[k :: protocol.folds]) for k in range(min(protocol.folds, len(names)))]
    while waiting:
        held_out = waiting.pop(0)
        workdir_of_one = workdir / "-".join([place.name, *(str(names.index(name)) for name in held_out)])
        fold = fold_without(place, held_out, matches, workdir_of_one)
        if fold is None or (len(fold.scene.images) + len(held_out) < len(names) and len(held_out) > 1):
            if len(held_out) == 1:
                raise InputError(f"{place.name}: no map without {held_out[0]}; give photographs with more overlap")
            waiting += [held_out[::2], held_out[1::2]]
            continue
        yield fold


def fold_without(
    place: ReferencePlace, held_out: tuple[str, ...], matches: Mapping[tuple[str, str], Matches], workdir: Path
) -> Fold | None:
    """A map of all photographs of `place` but `held_out`; None where COLMAP gives no map, or one of a single photograph.

    `matches` of pairs of photographs may hold pairs with held-out ones, which are ignored. `workdir` must not exist yet.
    """
    images = {
        name: MapImage(camera=item.camera, keypoints=item.keypoints, form=publish(item))
        for name, item in place.features.items()
        if name not in held_out
    }
    used = {pair: pair_matches for pair, pair_matches in matches.items() if pair[0] in images and pair[1] in images}
    workdir.mkdir(parents=True)
    scene = build_map(images, used, workdir=workdir)
    if isinstance(scene, NoMap) or len(scene.images) < 2:
        return None
    reference_from_map = align_poses(
        [image.cam_from_world for image in scene.images.values()], [place.cam_from_world[name] for name in scene.images]
    )
    return Fold(place=place, held_out=held_out, scene=scene, reference_from_map=reference_from_map)


def true_queries(fold: Fold, protocol: QueryProtocol) -> Iterator[MatchedQuery]:
    """Queries with the held-out photographs of a fold, matched with its map and with their reference poses."""
    for name in fold.held_out:
        features = fold.place.features[name]
        query = _matched(fold, name, "true", features, fold.place.down.get(name, LEVEL_DOWN), protocol)
        yield replace(query, reference=fold.place.cam_from_world[name], reference_from_map=fold.reference_from_map)


def false_queries(folds: Sequence[Fold], others: Mapping[str, Features], protocol: QueryProtocol) -> Iterator[MatchedQuery]:
    """Queries that must be refused: photographs `others` of other places, and noise made from the place's own photographs.

    They go to the maps of the place in turn.
    """
    place = folds[0].place
    own = sorted(place.features)
    planned: list[tuple[str, QueryKind, Features]] = [(name, "other place", item) for name, item in sorted(others.items())]
    for index in range(protocol.noise):
        name = own[index % len(own)]
        random = np.random.default_rng([index, *place.name.encode()])
        planned.append((f"{name} #{index}", "random", random_features(random, place.features[name])))
        planned.append((f"{name} #{index}", "shuffled", shuffled_features(random, place.features[name])))
    for index, (name, kind, features) in enumerate(planned):
        fold = folds[index % len(folds)]
        if kind == "shuffled":  # the map must not hold the photograph whose features were shuffled
            fold = next((fold for fold in folds if name.split(" #")[0] in fold.held_out), fold)
        yield _matched(fold, name, kind, features, LEVEL_DOWN, protocol)


def random_features(random: np.random.Generator, like: Features) -> Features:
    """Noise with the number, camera and marginals of the features `like`, at uniformly random positions.

    Each entry of a descriptor comes from another feature of `like`, so that only the marginal distributions are real.
    """
    descriptors = random.permuted(like.descriptors, axis=0)
    if like.is_quantized:
        descriptors[~descriptors.any(axis=1), 0] = 1
    else:
        descriptors /= np.maximum(np.linalg.norm(descriptors, axis=1, keepdims=True), 1e-6)
    xy = random.random((len(like), 2)) * [like.camera.width_px, like.camera.height_px]
    return replace(like, keypoints=xy.astype(np.float32), descriptors=descriptors)


def shuffled_features(random: np.random.Generator, like: Features) -> Features:
    """Features with the descriptors of `like` at each other's positions: they match, and no pose explains the matches."""
    return replace(like, keypoints=like.keypoints[random.permutation(len(like))])


def _matched(
    fold: Fold, name: str, kind: QueryKind, features: Features, down: Float64[np.ndarray, "3"], protocol: QueryProtocol
) -> MatchedQuery:
    """A query with its matches to the fold's map, without a reference pose."""
    keypoint_rows, point_rows = correspondences(publish(features), fold.scene, None, protocol.localize)
    return MatchedQuery(
        place=fold.place.name,
        name=name,
        kind=kind,
        features=features,
        down=down,
        keypoint_rows=keypoint_rows,
        point_rows=point_rows,
        points=fold.scene.points,
        views=views_of(fold.scene),
    )


def localize_query(query: MatchedQuery, observation: ObservationKind, draw: int, options: LocalizeOptions) -> QueryAnswer:
    """Answer of localization to `query` from its keypoints or from the lines of draw number `draw`, with its errors."""
    result = localize_matches(
        query.features.camera,
        query.observed(observation, draw),
        query.keypoint_rows,
        query.point_rows,
        query.points,
        views=query.views,
        options=options,
    )
    errors = query.errors(result)
    return QueryAnswer(
        place=query.place,
        query=query.name,
        kind=query.kind,
        observation=observation,
        draw=draw,
        accepted=isinstance(result, Localization),
        matches=len(query.keypoint_rows),
        inliers=result.inliers,
        log10_nfa=result.log10_nfa,
        position_error=errors[0] if errors else None,
        rotation_error_deg=errors[1] if errors else None,
    )

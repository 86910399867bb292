"""Localization of every kind of query, as a server holds it: words, subspaces, lines or public descriptors on any map."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, Remedy
from veil.forms import Form, Lines, Subsets
from veil.geometry.rigid import about_center
from veil.matching.lightglue import LightGlue
from veil.matching.placed_points import placed
from veil.matching.point_index import RankedImages
from veil.one_line import one_line
from veil.places.held_map import Map, index_for, ranked_images
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions, PositionOptions, WordOptions
from veil.progress import Progress
from veil.scene import Scene

# Seconds of processor time, all threads together, for a search by words. Ordinary searches take one or two; only a longer one
# depends on how fast the machine is. Other load of the machine, and the number of threads, change nothing.
WORD_SECONDS = 10.0
# The same for positions alone, which need more samples.
POSITION_SECONDS = 60.0
WITHHELD = (
    "the map tells no pose: the query does not match, or its evidence lies on one thing; show more of the place than one object"
)


def extent_of_points(scene: Scene) -> float:
    """Diagonal of the box about a map's points, without the outermost 5 % along each axis, in units of the map."""
    low, high = np.percentile(scene.points, [5, 95], axis=0)
    return float(np.linalg.norm(high - low))


@dataclass(frozen=True, kw_only=True)
class AnswerGuard:
    """Rule by which a map tells no pose that rests on one thing in it (docs/theory/answers.md, Eq. 3).

    - `largest_object`: size of the largest thing that is protected, as a share of the map's extent
      (`extent_of_points`).
    - `min_inliers`: number of inliers that must remain without any such thing: two more than any pose fits.

    Raises RangeError for a size outside (0, 1], or less than one inlier.
    """

    largest_object: float = 0.15
    min_inliers: int = 5

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 < self.largest_object <= 1:
            raise RangeError(f"largest_object must lie in (0, 1], a share of the map's extent, got {self.largest_object!r}")
        if not self.min_inliers >= 1:
            raise RangeError(f"min_inliers must be at least 1, got {self.min_inliers!r}")

    def told(self, answer: Localization | NoPose, scene: Scene) -> Localization | NoPose:
        """The answer that the map `scene` tells: the pose if it stands without any one thing, else one and the same refusal.

        A refusal has neither evidence nor reason of its own, as those tell of the object as the pose does.
        """
        if isinstance(answer, Localization) and self.inliers_beside(answer, scene) >= self.min_inliers:
            return answer
        return NoPose(reason=WITHHELD, correspondences=0)

    def inliers_beside(self, answer: Localization, scene: Scene) -> int:
        """Number of inliers that remain of a pose without the thing that holds most of them.

        A thing of some size lies in the ball of that radius about any of its points.
        """
        from scipy.spatial import cKDTree

        points, radius = scene.points[answer.point_rows], self.largest_object * extent_of_points(scene)
        return len(points) - int(cKDTree(points).query_ball_point(points, radius, return_length=True).max(initial=0))


def localize_loaded(
    image: LoadedImage,
    where: Map,
    *,
    options: LocalizeOptions | None = None,
    word_options: WordOptions | None = None,
    position_options: PositionOptions | None = None,
    codebook: Codebook | None = None,
    dictionary: Codebook | None = None,
    near: Sequence[str] | None = None,
    search: Literal["index", "all"] = "index",
    network: LightGlue | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of an image on a map, or say why no pose is better than chance (docs/theory/localization.md).

    A pose is refused that contradicts the gravity which the image came with, whatever its form. It is no better known than the
    map's own.

    `image` is the query as a server holds it; the other arguments, and what is raised, are those of `veil.localize`.
    """
    answer = _located(
        image,
        where,
        options=options,
        word_options=word_options,
        position_options=position_options,
        codebook=codebook,
        dictionary=dictionary,
        near=near,
        search=search,
        network=network,
        progress=progress,
    )
    gravity = image.positions.gravity if isinstance(image.positions, Lines) else image.gravity
    if isinstance(answer, Localization) and gravity is not None and where.scene.down is not None:
        from veil.places.poses.judge import unless_tilted  # loads SciPy

        answer = unless_tilted(answer, gravity, where.scene.down)
    return _as_known_as_the_map(answer, where.scene) if isinstance(answer, Localization) else answer


def _as_known_as_the_map(answer: Localization, scene: Scene) -> Localization:
    """The pose with a covariance that also holds the uncertainty of the map (localization.md, Eq. 11)."""
    known = None if scene.check is None else scene.check.uncertainty
    if answer.covariance is None or known is None or not math.isfinite(known):
        return answer
    from veil.geometry.robust.pose_and_focal import turn_deviation  # loads Numba

    own = known * float(np.linalg.norm(np.ptp([image.cam_from_world.center for image in scene.images.values()], axis=0)))
    depth = float(np.median(answer.cam_from_world.apply(scene.points[answer.point_rows])[:, 2]))
    moved = about_center(answer.cam_from_world) * np.repeat([own / depth, own], 3) / math.sqrt(3)
    covariance = answer.covariance + moved @ moved.T
    return replace(answer, covariance=covariance, turn_deviation_deg=math.degrees(turn_deviation(covariance)))


def _located(
    image: LoadedImage,
    where: Map,
    *,
    options: LocalizeOptions | None,
    word_options: WordOptions | None,
    position_options: PositionOptions | None,
    codebook: Codebook | None,
    dictionary: Codebook | None,
    near: Sequence[str] | None,
    search: Literal["index", "all"],
    network: LightGlue | None,
    progress: Progress | None,
) -> Localization | NoPose:
    """The answer by the search that serves the image's form, as `localize_loaded` names its arguments."""
    if network is not None:
        placed(image.form, image.positions, image.camera, what="the query")
    if not isinstance(image.form, Subsets):
        book = codebook or where.codebook_for(image.form)
        options = options or LocalizeOptions()
        workers = options.workers

        def rank(form: Form) -> RankedImages | None:
            return ranked_images(where, form, codebook, threads=workers) if search == "index" else None

        from veil.places.poses.by_distance import localize as by_distance  # loads SciPy and COLMAP

        return by_distance(
            image.camera,
            image.positions,
            image.form,
            where.scene,
            codebook=book,
            ranked=rank(image.form),
            rank=rank,
            network=network,
            options=options,
            progress=progress,
        )
    if image.form.mechanism.epsilon == 0:
        if isinstance(image.positions, Lines):
            raise InputError("the query holds neither positions nor descriptors: its words are random and its positions hidden")
        from veil.places.poses.upright import localize_positions

        return localize_positions(
            image.camera,
            image.positions,
            where.scene,
            gravity=image.gravity,
            near=near or (),
            options=position_options or PositionOptions(max_seconds=POSITION_SECONDS),
            progress=progress,
        )
    index = index_for(where, image.form, dictionary=dictionary, progress=progress)
    word_options = word_options or WordOptions(max_seconds=WORD_SECONDS)
    begun = time.process_time()
    from veil.places.poses.by_words import localize_words

    answer = localize_words(
        image.camera,
        image.positions,
        image.form,
        where.scene,
        index,
        gravity=image.gravity,
        near=near,
        options=word_options,
        progress=progress,
    )
    used, allowed = time.process_time() - begun, word_options.max_seconds
    if isinstance(answer, NoPose) and allowed is not None and used > allowed:
        limit = f"it took {used:.0f} s of the processor, and a search has {allowed:g}"
        remedy = (Remedy("raise", "WordOptions.max_seconds"), *answer.remedy)
        return replace(answer, reason=f"{answer.reason}; {limit}", remedy=remedy)
    return answer

"""Localization of queries that are matched with a map by distances: a pose that chance cannot explain, or a reason for none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.codebooks.mirror import mirrored_descriptors
from veil.forms import Form, Lines, Subsets
from veil.geometry.camera import Camera
from veil.geometry.views import MapViews
from veil.matching.lightglue import LightGlue
from veil.matching.placed_points import placed
from veil.matching.point_index import RankedImages
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.judge import claim_of, judge_pairs
from veil.places.poses.mirror import EXPLAINED, mirrored_positions, unless_mirrored
from veil.places.poses.options import LocalizeOptions
from veil.places.poses.search import MatchedImages, RankedSearch, features_of
from veil.progress import Progress
from veil.scene import Scene, views_of


def localize(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    form: Form,
    scene: Scene,
    *,
    codebook: Codebook | None = None,
    ranked: RankedImages | Sequence[str] | None = None,
    network: LightGlue | None = None,
    rank: Callable[[Form], RankedImages | None] = lambda form: None,
    options: LocalizeOptions | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query from matches by distance, or say why no pose is better than chance.

    The query is matched with every image of the map, or with those that it looks like until there is a pose. Such a pose is
    then compared with other places that look like the query (localization.md#a-place-and-its-copies). The pose is
    estimated by LO-RANSAC and refined over its inliers, and the number of chance poses as good as it is bounded
    (docs/theory/localization.md, Eq. 1-4). A public map is compared with a private query by the point-to-subspace distance, a
    private map by the subspace-to-subspace distance (Dusmanu et al. 2021, Eq. 1-2; docs/theory/distances.md, Eq. 1-2).

    - `camera`: intrinsics and size of the query's image, in pixels.
    - `observations`: what was sent of the query's N keypoints. Either their positions, float32 (N, 2), in pixels from the
      top-left corner, or the N lines that hide them, in the undistorted normalized image plane.
    - `form`: the query's N descriptors in the order of `observations`: subspaces, or public points. Words are localized by
      `veil.places.poses.by_words`.
    - `scene`: the map, public or private.
    - `codebook`: the one that the query was privatized with, or None. A hardened query against a public map needs it, to
      bring the map's descriptors into the query's space. Without it nobody can tell a hardened query from its mirror image.
    - `ranked`: the map's images that the query looks like, the most similar first (`veil.matching.point_index`), or their
      names alone, of which those that observe no inlier of a pose are taken for other places; None: all images are matched.
    - `network`: LightGlue in place of nearest neighbors, for raw queries on public maps (learned_matching.md).
    - `rank`: the map's images that the mirrored query looks like, as `ranked`; a pose is refused if it fits as well there.
    - `options`: thresholds, matching, workers and seed; by default those of `LocalizeOptions`.
    - `progress`: called with the number of map images that are matched and of all.

    Raises SpaceError if query and map are of different spaces, InputError if their subspaces are so large that all of them
    meet, or a network is to match what is protected.
    """
    options = options or LocalizeOptions()

    def unmatched(positions: Float32[np.ndarray, "features 2"] | Lines, form: Form) -> MatchedImages:
        matched = _unmatched(form, scene, codebook, options)
        if network is None:
            return matched
        return replace(matched, network=network, query=placed(form, positions, camera, what="the query"))

    matched = unmatched(observations, form)
    if ranked is None:
        matched.match(list(scene.images), progress)
        pairs = features_of(camera, observations, *matched.pairs(), scene.points, options)
        answer = judge_pairs(pairs, views_of(scene), options, matched.observed)
    else:
        search = RankedSearch(camera=camera, observations=observations, matched=matched, ranked=ranked, options=options)
        answer = search.answer(progress)

    def mirrored() -> float | None:
        turned = None if isinstance(form, Subsets) else mirrored_descriptors(form, codebook)
        if turned is None:
            return None
        positions = mirrored_positions(camera, observations)
        images = unmatched(positions, turned)
        like = rank(turned)
        images.match([*matched.examined, *([] if like is None else like.names[: options.retrieved[0]])])
        return evidence_of_matches(camera, positions, *images.pairs(), scene.points, views=views_of(scene), options=options)

    return unless_mirrored(answer, mirrored) if is_doubtful(answer) else answer


def localize_matches(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    *,
    views: MapViews | None = None,
    options: LocalizeOptions | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query from its matches with points of a map, or say why no pose is better than chance.

    This is the second half of `veil.places.poses.by_distance.localize`, which names `camera` and `observations`.

    - `keypoint_rows`, `point_rows`, int64 (pairs,): pair i joins row `keypoint_rows[i]` of `observations` with row
      `point_rows[i]` of `points`. The most trusted pairs come first; neither column needs to be distinct.
    - `points`, float64 (points, 3): the map's points in world coordinates, in units of the map.
    - `views`: how the map's images saw the points. Without them no pose is refused for the directions and sizes at which it
      sees its points.
    - `options`: thresholds and seed.
    """
    options = options or LocalizeOptions()
    matched = features_of(camera, observations, keypoint_rows, point_rows, points, options)
    return judge_pairs(matched, views, options)


def is_doubtful(answer: Localization | NoPose) -> bool:
    """Whether a pose leaves so many matches unexplained that it may be that of a mirrored photograph."""
    return answer.inliers <= EXPLAINED * answer.correspondences


def evidence_of_matches(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    *,
    views: MapViews | None,
    options: LocalizeOptions,
) -> float:
    """log10 of the number of chance poses as good as the best one of a query's matches, infinite where there is none.

    The arguments are those of `localize_matches`.
    """
    claim = claim_of(features_of(camera, observations, keypoint_rows, point_rows, points, options), views, options)
    return claim.log10_nfa if isinstance(claim, NoPose) else claim.evidence.log10_nfa


def correspondences(
    form: Form,
    scene: Scene,
    codebook: Codebook | None,
    options: LocalizeOptions,
    progress: Progress | None = None,
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """The pairs of a query's features and a map's points that match in at least one image of the map, most distinctive first.

    The arguments are those of `localize`; of the pairs see `MatchedImages.pairs`.
    """
    matched = _unmatched(form, scene, codebook, options)
    matched.match(list(scene.images), progress)
    return matched.pairs()


def _unmatched(form: Form, scene: Scene, codebook: Codebook | None, options: LocalizeOptions) -> MatchedImages:
    return MatchedImages(form=form, scene=scene, codebook=codebook, options=options, workers=options.workers)

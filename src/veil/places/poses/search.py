"""Localization in the images of a map that a query looks like, and the comparison of a pose with places that look the same.

Theory: docs/theory/scale.md#queries, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.forms import Form, Lines, Points
from veil.geometry.camera import Camera
from veil.matching import Matches, MatchOptions, match_pairs
from veil.matching.lightglue import LightGlue
from veil.matching.pairs import match_pairs_by_network
from veil.matching.placed_points import PlacedPoints, placed
from veil.matching.point_index import RankedImages
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import ShownPoints, covisible, weigh
from veil.places.poses.joint import settled
from veil.places.poses.judge import (
    MOST_RIVALS,
    PairContest,
    Rival,
    WeighedPose,
    claim_of,
    judge,
    rivals,
)
from veil.places.poses.matches import Estimate, Matched, matched_features
from veil.places.poses.options import LocalizeOptions
from veil.progress import Progress
from veil.scene import Scene, views_of

_NONE = np.empty(0, dtype=np.int64)


class ImageMatches(ABC):
    """Pairs of a query's features and points of the map `scene`, from more and more of its images, which `examined` names."""

    scene: Scene
    examined: Collection[str]

    @property
    def observed(self) -> list[Int64[np.ndarray, "observed"]]:
        """Rows of the points that each of the matched images observes."""
        return [self.scene.images[name].point_rows for name in self.examined]

    @abstractmethod
    def match(self, names: Sequence[str], progress: Progress | None = None) -> None:
        """Match the images that are not matched yet."""

    @abstractmethod
    def pairs(self, names: Sequence[str] | None = None) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows (query features, map points) of the pairs in some of the matched images, or in all, the most trusted first."""


@dataclass(kw_only=True, eq=False)
class MatchedImages(ImageMatches):
    """Matches of a query with more and more images of a map.

    `form` is the query's, `codebook` brings the descriptors of a public map into its space (None: they are in it), `workers`
    images are matched at a time. `examined` holds the matches by name of the image.

    With a `network` and the query as it reads it (`query`), LightGlue matches in place of nearest neighbors.
    """

    form: Form
    scene: Scene
    codebook: Codebook | None
    options: MatchOptions
    workers: int
    network: LightGlue | None = None
    query: PlacedPoints | None = None
    examined: dict[str, Matches] = field(default_factory=dict)

    def match(self, names: Sequence[str], progress: Progress | None = None) -> None:
        """Match the images that are not matched yet; `progress` is called with the number of them and of all.

        Raises what `veil.matching.match` raises.
        """
        new = [name for name in names if name not in self.examined]
        if self.network is not None and self.query is not None:
            self.examined |= self._matched_by_network(self.network, self.query, new, progress)
            return
        forms: dict[str, Form] = {"": self.form}
        for name in new:
            forms[name] = _comparable(self.scene.images[name].form, self.form, self.codebook)
        pairs = [("", name) for name in new]
        matched = match_pairs(forms, pairs, options=self.options, workers=self.workers, progress=progress)
        self.examined |= {name: matches for (_, name), matches in matched.items()}

    def _matched_by_network(
        self, network: LightGlue, query: PlacedPoints, names: Sequence[str], progress: Progress | None
    ) -> dict[str, Matches]:
        images = {"": query}
        for name in names:
            image = self.scene.images[name]
            positions = image.keypoints if image.lines is None else image.lines
            images[name] = placed(image.form, positions, image.camera, what=f"the map's image {name}")
        pairs = [("", name) for name in names]
        matched = match_pairs_by_network(images, pairs, network, workers=self.workers, progress=progress)
        return {name: matches for (_, name), matches in matched.items()}

    def pairs(self, names: Sequence[str] | None = None) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows (query features, map points) of the distinct pairs that match in at least one image, most distinctive first.

        The images are those of `names` that are matched; None: all that are.

        A pair is as distinctive as its distance is small beside that to the second neighbor (Lowe 2004), or as LightGlue is
        sure of it, in the map image where it is most so. Right matches gather at the front; which matches there are does not
        depend on the order.
        """
        chosen = {name: self.examined[name] for name in (self.examined if names is None else names) if name in self.examined}
        if not chosen:
            return _NONE, _NONE
        images, points = self.scene.images, len(self.scene.points)
        rows = np.concatenate([matches.indices[:, 0] for matches in chosen.values()])
        seen = np.concatenate([images[name].point_rows[matches.indices[:, 1]] for name, matches in chosen.items()])
        # One integer for each pair sorts faster than two columns.
        keys = rows * points + seen
        ratios = np.concatenate([matches.ratios for matches in chosen.values()])
        keys = keys[np.argsort(ratios, kind="stable")]
        _, first = np.unique(keys, return_index=True)
        keypoint_rows, point_rows = np.divmod(keys[np.sort(first)], points)
        return keypoint_rows.astype(np.int64), point_rows.astype(np.int64)


def _comparable(map_form: Form, query: Form, codebook: Codebook | None) -> Form:
    """A map image's form, taken by the codebook into the query's space where it holds public descriptors of another one."""
    if isinstance(map_form, Points) and map_form.space != query.space and codebook is not None:
        return codebook.compression.into_space(map_form, query.space)
    return map_form


# Stop after this many rounds without a new copy of a place.
EMPTY = 2
# Largest multiple of `LocalizeOptions.compared` images by which poses are compared, so that no query occupies a server.
MOST_COMPARED = 16
ALIKE = (
    "two places of the map explain {} and {} of {} matches, and nothing tells which is right; do they look alike? Show more of "
    "what is around, or map more images of it"
)
MANY = (
    "the best of several poses explains {} of {} matches, and {} more images of the map were not enough to compare it with all "
    "places that look alike; show more of what is around"
)


@dataclass(kw_only=True, eq=False)
class RankedSearch:
    """The search for the pose of a query in the images that it looks like.

    - `features`: makes what poses are estimated from of all pairs so far; None: matched features as they are.
    - `empty`: number of rounds in a row without another place after which a pose counts as compared.
    """

    camera: Camera
    observations: Float32[np.ndarray, "features 2"] | Lines
    matched: ImageMatches
    ranked: RankedImages | Sequence[str]
    options: LocalizeOptions
    features: Callable[[], Matched] | None = None
    empty: int = 1
    _others: list[Rival] = field(default_factory=list, init=False)
    _compared_with: int = field(default=0, init=False)
    _paired: dict[int, Matched] = field(default_factory=dict, init=False)  # by the number of matched images, the last alone

    def answer(self, progress: Progress | None) -> Localization | NoPose:
        """The pose from the fewest images that give one which no other place rivals, or why there is none."""
        refusals = []
        for count in self._rounds:
            self.matched.match(self._names[:count], progress)
            outcome, estimate = self._judged(progress)
            if isinstance(outcome, Localization) and estimate is not None:
                outcome = self.compared(outcome, estimate, progress)
            if isinstance(outcome, Localization):
                return outcome
            refusals.append(outcome)
            if self._is_spent:
                break
        count = len(self.matched.examined)
        looked_at = f"it was matched with the {count} of {len(self.matched.scene.images)} images that it looks most like"
        best = min(refusals, key=lambda refused: refused.log10_nfa)
        return replace(best, reason=f"{best.reason}; {looked_at}")

    @cached_property
    def _names(self) -> list[str]:
        """Names of the images that may be matched, the most similar first."""
        return list(self.ranked.names if isinstance(self.ranked, RankedImages) else self.ranked)[: self.options.retrieved[-1]]

    @cached_property
    def _rounds(self) -> list[int]:
        """Numbers of images that are matched one after the other until there is a pose."""
        return [*(count for count in self.options.retrieved if count < len(self._names)), len(self._names)]

    @cached_property
    def _strict(self) -> LocalizeOptions:
        """The options of one pose: each round may find one by chance, and so may its comparison with other places."""
        return replace(self.options, max_log10_nfa=self.options.max_log10_nfa - math.log10(2 * len(self._rounds)))

    def _judged(self, progress: Progress | None) -> tuple[Localization | NoPose, Estimate | None]:
        """The answer that all matches so far give, and the estimate of its pose.

        Of two poses the one with more inliers is found first. If the other is clearly better, that one is judged.
        """
        best, views = None, views_of(self.matched.scene)
        while True:
            claim = claim_of(self._pairs, views, self._strict, observed=self.matched.observed, best=best)
            if isinstance(claim, NoPose):
                return claim, None
            better: list[Estimate] = []

            def rival(estimate: Estimate = claim.estimate, better: list[Estimate] = better) -> Rival | None:
                other = self._equal(estimate, None, progress)
                if other is not None and other.is_better:
                    better.append(other.estimate)
                return other

            answer = judge(claim, rival, self._strict)
            if not better or best is not None:
                return answer, claim.estimate if isinstance(answer, Localization) else None
            matched = self._pairs
            refined = matched.estimate(np.flatnonzero(matched.agrees(matched.projected(better[0]))))
            if refined is None:
                return answer, None
            refined = settled(matched, refined)
            best = WeighedPose(estimate=refined, evidence=weigh(matched, refined, views))

    def compared(self, localization: Localization, estimate: Estimate, progress: Progress | None) -> Localization | NoPose:
        """A pose after its comparison with places that look like the query, too (localization.md#a-place-and-its-copies).

        If another one explains clearly more, it is the answer; if nothing tells which is right, there is none.
        """
        other = self._rival(localization, estimate, progress)
        if other is None:
            return localization
        best, estimate_of_best = self._judged(progress)
        if isinstance(best, NoPose) or estimate_of_best is None:
            return best
        if 2 * np.isin(best.point_rows, localization.point_rows).sum() <= best.inliers:  # it is another pose
            other = self._rival(best, estimate_of_best, progress)
        if other is None:
            return best
        alike = ALIKE.format(best.inliers, len(other.evidence.rows), best.correspondences)
        many = MANY.format(best.inliers, best.correspondences, self._compared_with)
        return NoPose(
            reason=many if self._is_spent else alike,
            correspondences=best.correspondences,
            inliers=best.inliers,
            log10_nfa=best.log10_nfa,
        )

    @property
    def _is_spent(self) -> bool:
        """Whether there are many other poses, or no more images may be matched to compare them."""
        enough = self._compared_with >= MOST_COMPARED * self.options.compared > 0
        return len(self._others) >= MOST_RIVALS or (enough and bool(self._others))

    def _compare_with(self, names: list[str], progress: Progress | None) -> None:
        """Match more images, to compare poses."""
        self.matched.match(names, progress)
        self._compared_with += len(names)

    def _rival(self, localization: Localization, estimate: Estimate, progress: Progress | None) -> Rival | None:
        """A pose elsewhere that rivals the one that was found, from the images that look like the query there.

        Where they show the like, more images are asked for what looks like the query elsewhere again, until these show no more:
        `empty` times in a row, and at least `EMPTY` times if the place has a copy. Where they still do when no more images may
        be matched, the last pose is taken for a rival, as nobody looked for the next one.
        """
        compared: list[str] = []
        empty = 0
        while self.options.compared:
            if self._is_spent:
                return self._others[-1]
            matched = {*compared, *self.matched.examined}
            new = (name for name in self._elsewhere(localization, estimate) if name not in matched)
            names = list(islice(new, self.options.compared))
            self._compare_with(names, progress)
            compared += names
            before = len(self._others)
            other = self._equal(estimate, compared, progress)
            empty = 0 if len(self._others) > before else empty + 1
            if other is not None or not names or empty == max(self.empty, EMPTY if self._others else 1):
                return other
        return None

    def _equal(self, estimate: Estimate, names: list[str] | None, progress: Progress | None) -> Rival | None:
        """A pose that nothing tells from an estimated one, from the pairs with some images (None: all), or None.

        It is compared with every pose that this search has found before, too. Before a pose is called equal, the images are
        matched that know most of what both cameras would see.
        """
        views = views_of(self.matched.scene)
        while True:
            matched, known = self._pairs, [other.estimate for other in self._others]
            pose = WeighedPose(estimate=estimate, evidence=weigh(matched, estimate, views))
            contest = PairContest(matched=matched, views=views, observed=self.matched.observed)
            among = None if names is None else self._rows(matched, names)
            others = rivals(contest, pose, self._strict, among=among, known=known)
            self._others += [other for other in others.all if not any(other.estimate is one for one in known)]
            if others.equal is None:
                return None
            both = (pose, others.equal)
            new = [name for one in both for name in self._around(matched, one) if not self._is_spent]
            if not new:
                return others.equal
            self._compare_with(new, progress)

    def _rows(self, matched: Matched, names: list[str]) -> Int64[np.ndarray, "_"]:
        """Rows of the pairs that match in some of the images."""
        among, points = self.matched.pairs(names), len(self.matched.scene.points)
        return np.flatnonzero(np.isin(matched.keypoint_rows * points + matched.point_rows, among[0] * points + among[1]))

    def _around(self, matched: Matched, one: WeighedPose) -> list[str]:
        """Names of images that are not matched yet and know what the camera of a pose would see, most of it first."""
        if not self.options.compared:
            return []
        images, inliers = self.matched.scene.images, matched.point_rows[one.evidence.rows]
        names = [
            name for name, together in zip(images, covisible(inliers, self._seen, len(matched.points)), strict=True) if together
        ]
        shown = ShownPoints.by(
            matched, one.estimate, one.evidence, views_of(self.matched.scene), [images[name].point_rows for name in names]
        )
        left = np.zeros(len(matched.points), dtype=bool)
        left[shown.point_rows] = True
        for name in self.matched.examined:
            left[images[name].point_rows] = False
        chosen: list[str] = []
        while len(chosen) < self.options.compared and left.any():
            counts = [int(left[images[name].point_rows].sum()) for name in names]
            best = int(np.argmax(counts))
            if counts[best] < self.options.min_inliers:
                break
            left[images[names[best]].point_rows] = False
            chosen.append(names[best])
        return chosen

    @cached_property
    def _seen(self) -> list[Int64[np.ndarray, "observed"]]:
        """Rows of the points that each image of the map observes."""
        return [image.point_rows for image in self.matched.scene.images.values()]

    def _elsewhere(self, localization: Localization, estimate: Estimate) -> Iterable[str]:
        """Names of the images that the query looks like for other reasons than what the poses show, the most similar first.

        Of images that are ranked by name alone, these are the ones that observe no inlier.
        """
        ranked, scene, matched = self.ranked, self.matched.scene, self._pairs
        shown = [matched.point_rows[weigh(matched, other.estimate, views_of(scene)).rows] for other in self._others]
        point_rows = np.unique(np.concatenate([localization.point_rows, *shown]))
        poses = [estimate, *(other.estimate for other in self._others)]
        if not isinstance(ranked, RankedImages):
            inlier = np.zeros(len(scene.points), dtype=bool)
            inlier[point_rows] = True
            return (name for name in ranked if not inlier[scene.images[name].point_rows].any())
        votes = self._features(ranked.keypoint_rows, ranked.point_rows)

        def here(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            """Whether a pose shows two points within twice the threshold of each other."""
            return np.any([_together(pose, scene.points[one], scene.points[other], votes) for pose in poses], axis=0)

        explained = np.any([votes.agrees(votes.projected(pose), 2.0) for pose in poses], axis=0)
        return ranked.elsewhere(explained, point_rows, here)

    @property
    def _pairs(self) -> Matched:
        """The pairs with all images that are matched so far."""
        count = len(self.matched.examined)
        if count not in self._paired:
            self._paired = {count: self.features() if self.features else self._features(*self.matched.pairs())}
        return self._paired[count]

    def _features(self, keypoint_rows: Int64[np.ndarray, "pairs"], point_rows: Int64[np.ndarray, "pairs"]) -> Matched:
        scene, options = self.matched.scene, self.options
        return features_of(self.camera, self.observations, keypoint_rows, point_rows, scene.points, options)


def _together(
    estimate: Estimate, one: Float64[np.ndarray, "pairs 3"], other: Float64[np.ndarray, "pairs 3"], votes: Matched
) -> Bool[np.ndarray, "pairs"]:
    """Mask of pairs of points that a pose shows within twice the inlier threshold of each other."""
    reach = 2 * votes.max_error_px / estimate.camera.focal_px
    first, second = estimate.pose.apply(one), estimate.pose.apply(other)
    ahead = np.minimum(first[:, 2], second[:, 2]) > 1e-9
    gap = first[:, :2] * second[:, 2:] - second[:, :2] * first[:, 2:]
    return ahead & (np.linalg.norm(gap, axis=1) <= reach * first[:, 2] * second[:, 2])


def features_of(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    options: LocalizeOptions,
) -> Matched:
    """Pairs of a query's features and a map's points with the thresholds and the seed of `options`; see `matched_features`."""
    limit = options.line_error_px if isinstance(observations, Lines) else options.max_error_px
    return matched_features(camera, observations, keypoint_rows, point_rows, points, max_error_px=limit, seed=options.seed)

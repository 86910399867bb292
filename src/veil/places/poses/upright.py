"""Localization of keypoints with gravity, in words or by their positions alone (docs/theory/words_upright.md).

Pairs of candidates give upright poses, all keypoints test them, and the best is refined in all six degrees of freedom. It is
weighed by the number of keypoints that lie beside points, and by their words, against chance.

Without words every keypoint may show every point of the map that a near image shows at about the same place. Two such guesses
give an upright pose; almost all are wrong, and the test by all keypoints tells (words_upright.md#positions-alone). That is a
form of localization and an attack at once: whoever has a map can run it on positions that somebody sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.spatial import cKDTree

from veil.errors import InputError, Remedy
from veil.geometry.camera import Camera, zoomed
from veil.geometry.free_calibration import FreeCamera, calibrated
from veil.geometry.rigid import Rigid
from veil.geometry.robust.pose_and_focal import is_searched
from veil.geometry.robust.significance import P3P, SAME_PX, apart, pose_log10_samples
from veil.geometry.robust.upright_search import nothing_kept
from veil.matching.inverted_index import Candidates
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import COIN, PoseEvidence, beyond_chance, coin
from veil.places.poses.joint import LEAST_FITTED, fitted_to, settled
from veil.places.poses.judge import Claim, Contest, WeighedPose, judge, rivals
from veil.places.poses.matches import Estimate, MatchedPoints
from veil.places.poses.mirror import mirrored_down, mirrored_keypoints, unless_mirrored
from veil.places.poses.options import PositionOptions, WordOptions
from veil.places.poses.upright_problem import UprightProblem
from veil.progress import Progress
from veil.scene import Scene, views_of

# Distance in pixels and directions of points that are shown beside their true places, to count pairs by chance there.
SHIFTS_PX, DIRECTIONS = (12.0, 20.0, 30.0), 6
# Evidence is counted within these parts of the largest distance of a pair.
PARTS = (1.0, 0.5)
# A pair of a keypoint and a point near it is taken to be right with this probability when its words are weighed.
RIGHT = 0.5
# A pose is asked among all pairs of a keypoint and a point that it shows within this distance, in pixels, whether a camera of
# another calibration explains more of them.
AROUND_PX = 15.0
# Rounds in which the pairs of a pose are gathered anew and the pose is fitted to them; the first ones reach farther.
ROUNDS, WIDE_ROUNDS, WIDE = 8, 3, 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class UprightEvidence:
    """An estimated pose with the keypoints that lie beside points it shows.

    `keypoint_rows[i]` lies beside `point_rows[i]`, each of both at most once. `expected` is how many such pairs chance gives.
    `log10_nfa` is the expected number of poses as good by chance.
    """

    estimate: Estimate
    keypoint_rows: Int64[np.ndarray, "pairs"]
    point_rows: Int64[np.ndarray, "pairs"]
    expected: float
    log10_nfa: float

    def __len__(self) -> int:
        return len(self.keypoint_rows)

    @property
    def evidence(self) -> PoseEvidence:
        """The same for the judge, with the pairs numbered as they come."""
        return PoseEvidence(rows=np.arange(len(self)), log10_nfa=self.log10_nfa, expected=self.expected)


@dataclass(frozen=True, kw_only=True, eq=False)
class UprightWeighing:
    """Weighs poses of one problem by all keypoints.

    - `unshared`: log likelihood ratio of each feature's words and a point with which they share none.
    """

    problem: UprightProblem
    unshared: Float64[np.ndarray, "features"]

    @cached_property
    def _log_odds(self) -> dict[tuple[int, int], float]:
        """Log likelihood ratio of the words of each pair that shares one."""
        candidates = self.problem.candidates
        pairs = zip(candidates.keypoint_rows.tolist(), candidates.point_rows.tolist(), strict=True)
        return dict(zip(pairs, candidates.log_odds.tolist(), strict=True))

    @cached_property
    def places(self) -> Bool[np.ndarray, "features"]:
        """Mask of the keypoints that count if those at one place count once."""
        return apart(self.problem.seen, SAME_PX / self.problem.camera.focal_px)

    @cached_property
    def _all_seen(self) -> cKDTree:
        """The places of all keypoints."""
        return cKDTree(self.problem.seen)

    def weighed(
        self,
        estimate: Estimate,
        *,
        keypoints: Bool[np.ndarray, "features"] | None = None,
        points: Bool[np.ndarray, "points"] | None = None,
        offsets: Float64[np.ndarray, "5"] | None = None,
    ) -> UprightEvidence:
        """Evidence for a pose among the `keypoints` and `points` (masks), by default all (words_upright.md#evidence).

        `offsets` are those of a free calibration (`FreeCamera`); the focal length is then theirs, not that of the estimate.
        Of the numbers of pairs within the `PARTS` of the limit the least likely one counts.
        """
        problem = self.problem
        allowed = np.flatnonzero(self.places if keypoints is None else self.places & keypoints)
        seen = cKDTree(problem.seen[allowed])
        rows, projected = self.visible(estimate, offsets)
        if points is not None:
            rows, projected = rows[points[rows]], projected[points[rows]]
        limit = problem.options.match_px / problem.camera.focal_px
        most = -math.inf
        widest: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        expected = 1.0
        for part in PARTS:
            first, second = mutual(projected, seen, part * limit)
            chance = max(1.0, self._by_chance(projected, seen, part * limit))
            total = deviance(len(first), chance) + self.words(allowed[first], rows[second])
            if part == PARTS[0]:
                widest, expected = (allowed[first], rows[second]), chance
            most = max(most, total)
        count = len(widest[0])
        # Each pose is one of those of three pairs, and each number of pairs one more test.
        tests = (
            pose_log10_samples(seen.n, P3P) + P3P.size * math.log10(max(len(problem.scene.points), 1)) + math.log10(len(PARTS))
        )
        log10_nfa = tests - most / math.log(10) if count > P3P.size else math.inf
        return UprightEvidence(
            estimate=estimate, keypoint_rows=widest[0], point_rows=widest[1], expected=expected, log10_nfa=log10_nfa
        )

    def improved(self, evidence: UprightEvidence) -> UprightEvidence:
        """The best evidence of a pose and of those that the refinement leads to from it."""
        estimate = evidence.estimate
        rows, _ = self.visible(estimate)
        retried = [replace(estimate, pose=pose, fit=None) for pose in self.problem.retried(estimate.pose, rows)]
        others = [self.weighed(self.fitted(other)) for other in retried]
        return min([evidence, *others], key=lambda one: one.log10_nfa)

    def fitted(self, start: Estimate) -> Estimate:
        """The pose and focal length that fit the pairs of keypoints and points near them, gathered anew in each round."""
        match_px, estimate = self.problem.options.match_px, start
        for index in range(ROUNDS):
            matched = self.matched(estimate, match_px * (WIDE if index < WIDE_ROUNDS else 1.0))
            rows = np.arange(len(matched.keypoint_rows))
            if len(rows) < LEAST_FITTED:
                break
            estimate = fitted_to(matched, estimate, rows)
        return estimate

    def matched(self, estimate: Estimate, limit_px: float) -> MatchedPoints:
        """Pairs of keypoints and points that an estimate shows nearest to each other, within `limit_px`."""
        return self._matched(*self.pairs(estimate, limit_px), limit_px)

    def around(self, estimate: Estimate, reach_px: float) -> MatchedPoints:
        """All pairs of a keypoint and a point that an estimate shows within `reach_px`; they agree within the usual limit."""
        rows, projected = self.visible(estimate)
        near = self._all_seen.query_ball_point(projected, reach_px / self.problem.camera.focal_px, return_sorted=True)
        keypoint_rows = np.concatenate([np.empty(0, dtype=np.int64), *(np.asarray(own, dtype=np.int64) for own in near)])
        point_rows = np.repeat(rows, [len(own) for own in near])
        return self._matched(keypoint_rows, point_rows, self.problem.options.match_px)

    def _matched(
        self, keypoint_rows: Int64[np.ndarray, "pairs"], point_rows: Int64[np.ndarray, "pairs"], limit_px: float
    ) -> MatchedPoints:
        return MatchedPoints(
            camera=self.problem.camera,
            observations=self.problem.keypoints,
            keypoint_rows=keypoint_rows,
            point_rows=point_rows,
            points=self.problem.scene.points,
            max_error_px=limit_px,
            seed=self.problem.seed,
        )

    def pairs(self, estimate: Estimate, limit_px: float) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows of keypoints and of points that an estimate shows nearest to each other, within `limit_px`."""
        rows, projected = self.visible(estimate)
        first, second = mutual(projected, self._all_seen, limit_px / self.problem.camera.focal_px)
        return first, rows[second]

    def visible(
        self, estimate: Estimate, offsets: Float64[np.ndarray, "5"] | None = None
    ) -> tuple[Int64[np.ndarray, "visible"], Float64[np.ndarray, "visible 2"]]:
        """Rows of the map's points that the camera could see, and their places in the declared camera's normalized plane."""
        problem, pose = self.problem, estimate.pose
        if offsets is None:
            camera = estimate.camera
            offsets = np.array([math.log(camera.focal_px / problem.camera.focal_px), 0.0, 0.0, 0.0, 0.0])
        else:
            camera = zoomed(problem.camera, math.exp(offsets[0]))
        in_camera = pose.apply(problem.scene.points)
        ahead = np.flatnonzero(in_camera[:, 2] > 1e-9)
        xy = calibrated(in_camera[ahead, :2] / in_camera[ahead, 2:], offsets)
        within = (np.abs(xy) <= problem.half).all(axis=1)
        ahead, xy = ahead[within], xy[within]
        possible = views_of(problem.scene).possible(camera, pose, problem.scene.points, ahead)
        return ahead[possible], xy[possible]

    def claimed(self, **parts: Any) -> Claim:
        """The claim of a pose for the judge, of its fields beside `doubt`."""
        return Claim(doubt=self.doubt, **parts)

    def doubt(self, other: FreeCamera, declared: FreeCamera) -> float:
        """Twice the log likelihood ratio of two cameras, by all keypoints and their words (words_upright.md, Eq. 9 and 10)."""
        first, second = (
            self.weighed(Estimate(pose=one.pose, camera=self.problem.camera), offsets=one.offsets) for one in (other, declared)
        )
        return 2 * math.log(10) * (second.log10_nfa - first.log10_nfa) if math.isfinite(first.log10_nfa) else -math.inf

    def _by_chance(self, projected: np.ndarray, seen: cKDTree, limit: float) -> float:
        """Mean number of pairs where all points are shown beside their places."""
        angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
        counts = [
            len(mutual(projected + shift / self.problem.camera.focal_px * np.array([math.cos(a), math.sin(a)]), seen, limit)[0])
            for shift in SHIFTS_PX
            for a in angles
        ]
        return float(np.mean(counts))

    def log_odds_of_words(self, evidence: UprightEvidence) -> float:
        """Log likelihood ratio of the words of a pose's pairs, if those beyond chance are right (words_upright.md, Eq. 12)."""
        if not len(evidence):
            return 0.0
        right = max(0.0, 1.0 - evidence.expected / len(evidence))
        return self.words(evidence.keypoint_rows, evidence.point_rows, right)

    def words(self, keypoint_rows: np.ndarray, point_rows: np.ndarray, right: float = RIGHT) -> float:
        """Log likelihood ratio of the words of pairs, each of which is right with probability `right`."""
        total = 0.0
        for keypoint, point in zip(keypoint_rows.tolist(), point_rows.tolist(), strict=True):
            odds = self._log_odds.get((keypoint, point), float(self.unshared[keypoint]))
            total += math.log(1 - right + right * math.exp(min(odds, 600.0)))
        return total


def mutual(
    projected: Float64[np.ndarray, "visible 2"], seen: cKDTree, limit: float
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Rows of keypoints `seen` (a tree of their places) and of projections nearest to each other, within `limit`."""
    if not len(projected) or not seen.n:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    nearest_seen = seen.query(projected, distance_upper_bound=limit)[1]
    gap, nearest = cKDTree(projected).query(seen.data, distance_upper_bound=limit)
    keypoints = np.flatnonzero(np.isfinite(gap))
    chosen = nearest[keypoints]
    mutual = nearest_seen[chosen] == keypoints
    return keypoints[mutual].astype(np.int64), chosen[mutual].astype(np.int64)


def deviance(count: int, expected: float) -> float:
    """Bound of -log of the probability of at least `count` pairs where `expected` are (Chernoff's, of a Poisson law)."""
    return count * math.log(count / expected) - (count - expected) if count > expected else 0.0


# Samples between two looks at the clock.
PORTION = 250_000
# A pose is refused whose pairs have words that are e^7 = 1,000 times likelier if none of them is right. Of right poses that is
# one in 1,000 at most (words_upright.md, Eq. 12).
AGAINST = -7.0

BY_CHANCE = (
    "the best pose shows points of the map at {inliers} of {count} keypoints, which chance also gives (log10 of "
    "expected chance poses {log10_nfa:.1f}); "
)

CONTRADICTED = (
    "the best pose shows points of the map at {} of {} keypoints, but their words speak against it; is the picture mirrored, "
    "or the place symmetric?"
)


def localize_upright(
    problem: UprightProblem,
    unshared: Float64[np.ndarray, "features"],
    *,
    options: WordOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query in words from keypoints and gravity, or say why no pose is better than chance.

    - `problem`: the query's keypoints, gravity and candidates, and the map.
    - `unshared`: log likelihood ratio of each feature's words and any point with which they share none.
    - `options`: thresholds, and limits of the search.
    - `progress`: called with the number of pairs that are drawn and of all.
    """
    weighing = UprightWeighing(problem=problem, unshared=unshared)
    return best_upright(weighing, found(problem, options, progress), options)


def best_upright(weighing: UprightWeighing, searches: Iterable[Sequence[Rigid]], options: WordOptions) -> Localization | NoPose:
    """The answer that the best pose gives, after it was fitted and judged, of the first search that is beyond chance."""
    problem, weighed = weighing.problem, list[UprightEvidence]()
    count = problem.queried
    for poses in searches:
        starts = [Estimate(pose=pose, camera=problem.camera) for pose in poses]
        weighed = sorted((weighing.weighed(weighing.fitted(start)) for start in starts), key=lambda one: one.log10_nfa)
        if weighed and beyond_chance(weighed[0].evidence, options):
            break
    if not weighed:
        return NoPose(reason=f"no pose of the search explains the {count} features; {problem.doubt}", correspondences=count)
    best = weighing.improved(weighed[0]) if beyond_chance(weighed[0].evidence, options) else weighed[0]
    matched, evidence = pairs_around(weighing, best), best.evidence

    def against(_: PoseEvidence) -> str | None:
        contradicted = weighing.log_odds_of_words(best) < AGAINST
        return CONTRADICTED.format(len(best), len(problem.keypoints)) if contradicted else None

    claim = weighing.claimed(
        estimate=settled(weighing.matched(best.estimate, problem.options.match_px), best.estimate),
        evidence=evidence,
        matched=matched,
        views=views_of(problem.scene),
        observed=None,
        unchecked=lambda: evidence,
        against=against,
        by_chance=BY_CHANCE + problem.doubt,
        correspondences=count,
        count=len(problem.keypoints),
        margin=problem.options.margin,
    )
    contest = UprightContest(weighing=weighing, best=best)
    others = [other.estimate for other in weighed[1:]]
    return judge(claim, lambda: rivals(contest, claim, options, known=others).equal, options)


def found(problem: UprightProblem, options: WordOptions, progress: Progress | None) -> Iterator[list[Rigid]]:
    """The few best poses of a search, refined, the best first; then those of `longer` times as many samples."""
    upright = problem.options
    if not len(problem.sampled.keypoint_rows) or not problem.sampled.shares[-1] > 0:
        return
    kept, done, used, in_time = nothing_kept(upright.kept), 0, 0.0, True
    for wanted in sorted({upright.samples, upright.samples * upright.longer}):
        while in_time and done < wanted:
            portion, started = min(PORTION, wanted - done), time.thread_time()
            # Seed and number of samples share the 64 bits that start a search.
            problem.draw(kept, samples=portion, seed=(problem.seed << 40) + done + 1)
            used = 0.0 if not done else used + time.thread_time() - started  # the first may compile code
            done += portion
            if progress is not None:
                progress(done, wanted)
            in_time = options.max_seconds is None or used <= options.max_seconds
        yield problem.refined(kept)[: upright.compared]
        if not in_time:
            return


def pairs_around(weighing: UprightWeighing, best: UprightEvidence) -> MatchedPoints:
    """All pairs of a keypoint and a point that a pose shows around it; those that are its evidence come first.

    Pairs that agree with the pose alone would let no other calibration explain more.
    """
    near = weighing.around(best.estimate, AROUND_PX)
    points = len(weighing.problem.scene.points)
    more = ~np.isin(near.keypoint_rows * points + near.point_rows, best.keypoint_rows * points + best.point_rows)
    return replace(
        near,
        keypoint_rows=np.concatenate([best.keypoint_rows, near.keypoint_rows[more]]),
        point_rows=np.concatenate([best.point_rows, near.point_rows[more]]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class UprightContest(Contest):
    """The contest of poses that all keypoints test, each among the keypoints and points that the pose `best` leaves."""

    weighing: UprightWeighing
    best: UprightEvidence

    def others(
        self, pose: WeighedPose, needed: int, *, among: Int64[np.ndarray, "_"] | None, known: Sequence[Estimate]
    ) -> Iterator[Estimate]:
        """None: the search has kept the poses that come next."""
        return iter(())

    def weighed(self, other: Estimate) -> PoseEvidence:
        """Evidence among the keypoints and points that are left."""
        problem = self.weighing.problem
        keypoints, points = np.ones(len(problem.keypoints), dtype=bool), np.ones(len(problem.scene.points), dtype=bool)
        keypoints[self.best.keypoint_rows] = False
        points[self.best.point_rows] = False
        return self.weighing.weighed(other, keypoints=keypoints, points=points).evidence

    def clearly_better(self, first: WeighedPose, second: WeighedPose) -> bool:
        """Whether the first pose has clearly more pairs above chance.

        Thousands of points give pairs by chance, which one pose takes from the other: what is above chance is compared.
        """
        return coin(first.evidence.above_chance, second.evidence.above_chance) <= COIN

    def is_same(self, pose: WeighedPose, other: WeighedPose) -> bool:
        """False: no pair is shared."""
        return False


# Positions alone share no word with any point.
_NOTHING = np.empty(0, dtype=np.int64)
NO_CANDIDATES = Candidates(keypoint_rows=_NOTHING, point_rows=_NOTHING, log_odds=np.empty(0))


@dataclass(frozen=True, kw_only=True, eq=False)
class PositionProblem(UprightProblem):
    """A query of positions alone as a search problem: all guesses within `reach` are equally likely, and no word tests them."""

    @property
    def queried(self) -> int:
        """Number of keypoints, each of which may show a point."""
        return len(self.keypoints)

    @property
    def doubt(self) -> str:
        """Possible fault where no pose is beyond chance, as a question."""
        return "does the query show what these images show, and are its gravity and the map's right?"


def localize_positions(
    camera: Camera,
    keypoints: Float32[np.ndarray, "features 2"],
    scene: Scene,
    *,
    gravity: Float64[np.ndarray, "3"] | None,
    near: Sequence[str],
    options: PositionOptions | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query from its keypoint positions and gravity alone, or say why no pose is better than chance.

    - `camera`: intrinsics and size of the query's image, in pixels; the focal length must be known.
    - `keypoints`: positions in pixels from the top-left corner.
    - `scene`: the map, whose gravity must be known; its descriptors are not used.
    - `gravity`: unit vector of down in the query's camera frame.
    - `near`: names of the few map images that the query is known to be near. Time for each is short: give two or three.
    - `options`: thresholds and limits; `progress` is called with the number of samples drawn and of all.

    Raises InputError where gravity of query or map, or the focal length, is unknown, where `near` names no image of the map, or
    there are no keypoints.
    """
    options = options or PositionOptions()
    if gravity is None or scene.down is None:
        whose = "query" if gravity is None else "map"
        raise InputError(
            f"positions alone are localized with gravity, and that of the {whose} is unknown",
            remedy=Remedy("give", "Protection.gravity") if gravity is None else Remedy("give", "map_images.gravity"),
        )
    if is_searched(camera.focal):
        raise InputError(
            "positions alone are localized with a known focal length only, and this one is a guess",
            remedy=Remedy("give", "Features.camera"),
        )
    unknown = sorted(set(near) - set(scene.images))
    if unknown or not near:
        names = f"the map holds no image {', '.join(unknown)}" if unknown else "positions alone need images that they are near"
        raise InputError(names, remedy=Remedy("give", "localize.near"))
    if not len(keypoints):
        raise InputError("there are no positions to localize")
    problem = PositionProblem(
        camera=camera,
        keypoints=keypoints,
        gravity=gravity,
        candidates=NO_CANDIDATES,
        scene=scene,
        names=list(dict.fromkeys(near)),
        options=options.upright,
        seed=options.seed,
    )
    turned = replace(problem, keypoints=mirrored_keypoints(camera, keypoints), gravity=mirrored_down(gravity))
    words = WordOptions(
        max_error_px=options.max_error_px,
        line_error_px=options.line_error_px,
        min_inliers=options.min_inliers,
        max_log10_nfa=options.max_log10_nfa,
        max_turn_deg=options.max_turn_deg,
        upright=options.upright,
        seed=options.seed,
        max_seconds=options.max_seconds,
    )
    unshared = np.zeros(len(keypoints))
    answer = localize_upright(problem, unshared, options=words, progress=progress)
    return unless_mirrored(answer, lambda: localize_upright(turned, unshared, options=words).log10_nfa)

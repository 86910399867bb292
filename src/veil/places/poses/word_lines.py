"""The pose problem of words with lines, and its search (words.md#search-among-lines).

Samples of candidates of one mapped image are tested by that image's candidates, and the best poses refined by all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.errors import InputError, Remedy
from veil.forms import Lines
from veil.geometry.anchors import are_of_halves
from veil.geometry.camera import FRAME_SLACK, Camera, half_extent
from veil.geometry.gravity import aligned_from_cam
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.robust.grouped import GroupedConsensus, GroupedOptions, consensus_of
from veil.geometry.robust.line_search import SAMPLE, LineSamples, LineTest, search_lines
from veil.geometry.robust.ransac import samples_needed
from veil.geometry.robust.resection_lines import LOSS_PX, MIN_OTHER_LINES, LineResection
from veil.geometry.robust.significance import (
    ALONG_ONE_WAY,
    LINE_FLOOR,
    SAME_PX,
    UPRIGHT_LINES,
    Background,
    LineBackground,
    apart_lines,
    line_agreement,
)
from veil.geometry.robust.upright_search import Kept, nothing_kept
from veil.matching.inverted_index import Candidates
from veil.places.poses.options import WordOptions
from veil.places.poses.upright_problem import MOST_LOG_ODDS, limits_of
from veil.places.poses.word_points import PointWords, WordProblem
from veil.progress import Progress
from veil.scene import Scene

# Share of a query's features that are expected to show a point of one mapped image, and the most that a candidate is believed:
# what looks alike in several places has the same words. Both are low, as beliefs that are too strong speak against right poses
# of images that share little with the query.
SHARE_OF_FEATURES, MOST_BELIEF = 0.02, 0.3
# The likeliest candidates of an image that are drawn and asked, and after how many of them a pose goes on if they sum to more.
MOST_CANDIDATES, BATCHES, LEAST_SUMS = 2048, (64, 256), (-2.0, -1.0)
# Samples of lines for each one of the grouped search, and the most of them. They cost a hundredth, and are clean less often.
SAMPLES, MOST_SAMPLES = 100, 2_000_000
# Samples of the first round; each further one has as many as all before. So many poses are refined after a round.
FIRST_ROUND, KEPT, REFINED = 25_000, 100, 8
# Widths of the refinement, rounds with each, the weight of a candidate that counts, and the loss in standard deviations.
WIDTHS, EACH, LEAST_WEIGHT, LOSS_SIGMAS = 5, 2, 0.02, 2.0
# So many of the likeliest poses are weighed against chance; those turned by less than this to each other are one.
COMPARED, SAME_REFINED_DEG = 4, 0.05

# Pose of least squares from a pose, rows of the problem's candidates, their weights, and the scale of the loss in pixels.
Fit = Callable[[Rigid, np.ndarray, np.ndarray, float], Rigid | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class LineSearch:
    """The search among the candidates of one problem of words with lines.

    - `problem`: what refines and weighs poses.
    - `sampled`, `tested`: what samples are drawn from and tested by; `taken` are their candidates, as rows of the query's.
    - `rows`, `belief`: the same candidates, each once, as rows of the problem, and how much each is believed at most.
    - `up_from_world`: rotation that makes the map's gravity the y-axis.
    - `sigma_px`: standard deviation of the distance of right lines in the search.
    - `fit`: what fits poses to weighted candidates.
    """

    problem: WordProblem
    sampled: LineSamples
    tested: LineTest
    taken: Int64[np.ndarray, "_"]
    rows: Int64[np.ndarray, "candidates"]
    belief: Float64[np.ndarray, "candidates"]
    up_from_world: Float64[np.ndarray, "3 3"]
    sigma_px: float
    fit: Fit

    def best(self, search: GroupedOptions, progress: Progress | None = None) -> GroupedConsensus | None:
        """Of the likeliest refined poses the one that chance gives least; None if no sample gives a pose.

        `search` holds the number of samples of the grouped search, of which this one draws `SAMPLES` times as many, the
        confidence with which it ends before, and the limit of processor time. `progress` is called with the samples drawn and
        needed.
        """
        problem, sampled = self.problem, self.sampled
        most = enough = min(SAMPLES * search.max_iterations, MOST_SAMPLES)
        kept = nothing_kept(KEPT)
        limits = limits_of(problem.options.upright, likely=0, batches=BATCHES, least=LEAST_SUMS)
        tried: set[bytes] = set()
        refined: list[tuple[float, Rigid]] = []
        done, used = 0, 0.0
        while done < enough:
            started, portion = time.thread_time(), min(max(done, FIRST_ROUND), most - done)
            search_lines(kept, sampled, self.tested, limits, samples=portion, seed=(search.seed << 40) + done + 1)
            done += portion
            before = refined[0][0] if refined else -math.inf
            for row in kept.best()[:REFINED]:
                if kept.turns[row].tobytes() not in tried:
                    tried.add(kept.turns[row].tobytes())
                    refined.append(self._refined(kept, int(row)))
            refined.sort(key=lambda one: -one[0])
            if refined and refined[0][0] > before:
                consensus = self._consensus(refined[0][1], done)
                if self._chance(consensus) <= problem.options.max_log10_nfa:
                    enough = min(most, samples_needed(self._clean_share(consensus.rows), search.confidence))
            used = 0.0 if done == portion else used + time.thread_time() - started  # the first round may compile code
            if progress is not None:
                progress(min(done, enough), enough)
            if search.max_seconds is not None and used > search.max_seconds:
                break
        # Where things repeat, the likeliest poses are nearly as likely: of these, chance decides.
        distinct: list[Rigid] = []
        for _, pose in refined:
            if all(rotation_angle_deg(pose.rotation @ other.rotation.T) > SAME_REFINED_DEG for other in distinct):
                distinct.append(pose)
        return min((self._consensus(pose, done) for pose in distinct[:COMPARED]), key=self._chance, default=None)

    def _refined(self, kept: Kept, row: int) -> tuple[float, Rigid]:
        """A kept pose after rounds of least squares over all candidates, weighted by how likely each is right, after its score.

        Right lines pass ever nearer to their points, from the width of the search to that of the result (Eq. 24).
        """
        cos, sin, *shift = kept.turns[row]
        heading = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]])
        cam_from_up, problem = self.tested.cam_from_up, self.problem
        pose = Rigid(rotation=cam_from_up @ heading @ self.up_from_world, translation=cam_from_up @ np.array(shift))
        for sigma_px in np.geomspace(self.sigma_px, problem.limit_px / 2, WIDTHS):
            for _ in range(EACH):
                near = self._near(pose, float(sigma_px))
                weights = near / (1 - self.belief + near)
                used = weights > LEAST_WEIGHT
                fitted = self.fit(pose, self.rows[used], weights[used], LOSS_SIGMAS * float(sigma_px))
                if fitted is None:
                    break
                pose = fitted
        return float(np.log(1 - self.belief + self._near(pose, problem.limit_px / 2)).sum()), pose

    def _near(self, pose: Rigid, sigma_px: float) -> Float64[np.ndarray, "candidates"]:
        """Belief in each candidate times the likelihood ratio of its distance to its line."""
        problem = self.problem
        squared = (problem.residuals(pose, self.rows) * problem.camera.focal_px / sigma_px) ** 2
        return self.belief * _peak(problem, sigma_px) * np.exp(-squared / 2)

    def _consensus(self, pose: Rigid, done: int) -> GroupedConsensus:
        """The inliers of a refined pose within the threshold of the result, after least squares over them."""
        problem = self.problem
        return problem.polished(consensus_of(problem.groups, pose, problem.limit_px / problem.camera.focal_px, done))

    def _chance(self, consensus: GroupedConsensus) -> float:
        """log10 of the number of poses as good that chance gives."""
        return self.problem.weighed(self.problem.counted(consensus), consensus.pose)

    def _clean_share(self, inliers: Int64[np.ndarray, "inliers"]) -> float:
        """Probability that a sample holds inliers only (docs/theory/words.md, Eq. 23)."""
        sampled = self.sampled
        right = np.isin(self.taken, self.problem.order[inliers])
        beliefs = np.concatenate([[0.0], np.cumsum(sampled.belief)])[sampled.starts]
        agreeing = np.concatenate([[0.0], np.cumsum(sampled.belief * right)])[sampled.starts]
        shares = np.diff(agreeing) / np.maximum(np.diff(beliefs), 1e-300)
        return float((np.diff(sampled.shares, prepend=0.0) * shares**SAMPLE).sum())


def line_search(
    problem: WordProblem,
    candidates: Candidates,
    names: Sequence[str],
    down_cam: Float64[np.ndarray, "3"],
    down_world: Float64[np.ndarray, "3"],
    fit: Fit,
) -> LineSearch | None:
    """The search of a problem whose features are lines; None where no mapped image has four candidates that words speak for.

    `candidates` are the problem's, `names` the mapped images; `down_cam` and `down_world` are gravity, unit vectors; `fit` fits
    poses to weighted candidates.
    """
    up_from_cam, up_from_world = aligned_from_cam(down_cam), aligned_from_cam(down_world)
    likely = np.flatnonzero(candidates.log_odds > 0)
    rows: list[np.ndarray] = []
    beliefs: list[np.ndarray] = []
    for name in names:
        own, belief = _believed(likely, candidates, problem.scene, name)
        rows.append(own)
        beliefs.append(belief)
    usable = np.array([float(len(own) >= SAMPLE) for own in rows])
    if not usable.any():
        return None
    taken = np.concatenate(rows)
    sampled = LineSamples(
        lines=np.ascontiguousarray(problem.shown @ up_from_cam.T),
        points=np.ascontiguousarray(problem.scene.points @ up_from_world.T),
        centers=np.array([up_from_world @ problem.scene.images[name].cam_from_world.center for name in names]),
        starts=np.cumsum([0, *(len(own) for own in rows)]).astype(np.int64),
        line_rows=candidates.keypoint_rows[taken].astype(np.int64),
        point_rows=candidates.point_rows[taken].astype(np.int64),
        belief=np.concatenate(beliefs),
        cumulative=np.concatenate([np.cumsum(belief) / max(float(belief.sum()), 1e-300) for belief in beliefs]),
        shares=np.cumsum(usable) / usable.sum(),
    )
    # In the search gravity is off as well, so that right lines pass farther from their points.
    sigma_px = problem.search_px - problem.limit_px / 2
    tested = LineTest(
        seen=np.ascontiguousarray(problem.shown, dtype=np.float64),
        half_extent=FRAME_SLACK * half_extent(problem.camera),
        cam_from_up=np.ascontiguousarray(up_from_cam.T),
        peak=_peak(problem, sigma_px),
        inverse_variance=(problem.camera.focal_px / sigma_px) ** 2,
    )
    belief = np.zeros(len(candidates))
    np.maximum.at(belief, taken, sampled.belief)
    belief = belief[problem.order]
    used = np.flatnonzero(belief)
    return LineSearch(
        problem=problem,
        sampled=sampled,
        tested=tested,
        taken=taken,
        rows=used,
        belief=belief[used],
        up_from_world=up_from_world,
        sigma_px=sigma_px,
        fit=fit,
    )


def _peak(problem: WordProblem, sigma_px: float) -> float:
    """Density of right lines' distances at zero, over that of wrong ones."""
    return 2 / (math.sqrt(2 * math.pi) * sigma_px * problem.agreement(1.0))


def _believed(
    likely: Int64[np.ndarray, "_"], candidates: Candidates, scene: Scene, name: str
) -> tuple[Int64[np.ndarray, "own"], Float64[np.ndarray, "own"]]:
    """Rows of a mapped image's candidates, of those in `likely`, and how much each is believed, the most first (Eq. 21)."""
    visible = np.zeros(len(scene.points), dtype=bool)
    visible[scene.images[name].point_rows] = True
    own = likely[visible[candidates.point_rows[likely]]]
    prior = SHARE_OF_FEATURES / max(int(visible.sum()), 1)
    odds = prior * np.exp(np.minimum(candidates.log_odds[own], MOST_LOG_ODDS))
    total = np.bincount(candidates.keypoint_rows[own], weights=odds)
    belief = np.minimum(odds / (1 - SHARE_OF_FEATURES + total[candidates.keypoint_rows[own]]), MOST_BELIEF)
    order = np.argsort(-belief, kind="stable")[:MOST_CANDIDATES]
    return own[order], belief[order]


class LineWords(WordProblem):
    """Words with lines in place of keypoints: samples of four lines, upright by the gravity of query and map."""

    sampling, floor = UPRIGHT_LINES, LINE_FLOOR

    def __init__(
        self, camera: Camera, lines: Lines, candidates: Candidates, scene: Scene, names: list[str], options: WordOptions
    ) -> None:
        if lines.gravity is None or scene.down is None:
            side = "the query" if lines.gravity is None else "the map"
            raise InputError(
                f"words with lines are localized upright, and {side} has no gravity",
                remedy=Remedy("give", "HideInLines.gravity") if lines.gravity is None else Remedy("give", "map_images.gravity"),
            )
        if are_of_halves(lines.coefficients.astype(np.float64), lines.aligned, camera):
            # Samples of four such lines mostly leave a way open (docs/theory/lines.md#lines-of-two-halves).
            raise InputError("words with convergent or parallel lines are not localized; release them with random lines")
        self.aligned, self.candidates, self.names = lines.aligned, candidates, names
        super().__init__(
            camera,
            lines,
            lines.coefficients.astype(np.float64),
            candidates,
            scene,
            names,
            options,
            limit_px=options.line_error_px,
            # Gravity off by one sigma moves a projection by f tan(sigma) near the image's center.
            search_px=options.line_error_px + camera.focal_px * math.tan(math.radians(options.gravity_sigma_deg)),
            down_cam=lines.gravity,
            down_world=scene.down,
        )

    def searched(self, search: GroupedOptions, progress: Progress | None = None) -> GroupedConsensus | None:
        """The best pose of samples of one mapped image each; where words tell no candidate from another, of uniform ones."""
        assert isinstance(self.observations, Lines) and self.observations.gravity is not None and self.scene.down is not None
        lines = line_search(self, self.candidates, self.names, self.observations.gravity, self.scene.down, self.weighted)
        return super().searched(search, progress) if lines is None else lines.best(search, progress)

    def agreement(self, limit_px: float) -> float:
        """Probability that a point at random in the picture lies within `limit_px` of a line."""
        return line_agreement(self.camera, limit_px)

    def refine(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Rigid | None:
        """The pose of robust least squares over inlier candidates, or None if their lines do not determine one."""
        return self.weighted(pose, rows, np.ones(len(rows)), LOSS_PX)

    def weighted(
        self, pose: Rigid, rows: Int64[np.ndarray, "used"], weights: Float64[np.ndarray, "used"], loss_px: float
    ) -> Rigid | None:
        """The pose of weighted least squares over candidates, with a Cauchy loss; None if their lines do not determine one."""
        keypoints = self.keypoints[rows]
        resection = LineResection(
            lines=self.shown[keypoints] * np.sqrt(weights)[:, None],
            points=self.groups.points[rows],
            aligned=self.aligned[keypoints],
            focal_px=self.camera.focal_px,
            half_extent=self.groups.half_extent,
        )
        return resection.refine(pose, np.ones(len(rows), dtype=bool), loss_px)

    def open_way(self, pose: Rigid, inliers: Int64[np.ndarray, "inliers"]) -> float:
        """log10 of the number of accidents that place the camera as well as inliers do, along gravity.

        Lines along gravity leave the height open. The other lines alone tell it: one of them places the camera, and those that
        agree are weighed against chance (docs/theory/lines.md, Eq. 29). `inliers` are rows of the candidates. It is -infinity
        where fewer than `MIN_OTHER_LINES` lines follow gravity.
        """
        aligned = self.aligned[self.candidates.keypoint_rows]
        if len(np.unique(self.candidates.keypoint_rows[aligned])) < MIN_OTHER_LINES:
            return -math.inf
        others = np.flatnonzero(~aligned)
        kept = np.searchsorted(others, np.sort(inliers[~aligned[inliers]]))
        if not len(kept):
            return math.inf
        assert isinstance(self.observations, Lines)
        alone = LinesBesideGravity(
            self.camera, self.observations, self.candidates.take(others), self.scene, self.names, self.options
        )
        rows = np.flatnonzero(np.isin(alone.order, kept))
        return alone.weighed(rows, pose, anyhow=True)

    def distances(
        self, xy: Float64[np.ndarray, "candidates 2"], seen: Float64[np.ndarray, "candidates 3"]
    ) -> Float64[np.ndarray, "candidates"]:
        """Distances of projections to lines in the normalized plane; NaN where there is no projection."""
        return np.abs((seen[:, :2] * xy).sum(axis=1) + seen[:, 2])

    def distinct(self, seen: Float64[np.ndarray, "features 3"]) -> Bool[np.ndarray, "features"]:
        """Whether each line counts, if those that coincide in the picture count once."""
        return apart_lines(seen, float(np.linalg.norm(self.groups.half_extent)), SAME_PX / self.camera.focal_px)

    @cached_property
    def background(self) -> Background:
        """The query's lines, as the background of wrong matches."""
        return LineBackground(lines=self.groups.seen, limit=1.0)


class LinesBesideGravity(LineWords):
    """Words whose lines do not follow gravity, where the pose is known but for the height: one line tells it."""

    sampling = ALONG_ONE_WAY


def word_problem(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    candidates: Candidates,
    scene: Scene,
    names: list[str],
    options: WordOptions,
) -> PointWords | LineWords:
    """The pose problem of a query in words, by what it shows of its features. Raises InputError for lines without gravity."""
    if isinstance(observations, Lines):
        return LineWords(camera, observations, candidates, scene, names, options)
    return PointWords(camera, observations, candidates, scene, names, options)

"""Search for the pose of words with lines among samples of one mapped image each (words.md#search-among-lines)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.camera import FRAME_SLACK, half_extent
from veil.geometry.gravity import aligned_from_cam
from veil.geometry.rigid import Rigid
from veil.geometry.robust.grouped import GroupedConsensus, GroupedOptions, optimized
from veil.geometry.robust.line_search import LineSamples, LineTest, search_lines
from veil.geometry.robust.upright_search import Kept, Limits, nothing_kept
from veil.localization.upright_options import UprightOptions
from veil.localization.word_poses import LineWords
from veil.matching.inverted_index import Candidates
from veil.progress import Progress
from veil.scene import Scene

# Share of a query's features that are taken to show a point of one mapped image. It is a low one: in an image that shows little
# of what the query does, candidates that are believed too much would speak against the right pose.
SHARE_OF_FEATURES = 0.05
# No candidate is believed more than this: its words may be those of another point that looks alike.
MOST_BELIEF = 0.15
# A likelihood ratio is cut off here, as in the search among points.
MOST_LOG_ODDS = 12.0
# A pose goes on after so many of the image's likeliest candidates if what they say sums to more than this.
BATCHES, LEAST_SUMS = (256,), (1.0,)
# Poses this near (share of the distance to a point; degrees) are one and the same.
SAME_PLACE, SAME_TURN_DEG = 0.05, 3.0
# Poses that the search keeps, and how many of them are refined after a round. Each round draws as many samples as all before.
KEPT, REFINED, FIRST_ROUND = 60, 12, 20_000


def search_line_words(problem: LineWords, search: GroupedOptions, progress: Progress | None = None) -> GroupedConsensus | None:
    """The pose with which most words with lines agree, of samples of four, or None if no sample gives a pose.

    - `problem`: the query's lines with candidates, whose words say more than nothing.
    - `search`: largest number of samples, limit of processor time, and seed.
    - `progress`: called with the number of samples drawn and of all.

    The best poses of each round are refined by all candidates. One more round follows the first whose best pose convinces the
    problem, as another sample may lead to a better one.
    """
    sampled = line_samples(
        problem.candidates, problem.scene, problem.names, problem.shown, problem.down_cam, problem.down_world
    )
    if not len(sampled.shares) or not sampled.shares[-1] > 0:
        return None
    tested, limits = line_test(problem), _limits(problem.options.upright)
    kept, tried, best = nothing_kept(KEPT), set[tuple[float, ...]](), None
    done, used, sure = 0, 0.0, False
    while done < search.max_iterations:
        begun, portion = time.thread_time(), min(max(done, FIRST_ROUND), search.max_iterations - done)
        search_lines(kept, sampled, tested, limits, samples=portion, seed=(search.seed << 40) + done + 1)
        done += portion
        for row in kept.best()[:REFINED].tolist():
            turn = tuple(kept.turns[row].tolist())
            if turn in tried:
                continue
            tried.add(turn)
            found = optimized(
                problem.groups, _pose(kept, row, problem), problem.search_px / problem.camera.focal_px, problem.refine, done
            )
            best = found if best is None or found.gain > best.gain else best
        if progress is not None:
            progress(done, search.max_iterations)
        if sure:
            break
        sure = best is not None and problem.convinced(best)
        used = 0.0 if done == portion else used + time.thread_time() - begun  # the first round may compile code
        if search.max_seconds is not None and used > search.max_seconds:
            break
    return best


def line_samples(
    candidates: Candidates,
    scene: Scene,
    names: Sequence[str],
    lines: Float64[np.ndarray, "features 3"],
    down_cam: Float64[np.ndarray, "3"],
    down_world: Float64[np.ndarray, "3"],
) -> LineSamples:
    """Candidates by mapped image with how much each is believed (words.md#search-among-lines).

    - `lines`: unit-normal lines of the query's features, in the normalized plane.
    - `down_cam`, `down_world`: gravity in query and map, unit vectors.

    An image with fewer than four candidates gets no samples.
    """
    up_from_cam, up_from_world = aligned_from_cam(down_cam), aligned_from_cam(down_world)
    ratios = np.exp(np.minimum(candidates.log_odds, MOST_LOG_ODDS))
    rows: list[Int64[np.ndarray, "_"]] = []
    beliefs: list[Float64[np.ndarray, "_"]] = []
    for name in names:
        shown = np.unique(scene.images[name].point_rows)
        visible = np.zeros(len(scene.points), dtype=bool)
        visible[shown] = True
        own = np.flatnonzero(visible[candidates.point_rows])
        belief = believed(candidates.keypoint_rows[own], ratios[own], points=len(shown))
        order = np.argsort(-belief, kind="stable")
        rows.append(own[order])
        beliefs.append(belief[order])
    usable = np.array([float(len(own) >= 4) for own in rows])
    taken = np.concatenate([np.empty(0, dtype=np.int64), *rows])
    return LineSamples(
        lines=np.ascontiguousarray(lines),
        upright=np.ascontiguousarray(lines @ up_from_cam.T),
        points=np.ascontiguousarray(scene.points @ up_from_world.T),
        centers=np.array([up_from_world @ scene.images[name].cam_from_world.center for name in names]).reshape(-1, 3),
        starts=np.cumsum([0, *(len(own) for own in rows)]).astype(np.int64),
        line_rows=candidates.keypoint_rows[taken].astype(np.int64),
        point_rows=candidates.point_rows[taken].astype(np.int64),
        belief=np.concatenate([np.empty(0), *beliefs]),
        cumulative=np.concatenate([np.empty(0), *(np.cumsum(own) / max(float(own.sum()), 1e-300) for own in beliefs)]),
        shares=np.cumsum(usable) / max(float(usable.sum()), 1.0),
        cam_from_up=np.ascontiguousarray(up_from_cam.T),
    )


def believed(
    features: Int64[np.ndarray, "candidates"], ratios: Float64[np.ndarray, "candidates"], *, points: int
) -> Float64[np.ndarray, "candidates"]:
    """Probability that each candidate of an image is right, as a feature shows one of its points at most.

    `features` are rows of the candidates' features, `ratios` the likelihood ratios of their words, and `points` is the number
    of points that the image sees (docs/theory/words.md, Eq. 21).
    """
    prior = SHARE_OF_FEATURES / max(points, 1)
    total = np.bincount(features, weights=prior * ratios)
    return MOST_BELIEF * prior * ratios / (1 - SHARE_OF_FEATURES + total[features])


def line_test(problem: LineWords) -> LineTest:
    """What a candidate's distance to its line says; in the search gravity is off as well (docs/theory/words.md, Eq. 22)."""
    sigma_px = problem.search_px
    wrong = problem.agreement(1.0) / 2  # density of distances of wrong candidates, per pixel on either side
    return LineTest(
        inverse_variance=(problem.camera.focal_px / sigma_px) ** 2,
        gain=1 / (math.sqrt(2 * math.pi) * sigma_px * wrong),
        half_extent=FRAME_SLACK * half_extent(problem.camera),
    )


def _limits(options: UprightOptions) -> Limits:
    """What poses must meet in the search."""
    return Limits(
        nearest=options.nearest,
        farthest=options.farthest,
        least_cosine=math.cos(math.radians(options.max_turn_deg)),
        likely=0,
        batches=np.array(BATCHES, dtype=np.int64),
        least=np.array(LEAST_SUMS),
        near=SAME_PLACE,
        near_cosine=math.cos(math.radians(SAME_TURN_DEG)),
    )


def _pose(kept: Kept, row: int, problem: LineWords) -> Rigid:
    """A kept pose as cam_from_world."""
    cos, sin, *shift = kept.turns[row]
    heading = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]])
    cam_from_up = aligned_from_cam(problem.down_cam).T
    rotation = cam_from_up @ heading @ aligned_from_cam(problem.down_world)
    return Rigid(rotation=rotation, translation=cam_from_up @ np.array(shift))

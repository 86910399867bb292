"""Grouped LO-RANSAC, which finds a camera from keypoints that each have several candidate points.

Samples are three points, or four lines where gravity is known in map and query. They come from the candidates that are most
trusted, and from those that one image of the map sees together (words.md#search-among-groups).

Local optimization and the number of samples are those of `veil.geometry.robust.ransac`. Its loop is not: `ransac` asks an
estimator for each sample in Python, and this search needs up to 200,000 samples over thousands of candidates. So samples are
drawn and scored in rounds of compiled batches, which threads share, and Python sees the best pose of each round alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import RangeError
from veil.geometry.rigid import Rigid
from veil.geometry.robust.grouped_search import FIRST_GROUPS, SMALLEST_POOL, Groups, best_candidates, search
from veil.geometry.robust.ransac import locally_optimized, samples_needed
from veil.one_line import one_line
from veil.progress import Progress
from veil.threads import shared

# A round is `STREAMS` searches of `BATCH` samples each, shared among threads; results do not depend on the number of threads.
STREAMS, BATCH = 4, 500
# Comparisons of a candidate with a pose for each sample, on average: with many candidates a keypoint, fewer samples are drawn.
COMPARISONS = 10_000
ROUNDS = 4  # of local optimization after each new best pose


@dataclass(frozen=True, kw_only=True)
class GroupedOptions:
    """Options of the search among groups of candidates, whose iterations are samples.

    - `confidence`: the search ends when with this probability one sample has held inliers only.
    - `min_iterations`, `max_iterations`: the least and the largest number of samples.
    - `max_seconds`: the search ends after this time of the processor, of all threads together; None: no limit. Other work of
      the machine does not count, nor do the first samples, which may compile code. With a limit results depend on how fast the
      processor is.
    - `seed`: of the samples.

    Raises RangeError for values out of range.
    """

    confidence: float = 0.9999
    min_iterations: int = 4000
    max_iterations: int = 200_000
    max_seconds: float | None = None
    seed: int = 0

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise RangeError(f"confidence must lie between 0 and 1, got {self.confidence!r}")
        if not 1 <= self.min_iterations <= self.max_iterations:
            raise RangeError("iterations must satisfy 1 <= min_iterations <= max_iterations")
        if self.max_seconds is not None and not 0 < self.max_seconds < math.inf:
            raise RangeError(f"max_seconds must be positive and finite, got {self.max_seconds!r}")
        # Seed and number of samples share the 64 bits that start a search.
        if not 0 <= self.seed < 1 << 24:
            raise RangeError(f"seed must lie in [0, 2^24), got {self.seed!r}")
        if not self.max_iterations < 1 << 39:
            raise RangeError(f"max_iterations must lie below 2^39, got {self.max_iterations!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupedConsensus:
    """Best pose (cam_from_world), rows of its inlier candidates (one a group at most), its gain, and samples drawn so far.

    The gain is that of docs/theory/words.md, Eq. 15.
    """

    pose: Rigid
    rows: Int64[np.ndarray, "inliers"]
    gain: float
    iterations: int


Refine = Callable[[Rigid, Int64[np.ndarray, "inliers"]], Rigid | None]


def grouped(
    *,
    group: Int64[np.ndarray, "candidates"],
    points: Float64[np.ndarray, "candidates 3"],
    point_rows: Int64[np.ndarray, "candidates"],
    seen: Float64[np.ndarray, "features 3"],
    as_lines: bool,
    half_extent: Float64[np.ndarray, "2"],
    lists: Sequence[Int64[np.ndarray, "_"]],
    down_cam: Float64[np.ndarray, "3"] | None = None,
    down_world: Float64[np.ndarray, "3"] | None = None,
    agreement: float = 0.0,
) -> tuple[Groups, Int64[np.ndarray, "candidates"]]:
    """The search's problem from candidates in order of trust, and the candidate of each of its rows.

    Candidate i says that feature `group[i]`, a row of `seen`, shows point `points[i]`, which is row `point_rows[i]` of the map.
    `seen` holds keypoints (x, y, 1), or with `as_lines` unit-normal lines, in the normalized plane, and `half_extent` bounds
    |x| and |y| there. `lists` name candidates to sample from, most trusted first; too short ones are left out. `down_cam` and
    `down_world` are unit vectors of gravity, which lines need. `agreement` is the least probability that a wrong candidate
    agrees with a pose.
    """
    _, first = np.unique(group, return_index=True)
    rank_of = np.empty(int(group.max()) + 1, dtype=np.int64)
    rank_of[group[np.sort(first)]] = np.arange(len(first))
    ranks = rank_of[group]
    order = np.argsort(ranks, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    nothing = np.array([0.0, 1.0, 0.0])
    used = [place[rows] for rows in lists if len(rows) >= (4 if as_lines else 3)]
    return Groups(
        starts=np.searchsorted(ranks[order], np.arange(len(first) + 1)).astype(np.int64),
        group=ranks[order],
        points=np.ascontiguousarray(points[order], dtype=np.float64),
        point_rows=point_rows[order].astype(np.int64),
        seen=np.ascontiguousarray(seen[group[np.sort(first)]], dtype=np.float64),
        as_lines=as_lines,
        half_extent=np.asarray(half_extent, dtype=np.float64),
        lists=np.concatenate(used) if used else np.empty(0, dtype=np.int64),
        list_starts=np.cumsum([0, *(len(rows) for rows in used)]).astype(np.int64),
        down_cam=nothing if down_cam is None else np.asarray(down_cam, dtype=np.float64),
        down_world=nothing if down_world is None else np.asarray(down_world, dtype=np.float64),
        agreement=agreement,
    ), order


def resect_grouped(
    groups: Groups,
    *,
    limit: float,
    convinced: Callable[[GroupedConsensus], bool],
    refine: Refine,
    options: GroupedOptions,
    threads: int = 2,
    progress: Progress | None = None,
) -> GroupedConsensus | None:
    """The pose with which most groups agree within `limit` (normalized plane), or None if no sample gives a pose.

    `refine` gives the pose of least squares over inlier candidates from a pose and their rows, or None where they do not
    determine one; each new best pose is refined by it. The search ends early only for a pose of which `convinced` says that
    wrong candidates do not give its inliers. `progress` is called after each round with the samples drawn and needed.
    """
    if len(groups.list_starts) < 2:
        return None
    best: GroupedConsensus | None = None
    first_gain, done, enough, used = 0.0, 0, options.max_iterations, 0.0
    while done < enough:
        candidate, seconds = _round(threads, groups, limit, options.seed, done, best.gain if best else 0.0, first_gain)
        done, used, started = done + STREAMS * BATCH, used + seconds, time.thread_time()
        if candidate is not None:
            pose, first_gain = candidate
            better = optimized(groups, pose, limit, refine, done)
            best = better if best is None or better.gain > best.gain else best
            if convinced(best):
                needed = samples_needed(_clean_share(groups, best.rows), options.confidence)
                enough = min(max(needed, options.min_iterations), options.max_iterations)
        used = 0.0 if done == STREAMS * BATCH else used + time.thread_time() - started
        if progress is not None:
            progress(min(done, enough), enough)
        if options.max_seconds is not None and used > options.max_seconds:
            break
    return best


def _round(
    threads: int, groups: Groups, limit: float, seed: int, done: int, floor: float, first_floor: float
) -> tuple[tuple[Rigid, float] | None, float]:
    """Best new pose of a round with the gain of its first groups, and the processor seconds of all of its searches.

    The pose is None if no gain is above `floor`. `done` is the number of samples drawn before, and part of the seeds.
    """

    def batch(stream: int) -> tuple[tuple[np.ndarray, np.ndarray, float, float], float]:
        start = (seed << 40) + done + stream + 1
        most, begun = BATCH * COMPARISONS, time.thread_time()
        candidate = search(
            groups, limit=limit, iterations=BATCH, seed=start, floor=floor, first_floor=first_floor, max_comparisons=most
        )
        return candidate, time.thread_time() - begun

    searched = list(shared(batch, range(STREAMS), threads))
    rotation, translation, gain, first_gain = max((candidate for candidate, _ in searched), key=lambda candidate: candidate[2])
    seconds = sum(each for _, each in searched)
    return (Rigid(rotation=rotation, translation=translation), first_gain) if gain > floor else None, seconds


def candidates_searched(group: Int64[np.ndarray, "candidates"]) -> int:
    """Number of candidates of the most trusted groups, which each pose is compared with; `group` is in order of trust.

    With more than `COMPARISONS` / 2 of them searches draw fewer samples than their options say, as a sample gives two poses.
    """
    _, first, counts = np.unique(group, return_index=True, return_counts=True)
    return int(counts[np.argsort(first)][:FIRST_GROUPS].sum())


def consensus_of(groups: Groups, pose: Rigid, limit: float, iterations: int) -> GroupedConsensus:
    """Consensus of the groups with a pose (cam_from_world): candidates within `limit` (normalized plane), and their gain."""
    rows, residuals = best_candidates(groups, pose.rotation, pose.translation)
    inlier = residuals < limit
    gain = float((1 - (residuals[inlier] / limit) ** 2).sum())
    return GroupedConsensus(pose=pose, rows=rows[inlier], gain=gain, iterations=iterations)


def optimized(groups: Groups, pose: Rigid, limit: float, refine: Refine, iterations: int) -> GroupedConsensus:
    """The consensus with a pose after local optimization."""

    def refined(best: GroupedConsensus) -> GroupedConsensus | None:
        better = refine(best.pose, best.rows)
        return None if better is None else consensus_of(groups, better, limit, iterations)

    start = consensus_of(groups, pose, limit, iterations)
    return locally_optimized(start, refined=refined, cost=lambda consensus: -consensus.gain, rounds=ROUNDS)


def _clean_share(groups: Groups, inliers: Int64[np.ndarray, "inliers"]) -> float:
    """Probability that a sample holds inliers only: the mean over lists and pools (docs/theory/words.md, Eq. 16)."""
    right = np.zeros(len(groups.points))
    right[inliers] = 1
    shares = []
    for start, end in zip(groups.list_starts[:-1], groups.list_starts[1:], strict=True):
        counts = np.cumsum(right[groups.lists[start:end]])
        pools = 1
        while SMALLEST_POOL << pools < end - start:
            pools += 1
        sizes = np.minimum(SMALLEST_POOL << np.arange(pools + 1), end - start)
        shares.append(float(((counts[sizes - 1] / sizes) ** groups.sample_size).mean()))
    return float(np.mean(shares))

"""A camera from keypoints that each have several candidate points: grouped LO-RANSAC.

Samples are three points, or four lines where gravity is known in map and query. They come from the candidates that are most
trusted, and from those that one image of the map sees together.

Theory: words.md#search-among-groups; docs/theory/words.md.
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
from veil.progress import Progress
from veil.threads import shared

# A round is so many searches of so many samples each, shared out among threads; results do not depend on how many those are.
STREAMS, BATCH = 4, 500
# Of candidates with poses, for each sample on average: where keypoints have many candidates, fewer samples are drawn.
COMPARISONS = 10_000
ROUNDS = 4  # of local optimization after each new best pose


@dataclass(frozen=True, kw_only=True)
class GroupedOptions:
    """Iterations are samples. Search ends when `confidence` says that no better pose is left, after `max_iterations`, or after
    `max_seconds` of the processor, of all threads together, whatever else they do, the first samples aside, which may compile
    code; results then depend on how fast it is, so it is None by default."""

    confidence: float = 0.9999
    min_iterations: int = 4000
    max_iterations: int = 200_000
    max_seconds: float | None = None
    seed: int = 0

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
    """The best pose, the inlier candidates (one a group at most), and how many samples were drawn."""

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
    """The kernel's problem from candidates in order of trust, and the candidate of each of its rows.

    `group[i]` is the feature (row of `seen`) of candidate i; `lists` name candidates to sample from, most trusted first;
    `agreement` is the probability that a wrong candidate agrees with a pose.
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
    """The pose with which most groups agree within `limit` (normalized plane), each new best one refined on its inliers.

    The search ends early only for a pose of which `convinced` says that chance does not give its inliers.
    None if no sample gives a pose.
    """
    if len(groups.list_starts) < 2:
        return None
    best: GroupedConsensus | None = None
    first_gain, done, enough, used = 0.0, 0, options.max_iterations, 0.0
    while done < enough:
        found, seconds = _round(threads, groups, limit, options.seed, done, best.gain if best else 0.0, first_gain)
        done, used, started = done + STREAMS * BATCH, used + seconds, time.thread_time()
        if found is not None:
            pose, first_gain = found
            better = _optimized(groups, pose, limit, refine, done)
            best = better if best is None or better.gain > best.gain else best
            if convinced(best):
                needed = _needed(groups, best.rows, options.confidence)
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
    """The best new pose of a round and the gain of its first groups, None if none is better than `floor`; and the processor
    seconds of all of its searches."""

    def one(stream: int) -> tuple[tuple[np.ndarray, np.ndarray, float, float], float]:
        start = (seed << 40) + done + stream + 1
        most, begun = BATCH * COMPARISONS, time.thread_time()
        found = search(
            groups, limit=limit, iterations=BATCH, seed=start, floor=floor, first_floor=first_floor, max_comparisons=most
        )
        return found, time.thread_time() - begun

    searched = list(shared(one, range(STREAMS), threads))
    rotation, translation, gain, first_gain = max((found for found, _ in searched), key=lambda found: found[2])
    seconds = sum(each for _, each in searched)
    return (Rigid(rotation=rotation, translation=translation), first_gain) if gain > floor else None, seconds


def candidates_searched(group: Int64[np.ndarray, "candidates"]) -> int:
    """Candidates of the most trusted groups, which each pose is compared with; `group` names them in order of trust.

    With more than `COMPARISONS` / 2 of them searches draw fewer samples than their options say, as a sample gives two poses.
    """
    _, first, counts = np.unique(group, return_index=True, return_counts=True)
    return int(counts[np.argsort(first)][:FIRST_GROUPS].sum())


def consensus_of(groups: Groups, pose: Rigid, limit: float, iterations: int) -> GroupedConsensus:
    """What agrees with a pose."""
    rows, residuals = best_candidates(groups, pose.rotation, pose.translation)
    inlier = residuals < limit
    gain = float((1 - (residuals[inlier] / limit) ** 2).sum())
    return GroupedConsensus(pose=pose, rows=rows[inlier], gain=gain, iterations=iterations)


def _optimized(groups: Groups, pose: Rigid, limit: float, refine: Refine, iterations: int) -> GroupedConsensus:
    best = consensus_of(groups, pose, limit, iterations)
    for _ in range(ROUNDS):
        refined = refine(best.pose, best.rows)
        if refined is None:
            break
        found = consensus_of(groups, refined, limit, iterations)
        if found.gain <= best.gain:
            break
        best = found
    return best


def _needed(groups: Groups, inliers: Int64[np.ndarray, "inliers"], confidence: float) -> int:
    """Samples after which one holds inliers only: its share is the mean over lists and pools (docs/theory/words.md, Eq. 16)."""
    right = np.zeros(len(groups.points))
    right[inliers] = 1
    shares = []
    for start, end in zip(groups.list_starts[:-1], groups.list_starts[1:], strict=True):
        found = np.cumsum(right[groups.lists[start:end]])
        pools = 1
        while SMALLEST_POOL << pools < end - start:
            pools += 1
        sizes = np.minimum(SMALLEST_POOL << np.arange(pools + 1), end - start)
        shares.append(float(((found[sizes - 1] / sizes) ** groups.sample_size).mean()))
    clean = float(np.mean(shares))
    if clean >= 1:
        return 1
    return 2**62 if clean < 1e-15 else math.ceil(math.log(1 - confidence) / math.log1p(-clean))

"""Poses from groups of candidates: planted worlds, one inlier a group, reproducible, and an end to the search."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from veil.errors import RangeError
from veil.geometry.rigid import Rigid
from veil.geometry.robust import grouped as module
from veil.geometry.robust.grouped import GroupedConsensus, GroupedOptions, consensus_of, resect_grouped
from worlds.grouped_problems import LIMIT, Planted, near, planted_groups

ROUND = 4 * 500


def never(consensus: GroupedConsensus) -> bool:
    return False


def always(consensus: GroupedConsensus) -> bool:
    return True


def unrefined(pose: Rigid, rows: np.ndarray) -> Rigid | None:
    return None


def resect(
    problem: Planted,
    *,
    options: GroupedOptions | None = None,
    convinced: Callable[[GroupedConsensus], bool] = always,
    refine: Callable[[Rigid, np.ndarray], Rigid | None] = unrefined,
    threads: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> GroupedConsensus | None:
    return resect_grouped(
        problem.groups,
        limit=LIMIT,
        convinced=convinced,
        refine=refine,
        options=options or GroupedOptions(),
        threads=threads,
        progress=progress,
    )


@pytest.mark.slow
@pytest.mark.parametrize("as_lines", [False, True])
def test_a_planted_pose_is_found_among_wrong_candidates(as_lines: bool) -> None:
    """40 % of the features have a right candidate, which is one of five: two candidates in 25 are right."""
    problem = planted_groups(f"resect {as_lines}", as_lines=as_lines, features=150, candidates=5, right=0.4, noise=0.0002)
    consensus = resect(problem, options=GroupedOptions(max_iterations=100_000))
    assert consensus is not None and near(consensus.pose, problem.pose, 0.1 if as_lines else 0.03)
    groups = problem.groups.group[consensus.rows]
    assert len(np.unique(groups)) == len(groups), "at most one inlier a feature (words.md#search-among-groups)"
    assert problem.right[consensus.rows].sum() > 0.8 * 60  # a wrong point may lie nearer to a line than the right one
    assert consensus.gain > 0.8 * 60


def test_wrong_candidates_of_a_right_feature_are_no_second_inlier() -> None:
    """The broken twin counts candidates: here each feature has its right point three times, slightly moved."""
    problem = planted_groups("triples", features=50, candidates=1, right=1.0, noise=0.0)
    copies = np.repeat(np.arange(50), 3)
    groups = problem.groups
    tripled = planted_groups("triples", features=50, candidates=3, right=1.0, noise=0.0)
    tripled.groups.points[:] = groups.points[copies] + np.tile([[0.0], [1e-4], [2e-4]], (50, 1))
    tripled.groups.seen[:] = groups.seen
    consensus = consensus_of(tripled.groups, problem.pose, LIMIT, 1)
    assert len(consensus.rows) == 50
    # Of the three the exact one is taken.
    np.testing.assert_array_equal(consensus.rows % 3, 0)


@pytest.mark.slow
def test_results_do_not_depend_on_threads_and_follow_the_seed() -> None:
    problem = planted_groups("threads", features=120, candidates=5, right=0.35)
    options = GroupedOptions(max_iterations=3 * ROUND, seed=3)
    results = [resect(problem, options=options, threads=threads) for threads in (1, 2, 4)]
    other = resect(problem, options=GroupedOptions(max_iterations=3 * ROUND, seed=4))
    first = results[0]
    assert first is not None and other is not None
    for consensus in results[1:]:
        assert consensus is not None and consensus.gain == first.gain and consensus.iterations == first.iterations
        np.testing.assert_array_equal(consensus.pose.rotation, first.pose.rotation)
        np.testing.assert_array_equal(consensus.rows, first.rows)
    assert (other.pose.rotation != first.pose.rotation).any()


def test_each_new_best_pose_is_refined_on_its_inliers() -> None:
    """A refinement that returns the truth is taken; one that moves away from it is not."""
    problem = planted_groups("refined", features=60, candidates=2, right=0.8, noise=0.002)
    exact = resect(problem, refine=lambda pose, rows: problem.pose)
    plain = resect(problem)
    astray = resect(problem, refine=lambda pose, rows: Rigid(rotation=pose.rotation, translation=pose.translation + 3))
    assert exact is not None and plain is not None and astray is not None
    truth = consensus_of(problem.groups, problem.pose, LIMIT, 0)
    assert exact.gain >= truth.gain
    assert near(astray.pose, plain.pose, 1e-12)


def test_nothing_can_be_sampled_from_too_few_candidates() -> None:
    for as_lines, size in ((False, 2), (True, 3)):
        rows = [np.arange(size)]
        assert resect(planted_groups("short", as_lines=as_lines, lists=rows)) is None


def test_no_sample_of_one_feature_gives_a_pose() -> None:
    """The list is long enough, but all of one feature, and a sample needs different features."""
    problem = planted_groups("one feature", features=1, candidates=20, right=1.0)
    assert resect(problem, options=GroupedOptions(min_iterations=ROUND, max_iterations=ROUND)) is None


def test_only_conviction_ends_the_search_early() -> None:
    problem = planted_groups("early", features=80, candidates=2, right=0.9)
    options = GroupedOptions(min_iterations=ROUND, max_iterations=10 * ROUND)
    seen: list[tuple[int, int]] = []

    def watch(done: int, total: int) -> None:
        seen.append((done, total))

    convinced = resect(problem, options=options, progress=watch)
    assert convinced is not None and convinced.iterations == ROUND
    assert seen == [(ROUND, ROUND)]
    seen.clear()
    assert resect(problem, options=options, convinced=never, progress=watch) is not None
    assert seen == [(ROUND * step, 10 * ROUND) for step in range(1, 11)]


def test_conviction_is_asked_about_the_refined_inliers_of_new_best_poses() -> None:
    problem = planted_groups("asked", features=80, candidates=2, right=0.9)
    asked: list[GroupedConsensus] = []

    def ask(consensus: GroupedConsensus) -> bool:
        asked.append(consensus)
        return True

    consensus = resect(problem, convinced=ask)
    assert consensus is not None
    np.testing.assert_array_equal(asked[-1].rows, consensus.rows)


def test_rare_inliers_need_more_samples_before_the_end() -> None:
    """Clean samples are rarer by three powers of the share, and the last new best pose may come late."""
    iterations = []
    for share in (0.9, 0.3):
        problem = planted_groups(f"rare {share}", features=100, candidates=4, right=share)
        consensus = resect(problem, options=GroupedOptions(min_iterations=1, max_iterations=60_000))
        assert consensus is not None
        iterations.append(consensus.iterations)
    assert iterations[0] < 0.2 * iterations[1]


def test_time_ends_the_search() -> None:
    problem = planted_groups("time", features=200, candidates=10, right=0.05)
    started = time.monotonic()
    resect(problem, options=GroupedOptions(max_iterations=10**11, max_seconds=0.2), convinced=never)
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_time_that_others_take_does_not_count() -> None:
    """A callback that sleeps stands for other work on the machine: the search draws all its samples, on one thread or two."""
    problem = planted_groups("crowded", features=100, candidates=4, right=0.3)
    options = GroupedOptions(min_iterations=16_000, max_iterations=16_000, max_seconds=20.0)
    resect(problem, options=options, convinced=never)  # compiled
    options = GroupedOptions(min_iterations=16_000, max_iterations=16_000, max_seconds=1.5)
    for threads in (1, 2):
        rounds: list[int] = []

        def wait(done: int, _: int, rounds: list[int] = rounds) -> None:
            rounds.append(done)
            time.sleep(0.3)

        resect(problem, options=options, convinced=never, threads=threads, progress=wait)
        assert rounds == list(range(2000, 16_001, 2000))


@pytest.mark.slow
def test_what_compiling_takes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the first search of a fresh installation computes for half a second before it begins, more than all may take."""
    problem = planted_groups("compiling", features=100, candidates=4, right=0.3)
    resect(problem, options=GroupedOptions(min_iterations=1, max_iterations=4000), convinced=never)  # compiled
    first: list[bool] = []

    def searched(*arguments: Any, **options: Any) -> Any:
        end = time.thread_time() + (0.5 if not first else 0.0)
        first.append(True)
        while time.thread_time() < end:
            pass
        return search(*arguments, **options)

    search = module.search
    monkeypatch.setattr(module, "search", searched)
    rounds: list[int] = []
    options = GroupedOptions(min_iterations=6000, max_iterations=6000, max_seconds=0.4)
    resect(problem, options=options, convinced=never, progress=lambda done, _: rounds.append(done))
    assert rounds == [2000, 4000, 6000]


@pytest.mark.parametrize(
    "bad",
    [
        {"confidence": 0.0},
        {"confidence": 1.0},
        {"confidence": float("nan")},
        {"min_iterations": 0},
        {"min_iterations": 10, "max_iterations": 9},
        {"max_seconds": 0.0},
        {"max_seconds": float("inf")},
        {"max_seconds": float("nan")},
        {"seed": -1},
        {"seed": 1 << 24},
        {"max_iterations": 1 << 39},
    ],
)
def test_options_out_of_range_are_refused(bad: dict) -> None:
    with pytest.raises(RangeError):
        GroupedOptions(**bad)


def test_the_largest_seed_works() -> None:
    problem = planted_groups("seed", features=30, candidates=1, right=0.9)
    options = GroupedOptions(seed=(1 << 24) - 1, max_iterations=ROUND, min_iterations=1)
    assert resect(problem, options=options) is not None

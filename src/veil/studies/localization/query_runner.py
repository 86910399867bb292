"""Jobs of `veil evaluate queries`: all queries to the maps of a place, localized in several processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from veil.features import Features
from veil.localization.by_distance import LocalizeOptions
from veil.studies.localization.acceptance_counts import OBSERVATION_KINDS, ObservationKind, QueryAnswer
from veil.studies.localization.false_acceptance import (
    Fold,
    Query,
    QueryProtocol,
    false_queries,
    localize_query,
    true_queries,
)
from veil.studies.localization.robustness import OutlierLevel, RobustnessTrial, measure_robustness
from veil.threads import single_blas

WAITING = 4  # queries for each process that are matched ahead of their localization


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryJob:
    """One query with the observations (kind and number of the draw) and the outlier levels at which it is localized."""

    query: Query
    observations: tuple[tuple[ObservationKind, int], ...]
    levels: tuple[OutlierLevel, ...]
    options: LocalizeOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class JobResult:
    """Answers of one job, in the order of its observations, and its trials at the outlier levels."""

    answers: list[QueryAnswer]
    trials: list[RobustnessTrial]


def job_count(folds: Sequence[Fold], others: Mapping[str, Features], protocol: QueryProtocol) -> int:
    """Number of jobs that `query_jobs` makes for a place."""
    return len(folds[0].place.features) + len(others) + 2 * protocol.noise


def query_jobs(
    folds: Sequence[Fold], others: Mapping[str, Features], levels: Sequence[OutlierLevel], protocol: QueryProtocol
) -> Iterator[QueryJob]:
    """Jobs for the maps `folds` of one place: each of its photographs as a true query, then all false queries.

    True queries are localized from points, from all draws of each kind of lines, and at the outlier `levels`. False queries,
    with `others` as photographs of other places, are localized from points and from one kind of lines each.
    """
    line_kinds = OBSERVATION_KINDS[1:]
    draws = {"convergent lines": 1, "parallel lines": 1}  # nothing is drawn: all releases are the same
    drawn = tuple((kind, draw) for kind in line_kinds for draw in range(draws.get(kind, protocol.draws)))
    for fold in folds:
        for query in true_queries(fold, protocol):
            observations: tuple[tuple[ObservationKind, int], ...] = (("points", 0), *drawn)
            yield QueryJob(query=query, observations=observations, levels=tuple(levels), options=protocol.localize)
    for index, query in enumerate(false_queries(folds, others, protocol)):
        # Noise comes in pairs of two kinds, so the kind of lines changes after every pair.
        observation = line_kinds[(index if query.kind == "other place" else (index - len(others)) // 2) % len(line_kinds)]
        yield QueryJob(query=query, observations=(("points", 0), (observation, 0)), levels=(), options=protocol.localize)


def run_job(job: QueryJob) -> JobResult:
    """Answers and trials of one job, computed with a single thread of BLAS."""
    with single_blas():
        query, options = job.query, job.options
        return JobResult(
            answers=[localize_query(query, observation, draw, options) for observation, draw in job.observations],
            trials=measure_robustness(query, job.levels, options) if job.levels else [],
        )


def run_jobs(jobs: Iterable[QueryJob], *, workers: int, prepare: Callable[[], None] | None = None) -> Iterator[JobResult]:
    """Results of `jobs` in their order, from `workers` processes; `prepare` runs first in every process.

    With more than one worker the caller's program must be importable (`if __name__ == "__main__"`).
    """
    if workers == 1:
        yield from map(run_job, jobs)
        return
    pending: deque[Future[JobResult]] = deque()
    # RANSAC over lines is a Python loop, which threads would not share out; COLMAP's own threads forbid forking.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=prepare) as pool:
        try:
            for job in jobs:
                pending.append(pool.submit(run_job, job))
                if len(pending) > WAITING * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

"""Jobs of `veil evaluate queries`: all queries to the maps of a place, localized by the workers of an engine.

A file of its own: it joins true, false and strained queries, of which none imports another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from veil.engine import Engine
from veil.features import Features
from veil.places.poses.options import LocalizeOptions
from veil.threads import single_blas
from veil_lab.studies.localization.acceptance_counts import OBSERVATION_KINDS, ObservationKind, QueryAnswer
from veil_lab.studies.localization.false_acceptance import (
    Fold,
    Query,
    QueryProtocol,
    false_queries,
    localize_query,
    true_queries,
)
from veil_lab.studies.localization.robustness import OutlierLevel, RobustnessTrial, measure_robustness


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


def run_jobs(jobs: Iterable[QueryJob], *, engine: Engine, prepare: Callable[[], None] | None = None) -> Iterator[JobResult]:
    """Results of `jobs` in their order, from an engine; `prepare`, a function of a module, runs before each job."""
    ready: dict[int, JobResult] = {}
    following = 0
    with engine.scatter(prepare) as shared:
        for position, result in engine.map(_prepared_job, jobs, shared=(shared,)):
            ready[position] = result
            while following in ready:
                yield ready.pop(following)
                following += 1


def _prepared_job(job: QueryJob, prepare: Callable[[], None] | None) -> JobResult:
    """A task of an engine."""
    if prepare is not None:
        prepare()
    return run_job(job)

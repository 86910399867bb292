"""Matching many image pairs in parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from threadpoolctl import threadpool_limits

from veil.errors import InputError, RangeError
from veil.forms import Form
from veil.match.neighbors import Matches, MatchOptions, match

Progress = Callable[[int, int], None]


def match_pairs(
    forms: Mapping[str, Form],
    pairs: Sequence[tuple[str, str]],
    *,
    options: MatchOptions | None = None,
    workers: int = 2,
    progress: Progress | None = None,
) -> dict[tuple[str, str], Matches]:
    """Matches of every listed pair, in the order of `pairs`. Raises InputError for an image that is not there."""
    if not workers >= 1:
        raise RangeError(f"workers must be at least 1, got {workers!r}")
    unknown = {name for pair in pairs for name in pair} - set(forms)
    if unknown:
        raise InputError(f"no features for {', '.join(sorted(unknown)[:3])}")
    found: dict[tuple[str, str], Matches] = {}
    # One BLAS thread a pair: pairs, not matrix products, are shared out.
    with threadpool_limits(1), ThreadPoolExecutor(max_workers=workers) as pool:
        jobs = {pool.submit(match, forms[a], forms[b], options): (a, b) for a, b in pairs}
        try:
            for done, job in enumerate(as_completed(jobs), start=1):
                found[jobs[job]] = job.result()
                if progress is not None:
                    progress(done, len(pairs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {pair: found[pair] for pair in pairs}


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every unordered pair once."""
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]

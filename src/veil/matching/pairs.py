"""Matching many image pairs in parallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veil.errors import InputError, RangeError
from veil.forms import Form
from veil.matching.neighbors import Matches, MatchOptions, match
from veil.progress import Progress
from veil.threads import shared


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
    each = shared(lambda pair: match(forms[pair[0]], forms[pair[1]], options), pairs, workers)
    for pair, matches in zip(pairs, each, strict=True):
        found[pair] = matches
        if progress is not None:
            progress(len(found), len(pairs))
    return found


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every unordered pair once."""
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]

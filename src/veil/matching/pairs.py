"""Matching of many image pairs in parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from veil.errors import InputError, RangeError
from veil.forms import Form
from veil.matching.lightglue import LightGlue, learned_matches
from veil.matching.neighbors import Matches, MatchOptions, match
from veil.matching.placed_points import PlacedPoints
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
    """Match every listed pair of images, in parallel; the matches come in the order of `pairs`.

    `forms` holds each image's features by name. `workers` pairs are matched at a time; `progress` is called with the number of
    matched pairs and of all. Raises InputError for a pair with an image that is not in `forms`, RangeError without workers, and
    what `match` raises.
    """
    return _each(lambda pair: match(forms[pair[0]], forms[pair[1]], options), forms, pairs, workers, progress)


def match_pairs_by_network(
    images: Mapping[str, PlacedPoints],
    pairs: Sequence[tuple[str, str]],
    network: LightGlue,
    *,
    workers: int = 2,
    progress: Progress | None = None,
) -> dict[tuple[str, str], Matches]:
    """Match every listed pair of images of raw descriptors by LightGlue; otherwise as `match_pairs`.

    Raises what `veil.matching.lightglue.learned_matches` raises, too.
    """
    return _each(lambda pair: learned_matches(network, images[pair[0]], images[pair[1]]), images, pairs, workers, progress)


def _each(
    work: Callable[[tuple[str, str]], Matches],
    known: Mapping[str, object],
    pairs: Sequence[tuple[str, str]],
    workers: int,
    progress: Progress | None,
) -> dict[tuple[str, str], Matches]:
    if not workers >= 1:
        raise RangeError(f"workers must be at least 1, got {workers!r}")
    unknown = {name for pair in pairs for name in pair} - set(known)
    if unknown:
        raise InputError(f"no features for {', '.join(sorted(unknown)[:3])}")
    matches_of: dict[tuple[str, str], Matches] = {}
    results = shared(work, pairs, workers)
    for pair, matches in zip(pairs, results, strict=True):
        matches_of[pair] = matches
        if progress is not None:
            progress(len(matches_of), len(pairs))
    return matches_of


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every unordered pair of two names, once."""
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]

"""Matches of the pairs of images that were chosen, wherever they are computed and kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from veil.codebooks.codebook import Codebook
from veil.engine import Engine
from veil.files.codebooks import bundled_codebook
from veil.files.match_store import MatchStore
from veil.forms import Form, Points, Subspaces
from veil.mapping.options import LEAST_INLIERS
from veil.matching import Matches, match_pairs
from veil.matching.pair_selection import BY_TRACKS
from veil.matching.pairs import match_pairs_by_network
from veil.pipelines.images_on_demand import sizes_in, types_in
from veil.pipelines.network_matching import NetworkMatching
from veil.pipelines.pair_choice import (
    DISTINCTIVE,
    PairChoice,
    accidental_rate,
    clear_pairs,
    described,
    first_pairs,
    more_pairs,
    nearness,
    pair_choice,
    words_in,
)
from veil.pipelines.pair_matching import matched_in_blocks
from veil.pipelines.track_pairs import far_pairs, pairs_by_tracks, tracks_of
from veil.progress import Progress, Steps

# Pairs that chains of matches name, at most, as a share of those matched before.
CHAINED = 0.05
# With how many images one that tracks do not reach is paired at most, where they reach others.
ALONE = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchingWork:
    """Where pairs of images are matched, and what keeps their matches.

    - `store`: keeps matches, so that a run that was killed goes on; None keeps nothing.
    - `engine`, `files`: where blocks of pairs are matched, and the file of each image with the image's name there, by name.
      Without them this process matches, as it does for fewer than `engine_from` pairs: to start processes takes seconds.
    - `unfinished`: folder of this run alone, where clusters that were mapped are kept and the mapper works; whoever made it
      removes it. None: a temporary one, and nothing is kept.
    - `network`: LightGlue and what it reads, which then matches in place of nearest neighbors, in this process alone.
    - `codebook`: the public one whose words retrieval uses; None: the bundled one.
    - `matched`, `counts`: the pairs that were matched are added to it, and their numbers of matches.
    - `tell`: called with a sentence on what is going to be matched.
    """

    store: MatchStore | None = None
    engine: Engine | None = None
    files: Mapping[str, tuple[str, str]] | None = None
    engine_from: int = 0
    unfinished: Path | None = None
    network: NetworkMatching | None = None
    codebook: Codebook | None = None
    matched: list[tuple[str, str]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    tell: Callable[[str], None] = lambda sentence: None

    @property
    def with_matches(self) -> int:
        """Number of matched pairs with enough matches to be verified."""
        return sum(count >= LEAST_INLIERS for count in self.counts)


def matched_as_chosen(
    forms: Mapping[str, Form],
    choice: PairChoice | None,
    work: MatchingWork | None,
    *,
    workers: int,
    steps: Steps[Progress],
    matched_already: frozenset[str] = frozenset(),
) -> dict[tuple[str, str], Matches]:
    """Matches of the pairs that `choice` names, and of those that matches of retrieved pairs suggest, by names.

    Pairs of two images of `matched_already` are left out. Words have no tracks: retrieval takes their place. Raises as
    `first_pairs` and `matched_in_blocks` do.
    """
    work = work or MatchingWork()
    choice = choice or pair_choice("auto", len(forms))
    if choice.method == "tracks" and types_in(forms) not in ({Points}, {Subspaces}):
        choice = replace(choice, method="retrieval")

    def new(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(a, b) for a, b in pairs if not (a in matched_already and b in matched_already)]

    matches: dict[tuple[str, str], Matches] = {}
    rate = 0.0
    if choice.method in ("tracks", "retrieval"):
        with steps("retrieval") as bar:
            pairs = new(first_pairs(forms, choice, codebook=work.codebook, threads=workers, progress=bar))
    else:
        pairs = new(first_pairs(forms, choice, codebook=work.codebook))
    if choice.method == "tracks":
        rate = _match_seeds(forms, pairs, new, work, workers, steps, matches)
        with steps("retrieval by tracks") as bar:
            pairs = new(_track_pairs(forms, choice, matches, rate, work, workers, bar))
            pairs = [pair for pair in pairs if pair not in matches]
    work.tell(described(choice, len(forms), pairs))
    with steps("matching") as bar:
        matches |= _matched(forms, pairs, work, workers, bar)
    further = []
    if choice.method == "retrieval":
        further = new(more_pairs(matches, sizes_in(forms)))
    elif choice.method == "tracks":
        near = nearness(matches, sizes_in(forms), rate)
        further = new(near.pairs(choice.count or BY_TRACKS, matches, most=math.ceil(CHAINED * len(matches))))
    if further:
        work.tell(f"{len(further):,} more pairs of images that match common ones")
        with steps("matching further") as bar:
            matches |= _matched(forms, further, work, workers, bar)
    work.matched.extend(matches)
    work.counts.extend(len(found) for found in matches.values())
    return matches


def _match_seeds(
    forms: Mapping[str, Form],
    pairs: list[tuple[str, str]],
    new: Callable[[list[tuple[str, str]]], list[tuple[str, str]]],
    work: MatchingWork,
    workers: int,
    steps: Steps[Progress],
    matches: dict[tuple[str, str], Matches],
) -> float:
    """Match the pairs that tracks begin with, and those that their matches suggest; returns the rate of accidental matches."""
    far = [pair for pair in far_pairs(sorted(forms)) if pair not in set(pairs)]
    work.tell(f"{len(pairs) + len(far):,} pairs of images to match first, for tracks")
    with steps("matching for tracks") as bar:
        matches |= _matched(forms, [*pairs, *far], work, workers, bar)
    sizes = sizes_in(forms)
    rate = accidental_rate({pair: matches[pair] for pair in far} or matches, sizes)
    if further := new(more_pairs(matches, sizes, rate)):
        work.tell(f"{len(further):,} more pairs of images that match a common one")
        with steps("matching for tracks") as bar:
            matches |= _matched(forms, further, work, workers, bar)
    return rate


def _track_pairs(
    forms: Mapping[str, Form],
    choice: PairChoice,
    matches: Mapping[tuple[str, str], Matches],
    rate: float,
    work: MatchingWork,
    workers: int,
    progress: Progress,
) -> list[tuple[str, str]]:
    """Further pairs by tracks through clear matches, and by features for images that tracks do not reach."""
    names, features = sorted(forms), sizes_in(forms)
    clear = {pair: matches[pair] for pair in clear_pairs(matches, features, rate)}
    tracked, count = tracks_of(features, clear, DISTINCTIVE)
    first = forms[names[0]]
    assert isinstance(first, Points | Subspaces)
    book = work.codebook or bundled_codebook(first.space.descriptor)
    pairs, alone = pairs_by_tracks(
        forms, tracked, count, words_in(first, book), count=choice.count, threads=workers, progress=progress
    )
    if len(alone) > 1:
        by_features = replace(choice, method="retrieval", count=choice.count or (ALONE if pairs else None))
        more = first_pairs(alone, by_features, codebook=work.codebook, threads=workers, progress=progress)
        pairs = sorted({*pairs, *more})
    return pairs


def _matched(
    forms: Mapping[str, Form], pairs: list[tuple[str, str]], work: MatchingWork, workers: int, progress: Progress
) -> dict[tuple[str, str], Matches]:
    if work.store is None and work.network is not None:
        images, network = work.network.images, work.network.network
        return match_pairs_by_network(images, pairs, network, workers=workers, progress=progress)
    if work.store is None:
        return match_pairs(forms, pairs, workers=workers, progress=progress)
    engine = work.engine if len(pairs) >= work.engine_from and work.network is None else None
    return matched_in_blocks(
        forms,
        pairs,
        work.store,
        network=work.network,
        engine=engine,
        files=work.files,
        workers=workers,
        progress=progress,
    )

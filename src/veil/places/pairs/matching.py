"""Matching of the pairs that are chosen, wherever they are matched and kept: by nearest neighbors, or by a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.codebooks.codebook import Codebook
from veil.engine import Engine
from veil.forms import Form
from veil.matching import Matches
from veil.one_line import one_line
from veil.places.maps.options import LEAST_INLIERS
from veil.places.pairs.blocks import match_listed, matched_in_blocks
from veil.places.pairs.candidates import accidental_rate, far_pairs, nearness, unusual
from veil.places.pairs.choice import PairChoice, pair_choice, rounds
from veil.places.pairs.images import ImageFiles, NetworkMatching, sizes_in
from veil.places.pairs.store import MatchStore
from veil.progress import Progress, Steps


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchingWork:
    """Place where pairs of images are matched, and store that keeps their matches.

    - `store`: keeps matches, so that a run that was killed goes on; None keeps nothing.
    - `engine`, `files`: where blocks of pairs are matched, and files from which it reads descriptors. Without them this process
      matches, as it does for fewer than `engine_from` pairs: to start processes takes seconds.
    - `unfinished`: folder of this run alone, where clusters that were mapped are kept and the mapper works; whoever made it
      removes it. None: a temporary one, and nothing is kept.
    - `network`: LightGlue and its images, which then matches in place of nearest neighbors, in this process alone.
    - `codebook`: the public one whose words retrieval uses; None: the bundled one.
    - `matched`, `counts`: the pairs that were matched are added to it, and their numbers of matches.
    - `tell`: called with a sentence on the pairs that are going to be matched.
    """

    store: MatchStore | None = None
    engine: Engine | None = None
    files: ImageFiles | None = None
    engine_from: int = 0
    unfinished: Path | None = None
    network: NetworkMatching | None = None
    codebook: Codebook | None = None
    matched: list[tuple[str, str]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    tell: Callable[[str], None] = lambda sentence: None

    __repr__ = one_line

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
    """Matches of the pairs that `choice` names, round by round (`veil.places.pairs.choice.rounds`), by names.

    Pairs of two images of `matched_already` are left out. Raises as `rounds` and `matched_in_blocks` do.
    """
    work = work or MatchingWork()
    matches: dict[tuple[str, str], Matches] = {}
    for one in rounds(
        forms,
        choice or pair_choice("auto", len(forms)),
        matches,
        codebook=work.codebook,
        threads=workers,
        steps=steps,
        matched_already=matched_already,
    ):
        work.tell(one.sentence)
        with steps(one.step) as bar:
            matches |= _matched(forms, one.pairs, work, workers, bar)
    work.matched.extend(matches)
    work.counts.extend(len(own) for own in matches.values())
    return matches


def _matched(
    forms: Mapping[str, Form], pairs: list[tuple[str, str]], work: MatchingWork, workers: int, progress: Progress
) -> dict[tuple[str, str], Matches]:
    if work.store is None:
        return match_listed(forms, pairs, work.network, workers=workers, progress=progress)
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


def similarities_by_matches(
    forms: Mapping[str, Form], *, steps: Steps[Progress], codebook: Codebook | None = None, workers: int = 1
) -> tuple[list[str], Float64[np.ndarray, "images images"]]:
    """Names of the images, sorted, and how much each looks like each other; the larger the more.

    Pairs are chosen and matched as for maps of many images. Between 1 and 2 are images that chains of clear matches join, by
    their nearness (docs/theory/scale.md#chains-of-matches); between -1 and 1 other matched pairs, by how unusual their matches
    are; -1 is a pair that was not tried. Raises as `matched_as_chosen` does.
    """
    names, features = sorted(forms), sizes_in(forms)
    work = MatchingWork(codebook=codebook)
    matches = matched_as_chosen(forms, PairChoice(method="tracks"), work, workers=workers, steps=steps)
    far = {pair: matches[pair] for pair in far_pairs(names) if pair in matches}
    rate = accidental_rate(far or matches, features)
    row_of = {name: row for row, name in enumerate(names)}
    similarity = np.full((len(names), len(names)), -1.0)
    for (a, b), value in unusual(matches, features, rate).items():
        similarity[row_of[a], row_of[b]] = similarity[row_of[b], row_of[a]] = value / (1 + abs(value))
    near = nearness(matches, features, rate)
    for row in range(len(names)):
        own = near.of(row)
        similarity[row] = np.where(own > 0, 1 + own / (1 + own), similarity[row])
    return names, similarity

"""Which images of a collection show one place, by what `veil map --pairs tracks` matches: chains of clear matches first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64

from veil.codebooks.codebook import Codebook
from veil.forms import Form
from veil.pipelines.chosen_matches import MatchingWork, matched_as_chosen
from veil.pipelines.images_on_demand import sizes_in
from veil.pipelines.pair_choice import PairChoice, accidental_rate, nearness, unusual
from veil.pipelines.track_pairs import far_pairs
from veil.progress import Progress, Steps


def similarities_by_matches(
    forms: Mapping[str, Form], *, steps: Steps[Progress], codebook: Codebook | None = None, workers: int = 1
) -> tuple[list[str], Float64[np.ndarray, "images images"]]:
    """Names of the images, sorted, and how much each looks like each other; the larger the more.

    Pairs are chosen and matched as maps of many images do it. Between 1 and 2 are images that chains of clear matches join, by
    their nearness (docs/theory/scale.md#chains-of-matches); between -1 and 1 other matched pairs, by how unusual their matches
    are; -1 is a pair that was not tried. Raises as `matched_as_chosen` does.
    """
    names, features = sorted(forms), sizes_in(forms)
    work = MatchingWork(codebook=codebook)
    matches = matched_as_chosen(forms, PairChoice(method="tracks"), work, workers=workers, steps=steps)
    far = {pair: matches[pair] for pair in far_pairs(names) if pair in matches}
    rate = accidental_rate(far or matches, features)
    row_of = {name: row for row, name in enumerate(names)}
    found = np.full((len(names), len(names)), -1.0)
    for (a, b), value in unusual(matches, features, rate).items():
        found[row_of[a], row_of[b]] = found[row_of[b], row_of[a]] = value / (1 + abs(value))
    near = nearness(matches, features, rate)
    for row in range(len(names)):
        own = near.of(row)
        found[row] = np.where(own > 0, 1 + own / (1 + own), found[row])
    return names, found

"""Which pairs are matched after the first ones, and how they are asked for."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil.matching import Matches
from veil.pipelines.pair_choice import ALL_UP_TO, more_pairs, pair_choice
from worlds import generator


def matched(distinctive: int, others: int) -> Matches:
    """Matches of which so many pass a ratio of 0.8."""
    count = distinctive + others
    ratios = np.r_[np.full(distinctive, 0.7), np.full(others, 0.95)]
    return Matches(indices=np.stack([np.arange(count)] * 2, axis=1), distances=np.zeros(count), ratios=ratios)


def test_images_that_match_a_common_one_are_tried() -> None:
    """Planted: a chain 0-1-2-3 among images of many and of few features, whose accidents grow with their features. Only the
    neighbors but one in the chain are suggested."""
    chance = generator("more pairs")
    features = {f"{number:02}": 1000 if number % 2 else 250 for number in range(20)}
    chain = [("00", "01"), ("01", "02"), ("02", "03")]
    matches = {
        (a, b): matched(int(chance.poisson(0.015 * np.sqrt(features[a] * features[b]))) + (60 if (a, b) in chain else 0), 50)
        for a, b in combinations(sorted(features), 2)
        if (a, b) not in {("00", "02"), ("01", "03"), ("00", "03")}
    }
    assert more_pairs(matches, features) == [("00", "02"), ("01", "03")]
    assert more_pairs({}, features) == []


def test_pairs_are_asked_for_by_name_or_by_a_list(tmp_path: Path) -> None:
    assert pair_choice("auto", ALL_UP_TO).method == "all" and pair_choice("auto", ALL_UP_TO + 1).method == "tracks"
    assert pair_choice("auto", 9).automatic and not pair_choice("tracks", 9).automatic
    (tmp_path / "p.txt").write_text("a b\n")
    assert pair_choice(str(tmp_path / "p.txt"), 9).listed == (("a", "b"),)
    with pytest.raises(InputError, match="no such file"):
        pair_choice("some", 9)

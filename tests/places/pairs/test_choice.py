"""Which pairs are matched after the first ones, and how they are asked for."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil.matching import Matches
from veil.matching.point_indexing import index_points
from veil.places.held_map import Map, ranked_images
from veil.places.pairs import choice
from veil.places.pairs.candidates import more_pairs
from veil.places.pairs.choice import ALL_UP_TO, PairChoice, pair_choice, pairs_with_map
from worlds import generator
from worlds.map_scenes import planted_map
from worlds.random_forms import points


def matched(distinctive: int, others: int) -> Matches:
    """Matches of which `distinctive` pass a ratio of 0.8 and `others` do not."""
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


def test_new_images_are_paired_with_those_that_the_index_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what two images of the map see again is paired with two images of it at most, and with each other."""
    monkeypatch.setattr(choice, "BY_TRACKS", 2)
    scene, _ = planted_map("a map that grows by its index", "subspaces")
    base = Map(scene=scene)
    names = sorted(scene.images)
    forms = {"new 1": scene.images[names[0]].form, "new 2": scene.images[names[3]].form}
    asked, ranked = pair_choice("auto", len(names) + 2), partial(ranked_images, base)
    assert pairs_with_map(ranked, forms, asked, threads=1) is asked, "a map without an index is matched as asked"
    words = points(60, dim=scene.space.dim, case="words of a map that grows").astype("float32")
    seen = {name: (image.form, image.point_rows) for name, image in scene.images.items()}
    base._point_indexes[:] = [index_points(seen, words, len(scene.points))]  # type: ignore[arg-type]
    chosen = pairs_with_map(ranked, forms, asked, threads=1)
    assert chosen.method == "list" and ("new 1", "new 2") in chosen.listed
    assert (names[0], "new 1") in chosen.listed and (names[3], "new 2") in chosen.listed
    assert len(chosen.listed) == 1 + 2 * 2
    every = PairChoice(method="all")
    assert pairs_with_map(ranked, forms, every, threads=1) is every

"""Pairs matched by a network in blocks: as pair by pair, kept apart from nearest neighbors, and never of what is hidden."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.device.doors import map_images, published
from veil.errors import InputError
from veil.features import Features
from veil.forms import Form
from veil.matching.lightglue import LightGlueOptions, learned_matches, lightglue_of
from veil.matching.pairs import all_pairs, match_pairs, match_pairs_by_network
from veil.mechanisms.public import publish
from veil.places.pairs.blocks import KIND, matched_in_blocks
from veil.places.pairs.choice import PairChoice
from veil.places.pairs.images import NetworkMatching, PlacedImages
from veil.places.pairs.matching import MatchingWork, matched_as_chosen
from veil.places.pairs.store import MatchStore
from veil.progress import silent
from worlds.lightglue_weights import still_weights
from worlds.releases import released, taken

OPTIONS = LightGlueOptions(min_score=0.2)
NETWORK = lightglue_of(still_weights(), OPTIONS)


@pytest.fixture(scope="module")
def some(door: dict[str, Features]) -> dict[str, Features]:
    return {name: taken(item, np.arange(150)) for name, item in door.items()}


@pytest.mark.slow
def test_blocks_and_choices_give_the_matches_of_single_pairs(some: dict[str, Features], tmp_path: Path) -> None:
    """Second method: the network, pair by pair. What it kept is no nearest neighbor's, and is not computed again."""
    images = PlacedImages({name: published(item) for name, item in some.items()})
    forms: dict[str, Form] = {name: publish(item) for name, item in some.items()}
    pairs = all_pairs(sorted(some))
    wanted = {(a, b): learned_matches(NETWORK, images[a], images[b]) for a, b in pairs}
    matching = NetworkMatching(network=NETWORK, images=images)
    answers = [
        matched_in_blocks(forms, pairs, MatchStore(tmp_path, NETWORK.kind), network=matching),
        match_pairs_by_network(images, pairs, NETWORK),
        matched_as_chosen(forms, PairChoice(method="all"), MatchingWork(network=matching), workers=1, steps=silent),
    ]
    for answer in answers:
        assert list(answer) == pairs and sum(map(len, answer.values())) > 100
        for pair in pairs:
            assert {*map(tuple, answer[pair].indices.tolist())} == {*map(tuple, wanted[pair].indices.tolist())}
    assert len(MatchStore(tmp_path, NETWORK.kind)) == len(pairs) and len(MatchStore(tmp_path, KIND)) == 0
    nearest = match_pairs(forms, pairs)
    assert any(len(nearest[pair]) != len(wanted[pair]) for pair in pairs)
    broken = NetworkMatching(network=NETWORK, images={})
    again = matched_in_blocks(forms, pairs, MatchStore(tmp_path, NETWORK.kind), network=broken)
    assert all(np.array_equal(again[pair].indices, answers[0][pair].indices) for pair in pairs)


def test_other_weights_and_options_are_another_kind() -> None:
    others = [
        lightglue_of(still_weights(gain=59.0), OPTIONS),
        *(lightglue_of(still_weights(), options) for options in (None, LightGlueOptions(depth_confidence=None))),
    ]
    assert len({network.kind for network in (NETWORK, *others)}) == 4


def test_messages_are_refused_before_anything_is_matched(some: dict[str, Features], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each form that hides something: words, and lines, whose map needs no positions."""
    monkeypatch.setattr("veil.matching.pairs.learned_matches", lambda *_: pytest.fail("matched"))
    names = sorted(some)[:2]
    for lines in (False, True):
        hidden = {name: released(some[name], None, lines=lines)[0] for name in names}
        with pytest.raises(InputError, match=r"is protected: its descriptors are hidden in subsets.*raw descriptors"):
            map_images(hidden, network=NETWORK)

"""Pairs of images that show two equal facades are told from pairs that show one."""

from __future__ import annotations

import numpy as np
import pytest

from veil.places.maps.clusters.repeated import ambiguous_features, chosen_side, doubted_pairs, missing_around
from veil.places.maps.verification import VerifiedPair
from worlds.streets import Street, street


def pairs_of(place: Street) -> dict[tuple[str, str], VerifiedPair]:
    """All planted pairs as verified ones."""
    return {pair: VerifiedPair(inliers=matches.indices, log10_chance=-20.0) for pair, matches in place.matches.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_pairs_of_two_equal_facades_are_doubted(seed: int) -> None:
    """Oracle: the planted wrong pairs: all are doubted, and fewer than one in a hundred of the others."""
    place = street(seed, 200, repeated=True, outliers=0.02)
    doubted = doubted_pairs(place.images, pairs_of(place))
    assert len(place.wrong_pairs) > 100
    assert len(doubted & place.wrong_pairs) > 0.98 * len(place.wrong_pairs)
    assert len(doubted - place.wrong_pairs) < 0.01 * len(place.matches)


def test_nothing_is_doubted_where_nothing_repeats() -> None:
    """Oracle: a planted street without equal facades."""
    place = street(1, 100, points_each=70, outliers=0.02)
    assert not doubted_pairs(place.images, pairs_of(place))


def test_missing_features_are_counted_where_the_pair_places_them() -> None:
    """Oracle: counts of a pair made by hand: half of a picture matches, the other half is known and matches nothing."""
    place = street(3, 20)
    name = sorted(place.images)[0]
    image = place.images[name]
    xy, (width, height) = image.keypoints, (image.camera.width_px, image.camera.height_px)
    inner = ((xy > [0.09 * width, 0.09 * height]) & (xy < [0.91 * width, 0.91 * height])).all(axis=1)
    left = np.flatnonzero(xy[:, 0] < width / 2)
    same = np.stack([left, left], axis=1)
    known = np.full(len(xy), 5)
    around = missing_around(image, image, same, known)
    right = int((inner & (xy[:, 0] >= width / 2)).sum())
    assert abs(around.missing - right) <= 0.15 * right
    assert around.doubts
    # Features that no other image knows are no evidence.
    assert missing_around(image, image, same, np.zeros(len(xy), dtype=np.int64)).missing == 0
    # Matches of every other feature, all over the picture, leave as many without a match and no doubt.
    rows = np.arange(0, len(xy), 2)
    assert not missing_around(image, image, np.stack([rows, rows], axis=1), known).doubts


def test_ambiguity_spreads_along_matches() -> None:
    """Oracle: a chain made by hand: a-b is doubted; c matches both ends of it twice, d only by one match of many."""
    rows = np.array([[0, 0], [1, 1]])

    def pair(indices: np.ndarray) -> VerifiedPair:
        return VerifiedPair(inliers=indices, log10_chance=-9.0)

    pairs = {("a", "b"): pair(rows), ("a", "c"): pair(rows), ("b", "c"): pair(rows), ("a", "d"): pair(rows[:1])}
    marked = ambiguous_features(dict.fromkeys("abcd", 3), pairs, frozenset({("a", "b")}))
    assert {name: mask.tolist() for name, mask in marked.items()} == {
        "a": [True, True, False],
        "b": [True, True, False],
        "c": [True, True, False],
        "d": [False, False, False],
    }


def test_an_image_without_neighbors_chooses_one_of_two_places() -> None:
    """Oracle: two groups made by hand, a-b-c, of which a and c have b in common alone, and x-y; e has no neighbor."""
    near = {"a": {"a", "b"}, "b": {"a", "b", "c"}, "c": {"b", "c"}, "x": {"x", "y"}, "y": {"x", "y"}, "e": {"e"}}
    assert chosen_side({"a": 4, "c": 5, "x": 1, "y": 2, "e": 0}, near) == {"a", "c"}
    assert chosen_side({"a": 4, "c": 5, "x": 3, "y": 2}, near) is None  # more than half as much
    assert chosen_side({"a": 4, "x": 0}, near) is None  # too little
    assert chosen_side({"a": 0, "c": 0}, near) == {"a", "c"}  # nothing to choose from
    assert chosen_side({"e": 9}, near) == set()


@pytest.mark.slow
@pytest.mark.parametrize("filled", [False, True])
def test_an_image_that_an_equal_facade_fills_joins_no_two_places(filled: bool) -> None:
    """Oracle: the planted wrong pairs: an image loses all of its matches that are not on the facade, and no wrong pair of it is
    left. With a few of them it keeps its true pairs, and without any it keeps none."""
    place = street(0, 200, repeated=True, outliers=0.02)
    pairs, wrong = pairs_of(place), place.wrong_pairs
    counts = {name: sum(name in pair for pair in wrong) for name in place.images}
    name = max(sorted(counts), key=counts.__getitem__)
    shared = np.zeros(len(place.images[name].keypoints), dtype=bool)
    for pair in wrong:
        if name in pair:
            shared[pairs[pair].inliers[:, pair.index(name)]] = True
    kept = set(np.flatnonzero(~shared)[: 0 if filled else 6].tolist()) | set(np.flatnonzero(shared).tolist())
    for pair, verified in list(pairs.items()):
        if name in pair:
            rows = np.array([row for row in verified.inliers if row[pair.index(name)] in kept], dtype=np.int64).reshape(-1, 2)
            pairs[pair] = VerifiedPair(inliers=rows, log10_chance=-20.0)
    pairs = {pair: verified for pair, verified in pairs.items() if len(verified.inliers) >= 15}
    doubted = doubted_pairs(place.images, pairs)
    own = {pair for pair in pairs if name in pair}
    assert len(own & wrong) > 5
    assert own & wrong <= doubted
    assert (own - wrong <= doubted) if filled else (len(own - wrong - doubted) > 5)

"""Pairs by tracks: tracks of matched images, and images of another walk or with few tracks that they find."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from veil.files.codebooks import bundled_codebook
from veil.forms import Form, Points, Subspaces
from veil.matching import Matches, match_pairs
from veil.matching.pairs import all_pairs
from veil.matching.similar_images import Background
from veil.places.pairs import tracks as tracks_module
from veil.places.pairs.candidates import accidental_rate, clear_pairs, far_pairs, nearness, words_in
from veil.places.pairs.choice import PairChoice, rounds
from veil.places.pairs.matching import MatchingWork, matched_as_chosen, similarities_by_matches
from veil.places.pairs.tracks import pairs_by_tracks, tracks_of
from veil.progress import silent
from worlds import generator, unit
from worlds.random_forms import form_through, points

BOOK = bundled_codebook()
DIM, SEEN, WALK = BOOK.raw_space.dim, 90, 8
PLANTED = points(SEEN * 4, dim=DIM, case="places of tracks")


def view(rows: np.ndarray, case: str) -> Form:
    noisy = unit(PLANTED[rows] + 0.01 * generator(case).normal(size=(len(rows), DIM)))
    return Points(vectors=noisy.astype(np.float32), space=BOOK.raw_space)


@cache
def two_walks() -> dict[str, Form]:
    """Two walks past the same places; image n + 1 of a walk sees two thirds of what image n sees."""
    return {f"{walk}{n}": view(np.arange(SEEN) + n * SEEN // 3, f"{walk} {n}") for walk in "ab" for n in range(WALK)}


def within_walks(forms: dict[str, Form]) -> dict[tuple[str, str], Matches]:
    """Matches of the pairs of one walk."""
    return match_pairs(forms, [(a, b) for a, b in all_pairs(sorted(forms)) if a[0] == b[0]])


@pytest.fixture(scope="module")
def walked() -> dict[tuple[str, str], Matches]:
    """Matches of the pairs of each of the two walks."""
    return within_walks(two_walks())


@pytest.mark.slow
def test_tracks_have_three_images_and_one_feature_of_each(walked: dict[tuple[str, str], Matches]) -> None:
    """Planted: feature f of image n is place f + 30 n, which all images of a track must agree on."""
    forms = two_walks()
    tracked, count = tracks_of({name: len(form) for name, form in forms.items()}, walked, 0.8)
    seen: dict[int, list[tuple[str, int]]] = {}
    for name, (features, tracks) in tracked.items():
        assert len(set(tracks.tolist())) == len(tracks)
        for feature, track in zip(features, tracks, strict=True):
            seen.setdefault(int(track), []).append((name, int(feature) + int(name[1]) * SEEN // 3))
    assert len(seen) == count == 2 * 180
    assert min(map(len, seen.values())) >= 3
    assert all(len({place for _, place in views}) == 1 for views in seen.values())
    assert tracks_of({}, {}, 0.8) == ({}, 0)


def test_tracks_end_where_the_images_of_one_task_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: of eight images in a row, groups of four see no common track."""
    monkeypatch.setattr(tracks_module, "_TOGETHER", 4)
    forms = {name: form for name, form in two_walks().items() if name[0] == "a"}
    tracked, _ = tracks_of({name: len(form) for name, form in forms.items()}, within_walks(forms), 0.8)
    groups = {frozenset(range(4)), frozenset(range(4, 8))}
    of_track: dict[int, set[int]] = {}
    for name, (_, tracks) in tracked.items():
        for track in tracks.tolist():
            of_track.setdefault(track, set()).add(int(name[1]))
    assert of_track and all(any(images <= group for group in groups) for images in of_track.values())


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_tracks_find_the_other_walk_and_images_without_tracks() -> None:
    """Planted: walk b saw what walk a saw, and an image by itself saw what image 4 of both did.

    Both ends of a walk see thirty places that three images see, which is too few, but the index of tracks finds them. An image
    of another place is left, to be compared with others of its kind; without tracks all images are.
    """
    stranger = Points(vectors=points(SEEN, dim=DIM, case="elsewhere").astype(np.float32), space=BOOK.raw_space)
    forms = two_walks() | {"lonely": view(np.arange(SEEN) + 4 * SEEN // 3, "lonely"), "stranger": stranger}
    tracked, count = tracks_of({name: len(form) for name, form in forms.items()}, within_walks(forms), 0.8)
    words = words_in(next(iter(forms.values())), BOOK)  # type: ignore[arg-type]
    pairs, alone = pairs_by_tracks(forms, tracked, count, words, count=8)
    assert list(alone) == ["stranger"]
    assert {name for name in forms if any(name in pair for pair in pairs)} == set(forms) - {"stranger"}
    assert {(f"a{n}", f"b{n}") for n in range(1, WALK - 1)} <= set(pairs)
    assert {("a4", "lonely"), ("b4", "lonely")} <= set(pairs)
    assert not {(f"a{n}", f"b{m}") for n in range(WALK) for m in range(WALK) if abs(n - m) > 3} & set(pairs)
    pairs, alone = pairs_by_tracks(forms, {}, 0, words)
    assert pairs == [] and alone == forms


@pytest.mark.slow
def test_images_without_tracks_ask_by_their_most_distinctive_features() -> None:
    """Second method: of an image that no track reaches, the half of largest reach, sorted by hand, is left to compare."""
    forms = {
        name: form_through(form.vectors.astype(np.float64), 2, name)
        for name, form in two_walks().items()
        if isinstance(form, Points)
    }
    forms["stranger"] = form_through(points(SEEN, dim=DIM, case="elsewhere"), 2, "stranger")
    tracked, count = tracks_of({name: len(form) for name, form in forms.items()}, within_walks({**forms}), 1.0)
    words = generator("words of tracks").normal(size=(64, DIM)).astype(np.float32)
    _, alone = pairs_by_tracks(forms, tracked, count, words, count=8)
    reach = Background.of(forms, words).reach(forms["stranger"])
    own = alone["stranger"]
    assert isinstance(own, Subspaces)
    np.testing.assert_array_equal(own.origin, forms["stranger"].origin[np.sort(np.argsort(-reach, kind="stable")[: SEEN // 2])])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_pairs_by_tracks_are_matched_as_all_pairs_are() -> None:
    """Second method: all pairs; those that see common places are tried, and have the same matches."""
    forms = two_walks()
    by_pair = matched_as_chosen(forms, PairChoice(method="tracks"), MatchingWork(), workers=2, steps=silent)
    every = matched_as_chosen(forms, PairChoice(method="all"), MatchingWork(), workers=2, steps=silent)
    right = {(a, b) for a, b in every if abs(int(a[1]) - int(b[1])) <= 1}
    assert right <= set(by_pair)
    for pair, matches in by_pair.items():
        np.testing.assert_array_equal(matches.indices, every[pair].indices)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("method", ["all", "tracks", "retrieval"])
def test_rounds_name_no_pair_twice_and_none_of_two_old_images(method: str) -> None:
    """Laws: rounds are disjoint. With the matches of each before the next they are the pairs of the loop, in its order.

    Three images are matched already. Broken twin: a loop that keeps the matches from the choice; tracks name pairs twice then.
    """
    forms, old, asked = two_walks(), frozenset({"a0", "a1", "a2"}), PairChoice(method=method)
    named: list[tuple[str, str]] = []
    matches: dict[tuple[str, str], Matches] = {}
    for one in rounds(forms, asked, matches, steps=silent, matched_already=old):
        assert not {*one.pairs} & {*named} and not any({*pair} <= old for pair in one.pairs)
        matches |= match_pairs(forms, one.pairs)
        named += one.pairs
    assert len(named) == len({*named}) > 70
    assert named == [*matched_as_chosen(forms, asked, None, workers=1, steps=silent, matched_already=old)]
    kept_from_it = [pair for one in rounds(forms, asked, {}, steps=silent, matched_already=old) for pair in one.pairs]
    assert (len(kept_from_it) > len({*kept_from_it})) == (method == "tracks")


def test_far_pairs_stand_half_of_the_names_apart() -> None:
    names = [f"{n:04}" for n in range(1000)]
    assert all(int(b) - int(a) == 500 for a, b in far_pairs(names)) and len(far_pairs(names)) == 100
    assert far_pairs(names[:199]) == []


def test_clear_pairs_stand_out_of_accidents() -> None:
    """Enumeration: at a rate of 0.02, 1,000 features give 20 accidents, and a clear pair 43 or more."""
    features = {"a": 1000, "b": 1000, "c": 1000}
    some = within_walks({"a0": view(np.arange(60), "x"), "a1": view(np.arange(60), "y")})["a0", "a1"]
    forty_two, forty_three = some.take(np.arange(42)), some.take(np.arange(43))
    low = {("a", "b"): forty_two, ("a", "c"): forty_three}
    assert clear_pairs(low, features, 0.02) == [("a", "c")]
    assert accidental_rate({("a", "b"): some.take(np.arange(20))}, features) == pytest.approx(0.02)
    assert accidental_rate({}, features) == 0.0


def test_words_have_no_tracks_and_are_retrieved() -> None:
    """Forms in words go the way of retrieval, and raise nothing of tracks."""
    from veil.forms import Subsets
    from veil.ldp.mechanism import SubsetMechanism

    mechanism = SubsetMechanism(dictionary_size=len(BOOK), epsilon=10.0, m=2)
    ids = np.sort(generator("words of tracks").choice(len(BOOK), (40, 2)), axis=1).astype(np.uint32)
    ids[:, 1] = np.where(ids[:, 1] == ids[:, 0], (ids[:, 0] + 1) % len(BOOK), ids[:, 1])
    form = Subsets(ids=np.sort(ids, axis=1), mechanism=mechanism, space=BOOK.raw_space, dictionary=BOOK.digest, releasable=True)
    matches = matched_as_chosen({"a": form, "b": form, "c": form}, PairChoice(method="tracks"), None, workers=1, steps=silent)
    assert set(matches) == {("a", "b"), ("a", "c"), ("b", "c")}


@pytest.mark.slow
def test_images_that_chains_of_matches_join_are_tried_and_ranked() -> None:
    """Planted: images of one walk see two thirds of the next, and nothing of the third; a stranger is ranked last.

    Second method: without the last step, ends of chains are not tried.
    """
    stranger = Points(vectors=points(SEEN, dim=DIM, case="elsewhere").astype(np.float32), space=BOOK.raw_space)
    forms = {name: form for name, form in two_walks().items() if name[0] == "a"} | {"stranger": stranger}
    features = {name: len(form) for name, form in forms.items()}
    matches = {pair: rows for pair, rows in within_walks(forms).items() if int(pair[1][1]) - int(pair[0][1]) == 1}
    further = nearness(matches, features, 0.0).pairs(4, matches)
    assert ("a0", "a2") in further and ("a0", "a4") in further and not any("stranger" in pair for pair in further)
    names, similarity = similarities_by_matches(forms, steps=silent)
    assert names == sorted(forms)
    for row, name in enumerate(names[:-1]):
        order = [names[other] for other in np.argsort(-similarity[row], kind="stable") if other != row]
        assert order[-1] == "stranger" and abs(int(order[0][1]) - int(name[1])) == 1
        assert similarity[row][names.index("stranger")] < 1 < similarity[row][names.index(order[1])]

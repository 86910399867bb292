"""Similar images by their subspaces: votes against a search by hand, and photographs that overlap come first."""

from __future__ import annotations

import numpy as np
import pytest

from veil import distances
from veil.errors import InputError, SpaceError
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.forms import Points, Subspaces
from veil.matching import similar_images
from veil.matching.similar_images import LISTED, VOTING_SHARE, Background, SubspaceIndex, usual_votes, votes_for
from veil.matching.word_distances import smallest
from veil.mechanisms.profile import Profile
from worlds import generator
from worlds.random_forms import form_through, points
from worlds.releases import released

FEATURES, PHOTOGRAPHS = 240, 3


@pytest.fixture(scope="module")
def forms(door: dict[str, Features], elsewhere: Features) -> dict[str, Subspaces]:
    """Hardened releases of photographs of a door and of another place."""
    by_name = {}
    chosen = {name: door[name] for name in sorted(door)[:PHOTOGRAPHS]}
    for name, features in {**chosen, "elsewhere": elsewhere}.items():
        form = released(features, Profile.hardened(quantized=True))[0].form
        assert isinstance(form, Subspaces)
        by_name[name] = form.take(np.arange(FEATURES))
    return by_name


@pytest.fixture(scope="module")
def background(forms: dict[str, Subspaces]) -> Background:
    book = bundled_codebook()
    words = Points(vectors=book.vectors[::8], space=book.raw_space)
    return Background.of(forms, book.compression.into_space(words, next(iter(forms.values())).space).vectors)


def by_hand(first: Subspaces, second: Subspaces, background: Background) -> int:
    """Pairs that share a listed word and are near, from float64 distances of all pairs of features."""
    words = [background.nearest_words(form) for form in (first, second)]
    share = (words[0][:, None, :, None] == words[1][None, :, None, :]).any(axis=(2, 3))
    distance = distances.pairwise((first.origin, first.basis), (second.origin, second.basis))
    reach = np.minimum.outer(background.reach(first), background.reach(second))
    return int((share & (distance > background.decoys) & (distance <= VOTING_SHARE * reach)).sum())


@pytest.mark.slow
def test_votes_are_those_of_a_search_by_hand(forms: dict[str, Subspaces], background: Background) -> None:
    """Second method: all pairs of features in float64. A query of its own index gets the same votes."""
    index = SubspaceIndex.of(forms, background)
    votes = votes_for(index, index, threads=2)
    names = index.names
    expected = np.array([[0 if a == b else by_hand(forms[a], forms[b], background) for b in names] for a in names])
    assert expected.sum() > 20
    np.testing.assert_array_equal(votes, expected)
    query = SubspaceIndex.of({"asked": forms[names[0]]}, background)
    np.testing.assert_array_equal(votes_for(query, index)[0, 1:], expected[0, 1:])


@pytest.mark.slow
def test_few_features_together_change_nothing(
    forms: dict[str, Subspaces], background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Second method: blocks of three features, and one word at a time."""
    index = SubspaceIndex.of(forms, background)
    whole = votes_for(index, index)
    monkeypatch.setattr(similar_images, "_TOGETHER", 3)
    np.testing.assert_array_equal(votes_for(index, index), whole)


@pytest.mark.slow
def test_photographs_of_a_place_come_before_another_place(forms: dict[str, Subspaces], background: Background) -> None:
    """Planted: three photographs overlap, the fourth is of another place."""
    index = SubspaceIndex.of(forms, background)
    unusual = usual_votes(votes_for(index, index))
    other = index.names.index("elsewhere")
    for row, name in enumerate(index.names):
        if name != "elsewhere":
            best = max(unusual[row, column] for column in range(len(index.names)) if column not in (row, other))
            assert unusual[row, other] <= 0 < best
    assert unusual[other].max() <= 0


def test_nearest_words_are_those_that_are_unusually_near() -> None:
    """Enumeration in float64: the distance of each word to each subspace, in units of what is usual for the word."""
    made = form_through(points(40, dim=24, case="words"), 3, "subspaces to words")
    words = points(60, dim=24, case="dictionary").astype(np.float32)
    background = Background.of({"a": made}, words)
    distance = distances.pairwise((words, None), (made.origin, made.basis), backend="reference").T
    np.testing.assert_allclose(background.mean, distance.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(background.deviation, distance.std(axis=0), rtol=1e-3)
    unusual = (distance - distance.mean(axis=0)) / distance.std(axis=0)
    np.testing.assert_array_equal(background.nearest_words(made), np.sort(np.argsort(unusual, axis=1)[:, :LISTED], axis=1))


def test_usual_votes_are_products_of_shares() -> None:
    """Defining equation: where votes are products of what each image gives and gets, none is unusual."""
    give = np.array([1, 2, 5, 10])
    assert np.abs(usual_votes(np.outer(give, give) * 12)).max() < 1e-3
    planted = np.outer(give, give) * 12
    planted[0, 1] += 60
    assert usual_votes(planted).argmax() == 1


@pytest.mark.slow
def test_other_spaces_and_no_features_are_refused(forms: dict[str, Subspaces], background: Background) -> None:
    foreign = form_through(points(5, dim=24), 3, "foreign")
    with pytest.raises(SpaceError):
        SubspaceIndex.of({"a": foreign}, background)
    with pytest.raises(InputError, match="dimensions"):
        Background.of(forms, np.zeros((4, 7), dtype=np.float32))
    with pytest.raises(InputError, match="feature"):
        Background.of({"a": foreign.take(np.arange(0))}, np.zeros((4, 24), dtype=np.float32))
    nothing = {**forms, "empty": forms["elsewhere"].take(np.arange(0))}
    index = SubspaceIndex.of(nothing, background)
    assert not votes_for(index, index)[index.names.index("empty")].any()


@pytest.mark.slow
def test_the_most_distinctive_features_are_indexed_alone(forms: dict[str, Subspaces], background: Background) -> None:
    """Second method: the features of largest reach, taken by hand, under four words each."""
    index = SubspaceIndex.of(forms, background, listed=4, share=0.25)
    for row, name in enumerate(index.names):
        reach = background.reach(forms[name])
        own = np.flatnonzero(index.image == row)
        assert len(own) == FEATURES // 4
        np.testing.assert_array_equal(np.sort(index.reach[own]), np.sort(reach)[-FEATURES // 4 :])
    assert index.words.shape[1] == 4


@pytest.mark.parametrize("count", [1, 3, 40, 60])
def test_the_smallest_columns_come_in_order(count: int) -> None:
    """Second method: a stable sort of each row; with equal values, and with more asked for than there are."""
    values = generator("smallest").integers(0, 30, (20, 50)).astype(np.float32)
    np.testing.assert_array_equal(smallest(values, count), np.argsort(values, axis=1, kind="stable")[:, :count])

"""The index of a map's points: votes against a search by hand, planted images come first, and shared decoys get no votes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil import distances
from veil.errors import InputError, SpaceError
from veil.forms import Flat, Points, Subspaces
from veil.matching import point_index, point_indexing
from veil.matching.point_index import LOOKED_UP, NEAREST, UNRELATED, VOTING_SHARE, PointIndex
from veil.matching.point_indexing import VIEWS, index_points
from worlds import generator, unit
from worlds.random_forms import RAW, form_through, points

DIM, M, IMAGES, SEEN, COUNT = 24, 2, 10, 60, 240
WORDS = points(150, dim=DIM, case="words of an index").astype(np.float32)
PLANTED = points(COUNT, dim=DIM, case="points of an index")


def view(rows: np.ndarray, case: str, m: int) -> Flat:
    """Descriptors of some points with a little noise: subspaces in random directions, or points where m = 0."""
    noisy = unit(PLANTED[rows] + 0.01 * generator(case).normal(size=(len(rows), DIM)))
    return form_through(noisy, m, case) if m else Points(vectors=noisy.astype(np.float32), space=replace(RAW, dim=DIM))


def observed(number: int) -> np.ndarray:
    """Rows of the points that an image of the planted map sees: its neighbors see some of them, too."""
    return (np.arange(SEEN) + number * COUNT // IMAGES) % COUNT


def planted(m: int) -> dict[str, tuple[Flat, np.ndarray]]:
    """Ten images around a ring of points, each of which two or three see."""
    return {f"{n}": (view(observed(n), f"image {n} {m}", m), observed(n)) for n in range(IMAGES)}


def index_of(m: int, *, threads: int = 1) -> PointIndex:
    return index_points(planted(m), WORDS, COUNT, threads=threads)


def distance_rows(form: Flat, rows: np.ndarray) -> np.ndarray:
    """Distances in float64 of features to rows of origin and basis."""
    one = (form.vectors, None) if isinstance(form, Points) else (form.origin, form.basis)
    return distances.pairwise(one, (rows[:, 0], rows[:, 1:] if rows.shape[1] > 1 else None), backend="reference")


def by_hand(index: PointIndex, query: Flat) -> set[tuple[int, int]]:
    """Votes from float64 distances: words, reach, first view, mean of all views (docs/theory/scale.md, Eq. 9-11)."""
    views = index.views.astype(np.float32)
    to_words = distance_rows(query, WORDS[:, None])
    usual = index._usual_of(M)
    words = np.argsort((to_words - usual.mean) / usual.deviation, axis=1)[:, :LOOKED_UP]
    all_views = distance_rows(query, views)
    means = np.array([all_views[:, a:b].mean(axis=1) for a, b in zip(index.starts, index.starts[1:], strict=False)]).T
    some = np.unique(np.linspace(0, COUNT - 1, min(UNRELATED, COUNT)).astype(int))
    reach = np.sort(means[:, some], axis=1)[:, :NEAREST].mean(axis=1)
    votes = set()
    for row in range(len(query)):
        for word in words[row]:
            for point in index.entries[index.offsets[word] : index.offsets[word + 1]]:
                near = all_views[row, index.starts[point]] <= reach[row]
                if near and means[row, point] <= VOTING_SHARE * reach[row]:
                    votes.add((row, int(point)))
    return votes


@pytest.mark.slow
@pytest.mark.parametrize("m", [0, M])
def test_votes_are_those_of_a_search_by_hand(m: int) -> None:
    """Second method: everything in float64, one feature and point at a time; private queries on a public map, too."""
    index = index_of(m)
    query = view(observed(3), "asked", M)
    rows, voted, ratios = index.votes(query)
    rows, voted = rows[ratios <= VOTING_SHARE], voted[ratios <= VOTING_SHARE]
    assert set(zip(rows.tolist(), voted.tolist(), strict=True)) == by_hand(index, query)
    right = observed(3)[rows] == voted
    assert right.sum() >= 10 and right.mean() > 0.8


def test_threads_change_nothing() -> None:
    """Second method: one thread."""
    one, two = index_of(M), index_of(M, threads=2)
    np.testing.assert_array_equal(one.entries, two.entries)
    query = view(observed(5), "threads", M)
    np.testing.assert_array_equal(one.scores(query), two.scores(query, threads=2))


@pytest.mark.parametrize("m", [0, M])
def test_the_image_that_sees_most_comes_first(m: int) -> None:
    """Planted: the query sees what image 7 sees, and its neighbors see half and less of that."""
    index = index_of(m)
    names = index.similar(view(observed(7), "seventh", M))
    assert names[0] == "7" and set(names[:3]) <= {"6", "7", "8"}


def test_without_votes_hints_order_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: without hints, a query none of whose features votes finds no image."""
    index = index_of(M)
    monkeypatch.setattr(point_index, "VOTING_SHARE", 0.0)
    query = view(observed(7), "hinted", M)
    assert index.similar(query)[0] == "7"
    monkeypatch.setattr(point_index, "HINT", 0.0)
    assert index.similar(query) == []


def test_points_are_listed_under_the_word_nearest_to_all_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumeration in float64 of the sum of unusual distances (Eq. 9), of points with three views."""
    monkeypatch.setattr(point_indexing, "FEW", 1)
    index = index_of(M)
    seen = np.bincount(np.concatenate([rows for _, rows in planted(M).values()]), minlength=COUNT)
    assert set(index.entries.tolist()) == set(np.flatnonzero(seen >= point_indexing.LEAST_VIEWS).tolist())
    views = index.views.astype(np.float32)
    nothing = distances.pairwise((WORDS, None), (views[:, 0], views[:, 1:]), backend="reference").T
    unusual = (nothing - index.mean) / index.deviation
    for point in np.unique(index.entries)[:20]:
        word = int(np.searchsorted(index.offsets, np.flatnonzero(index.entries == point)[0], side="right")) - 1
        assert word == unusual[index.starts[point] : index.starts[point + 1]].sum(axis=0).argmin()


def test_images_with_few_points_are_listed_whole() -> None:
    """Planted: every image sees less than `FEW` points that three images see, so that all points are listed."""
    assert set(index_of(M).entries.tolist()) == set(range(COUNT))


def test_at_most_five_views_of_a_point_are_kept() -> None:
    """Enumeration: a point that twelve images see keeps views of five of them, spread over all."""
    forms = {f"{n:02}": (view(np.arange(4), f"many {n}", 0), np.arange(4)) for n in range(12)}
    index = index_points(forms, WORDS, 4)
    assert np.diff(index.starts).tolist() == [VIEWS] * 4 and np.diff(index.seen_from).tolist() == [12] * 4
    kept = [forms[f"{n:02}"][0] for n in (0, 2, 4, 7, 9)]
    expected = np.array([form.vectors[0] for form in kept if isinstance(form, Points)])
    np.testing.assert_allclose(index.views[index.starts[0] : index.starts[1], 0], expected, atol=1e-3)


def test_shared_decoys_get_no_votes() -> None:
    """Broken twin: without the floor, features of other points that share a decoy with a query vote for their image."""
    decoys = points(SEEN, dim=DIM, case="shared decoys")
    space = replace(RAW, dim=DIM, dither_steps=8.0)

    def through(descriptors: np.ndarray, case: str) -> Subspaces:
        """Subspaces of dimension 1 through descriptors and the decoys that all images share."""
        from veil.forms import canonical

        origin, basis = canonical(descriptors, (decoys - descriptors)[:, None])
        made = form_through(descriptors, 1, case)
        return replace(made, origin=origin.astype(np.float32), basis=basis.astype(np.float32), space=space, profile="hardened")

    others = [points(SEEN, dim=DIM, case=f"others {n}") for n in range(3)]
    forms = {f"{n}": (through(others[0], "map"), np.arange(SEEN)) for n in range(3)}
    index = index_points(forms, WORDS, SEEN)
    assert index.hardened
    query = through(others[1], "asked")
    broken = replace(index, hardened=False)
    assert (broken.votes(query)[2] <= VOTING_SHARE).sum() >= 10
    assert not (index.votes(query)[2] <= VOTING_SHARE).any()


def test_other_spaces_and_nothing_are_refused() -> None:
    index = index_of(M)
    with pytest.raises(SpaceError):
        index.scores(form_through(points(5, dim=32), 2, "foreign"))
    with pytest.raises(InputError, match="dimensions"):
        index_points(planted(M), np.zeros((4, 7), dtype=np.float32), COUNT)
    with pytest.raises(InputError, match="observes"):
        index_points({"a": (view(np.arange(0), "none", 0), np.arange(0))}, WORDS, COUNT)
    assert index.similar(view(np.arange(0), "empty", 0)) == []


def test_an_index_grows_by_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: every point compared anew with what was usual before. Only changed points are; others keep their words.

    Broken twin: an index that kept all words would list new points nowhere.
    """
    images = planted(M)
    small = {name: item for name, item in images.items() if name != "4"}
    before = index_points(small, WORDS, COUNT)
    asked: list[int] = []
    compared = point_indexing._words_of_points

    def counted(views, starts, points, *rest):
        asked.extend(points.tolist())
        return compared(views, starts, points, *rest)

    monkeypatch.setattr(point_indexing, "_words_of_points", counted)
    grown = index_points(images, WORDS, COUNT, known=before)
    assert set(asked) == set(observed(4).tolist())
    np.testing.assert_array_equal(grown.mean, before.mean)
    anew = point_indexing.Usual(mean=before.mean, deviation=before.deviation)
    every = compared(grown.views, grown.starts, np.arange(COUNT), WORDS, anew, 1, 1, None)
    under = np.repeat(np.arange(len(WORDS)), np.diff(grown.offsets))
    assert dict(zip(grown.entries.tolist(), under.tolist(), strict=True)) == dict(enumerate(every[:, 0].tolist()))
    other = index_points(images, WORDS[::-1].copy(), COUNT, known=before)
    assert not np.array_equal(other.mean, before.mean), "an index of other words is not used"

"""Points that vote for points: against a search by hand, and two walks past the same points are recognized."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil import distances
from veil.forms import Points, Subspaces
from veil.matching import point_votes
from veil.matching.point_index import PointIndex
from veil.matching.point_indexing import index_points
from veil.matching.point_votes import COMMON, ENTERED, UNRELATED, VOTING_SHARE, same_points, similarity_by_points
from worlds import generator, unit
from worlds.random_forms import RAW, form_through, points

DIM, M, WALK, PLACES, SEEN = 24, 2, 6, 300, 60
WORDS = points(150, dim=DIM, case="words of point votes").astype(np.float32)
PLANTED = points(PLACES, dim=DIM, case="planted places")


def places(image: int) -> np.ndarray:
    """Places that image `image` of a walk sees: the next image sees two thirds of them, and the one after that a third."""
    return np.arange(SEEN) + image * SEEN // 3


def view(rows: np.ndarray, case: str, m: int, dim: int = DIM) -> Points | Subspaces:
    noisy = unit(PLANTED[rows] + 0.01 * generator(case).normal(size=(len(rows), dim)))
    return form_through(noisy, m, case) if m else Points(vectors=noisy.astype(np.float32), space=replace(RAW, dim=dim))


def two_walks(m: int, *, images: int = WALK, threads: int = 1) -> PointIndex:
    """Two walks past the same places, the tracks of each by themselves: track p of the first and p + PLACES are one place."""
    forms = {
        f"{walk}{n}": (view(places(n), f"{walk} {n} {m}", m), places(n) + walk * PLACES)
        for walk in (0, 1)
        for n in range(images)
    }
    return index_points(forms, WORDS, 2 * PLACES, entered=ENTERED, threads=threads)


def by_hand(index: PointIndex) -> set[tuple[int, int]]:
    """Votes from float64 distances, one pair of points at a time (docs/theory/scale.md, Eq. 13-14)."""
    views = index.views.astype(np.float64)
    apart = np.zeros((len(views), len(views)))
    for row in range(len(views)):  # each pair once
        sides = [(part[:, 0], part[:, 1:] if part.shape[1] > 1 else None) for part in (views[row : row + 1], views[row:])]
        apart[row, row:] = apart[row:, row] = distances.pairwise(*sides, backend="reference")[0]
    spans = [slice(a, b) for a, b in zip(index.starts, index.starts[1:], strict=False)]
    by_row = np.array([[rows[span].mean() if span.stop > span.start else np.inf for span in spans] for rows in apart])
    means = np.array([by_row[span].mean(axis=0) if span.stop > span.start else np.full(len(spans), np.inf) for span in spans])
    sample = np.unique(np.linspace(0, index.points - 1, min(UNRELATED, index.points)).astype(int))
    reach = np.zeros(index.points)
    for point in range(index.points):
        others = np.sort(means[point, sample[sample != point]])[:3]
        reach[point] = others[np.isfinite(others)].mean() if np.isfinite(others).any() else 0.0
    votes = set()
    for word in range(len(index.words)):
        own = index.entries[index.offsets[word] : index.offsets[word + 1]]
        for x, a in enumerate(own):
            for b in own[x + 1 :]:
                near = min(reach[a], reach[b])
                if apart[index.starts[a], index.starts[b]] <= near and means[a, b] <= VOTING_SHARE * near:
                    votes.add((int(a), int(b)))
    return votes


@pytest.mark.slow
@pytest.mark.parametrize("m", [0, M])
def test_votes_are_those_of_a_search_by_hand(m: int) -> None:
    """Second method: everything in float64; and most votes are for the same place."""
    index = two_walks(m, images=4)
    first, second = same_points(index)
    votes = set(zip(first.tolist(), second.tolist(), strict=True))
    expected = by_hand(index)
    assert len(votes ^ expected) <= 0.01 * len(expected), "float32 may decide pairs at the very threshold otherwise"
    right = second - first == PLACES
    assert right.sum() >= 50 and right.mean() > 0.8


def test_threads_and_small_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: one thread, and all points of a word at once."""
    index = two_walks(M)
    first, second = same_points(index)
    for name, value in (("_TOGETHER", 3), ("_WORDS", 1), ("_POINTS", 7)):
        monkeypatch.setattr(point_votes, name, value)
    again = same_points(two_walks(M, threads=2), threads=2)
    np.testing.assert_array_equal(again, (first, second))


@pytest.mark.parametrize("m", [0, M])
def test_an_image_is_most_like_that_of_the_other_walk(m: int) -> None:
    """Planted: image n of both walks sees the same places, and no track joins the walks."""
    index = two_walks(m)
    similarity = similarity_by_points(index, threads=2)
    across = similarity[:WALK, WALK:]
    np.testing.assert_array_equal(across.argmax(axis=1), np.arange(WALK))
    far = np.abs(np.subtract.outer(np.arange(WALK), np.arange(WALK))) >= 3
    assert across[far].max() < across.diagonal().min() / 4


def test_similarity_is_what_a_count_by_hand_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumeration over images of pairs of their points (Eq. 15), images in parts of five."""
    monkeypatch.setattr(point_votes, "_IMAGES", 5)
    index = two_walks(M)
    count = len(index.image_names)
    sees = np.zeros((count, index.points))
    sees[index.images, np.repeat(np.arange(index.points), np.diff(index.seen_from))] = 1
    voting = COMMON * np.eye(index.points)
    first, second = same_points(index)
    voting[first, second] = voting[second, first] = 1
    total = sees @ voting @ sees.T
    np.fill_diagonal(total, 0)
    usual = np.outer(total.sum(axis=1), total.sum(axis=0)) / total.sum()
    np.testing.assert_allclose(similarity_by_points(index), (total - usual) / np.sqrt(usual + 1), atol=1e-3)


def test_points_that_share_decoys_get_no_votes_for_them() -> None:
    """Broken twin: without the floor, points of other places whose views share decoys would vote for each other."""
    decoys = points(SEEN, dim=DIM, case="shared decoys of points")
    space = replace(RAW, dim=DIM, dither_steps=8.0)

    def through(rows: np.ndarray, case: str) -> Subspaces:
        corners = np.stack([PLANTED[rows], decoys[: len(rows)]], axis=1)
        direction = unit(corners[:, 1] - corners[:, 0])[:, None]
        origin = corners[:, 0] - (corners[:, :1] @ direction.transpose(0, 2, 1) @ direction)[:, 0]
        form = form_through(PLANTED[rows], 1, case)
        assert isinstance(form, Subspaces)
        return replace(
            form, origin=origin.astype(np.float32), basis=direction.astype(np.float32), space=space, profile="hardened"
        )

    rows = [np.arange(SEEN), np.arange(SEEN) + SEEN]
    forms = {f"{n}": (through(own, f"decoys {n}"), np.arange(SEEN) + n * SEEN) for n, own in enumerate(rows)}
    index = index_points(forms, WORDS, 2 * SEEN, entered=len(WORDS))
    first, second = same_points(index)
    assert not (second - first == SEEN).any()
    first, second = same_points(replace(index, hardened=False))
    assert (second - first == SEEN).mean() > 0.9


def test_no_point_gives_no_votes() -> None:
    index = replace(two_walks(0), starts=np.zeros(1, dtype=np.int64), seen_from=np.zeros(1, dtype=np.int64))
    assert [len(part) for part in same_points(index)] == [0, 0]

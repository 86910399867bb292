"""Tracks and quads against enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.places.maps.lines.tracks import Tracks, build_tracks, candidate_quads, match_graph
from worlds import generator


def pairs(*rows: tuple[int, int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


COUNTS = {"a": 3, "b": 2, "c": 3}
CONTRADICTION = {("a", "b"): pairs((0, 0), (1, 1)), ("a", "c"): pairs((1, 0)), ("b", "c"): pairs((0, 1), (1, 2))}


def listed(tracks: Tracks) -> list[list[str]]:
    """Each track as its observations, such as ["a0", "b1"]."""
    return [
        [f"{tracks.names[i]}{f}" for i, f in zip(tracks.image[low:high], tracks.feature[low:high], strict=True)]
        for low, high in zip(tracks.starts[:-1], tracks.starts[1:], strict=True)
    ]


def test_components_become_tracks_and_contradictions_are_left_out() -> None:
    """By hand: a0-b0-c1 is a track; a1-b1, a1-c0 too, which b1-c2 would give two features of c."""
    tracks = build_tracks(match_graph(COUNTS, CONTRADICTION))
    assert tracks.names == ("a", "b", "c")
    assert listed(tracks) == [["a0", "b0", "c1"], ["a1", "b1", "c0"]]
    assert tracks.left_out == 1
    assert tracks.table([2, 0]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(("worst", "expected"), [(("a", "b"), ["b1", "c2"]), (("a", "c"), ["a1", "b1", "c2"])])
def test_the_least_distinctive_match_is_left_out(worst: tuple[str, str], expected: list[str]) -> None:
    """By hand: of a1-b1, a1-c0, b1-c2 the one with the highest ratio goes, whatever the order of the pairs."""
    ratios = {pair: np.full(len(rows), 0.5 + 0.2 * (pair == worst)) for pair, rows in CONTRADICTION.items()}
    tracks = build_tracks(match_graph(COUNTS, CONTRADICTION, ratios=ratios))
    assert expected in listed(tracks) and len(tracks) == (3 if worst == ("a", "b") else 2)
    assert tracks.left_out == 1


def test_ambiguous_matches_start_no_track() -> None:
    """By hand: the limit itself is not strong; the graph keeps what is weak, sorted by ratio."""
    ratios = {("a", "b"): np.array([0.9, 0.1]), ("a", "c"): np.array([0.8]), ("b", "c"): np.array([0.79, 0.2])}
    graph = match_graph(COUNTS, CONTRADICTION, ratios=ratios)
    assert graph.ratios.tolist() == [0.1, 0.2, 0.79, 0.8, 0.9]
    assert graph.strong.tolist() == [True, True, True, False, False]
    # Nodes: a0 a1 a2 are 0 1 2, b0 b1 are 3 4, c0 c1 c2 are 5 6 7.
    assert graph.first.tolist() == [1, 4, 3, 1, 0] and graph.second.tolist() == [4, 7, 6, 5, 3]
    assert graph.image_of.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert sorted(listed(build_tracks(graph))) == [["a1", "b1", "c2"], ["b0", "c1"]]


def test_no_match_is_no_track() -> None:
    tracks = build_tracks(match_graph(COUNTS, {}))
    assert len(tracks) == 0 and listed(tracks) == [] and tracks.table([0, 1]).shape == (0, 2)


def test_planted_tracks_come_back() -> None:
    """Planted truth: shuffled features of points, all pairs matched; every point seen twice or more is one track."""
    random = generator("tracks")
    names, seen = "abcdef", random.random((60, 6)) < 0.6
    where = {}
    for i, name in enumerate(names):
        points = random.permutation(np.flatnonzero(seen[:, i]))
        where[name] = {int(p): row for row, p in enumerate(points)}
    matches = {
        (a, b): pairs(*[(where[a][p], where[b][p]) for p in where[a] if p in where[b]]) for a, b in combinations(names, 2)
    }
    tracks = build_tracks(match_graph({n: len(where[n]) for n in names}, matches))
    expected = {tuple(where[n].get(p, -1) for n in names) for p in range(60) if sum(p in where[n] for n in names) >= 2}
    assert {tuple(row) for row in tracks.table(range(6)).tolist()} == expected
    assert len(tracks) == len(expected) and tracks.left_out == 0


def test_impossible_matches_are_refused() -> None:
    with pytest.raises(InputError, match="not there"):
        match_graph({"a": 1, "b": 1}, {("a", "b"): pairs((0, 1))})
    with pytest.raises(InputError, match="not there"):
        match_graph({"a": 1, "b": 1}, {("a", "b"): pairs((-1, 0))})
    with pytest.raises(InputError, match="no features"):
        match_graph({"a": 1}, {("a", "b"): pairs((0, 0))})


def random_tracks(name: str) -> tuple[Tracks, np.ndarray, np.ndarray]:
    """(tracks over seven images, which they have, which lines of those are aligned); feature t is of track t."""
    random = generator(name)
    seen = random.random((400, 7)) < 0.8
    seen[seen.sum(axis=1) < 2] = True
    vertical = seen & (random.random((400, 7)) < 0.5)
    track, image = np.nonzero(seen)
    return Tracks(names=tuple("abcdefg"), track=track, image=image, feature=track, left_out=0), seen, vertical


def test_quads_are_counted_and_ordered() -> None:
    """Enumeration of all C(7, 4) quads."""
    tracks, seen, vertical = random_tracks("quads")
    quads = candidate_quads(tracks, vertical[seen], with_gravity=[True] * 7, limit=5, min_tracks=3)
    counts = {}
    for quad in combinations(range(7), 4):
        complete = seen[:, quad].all(axis=1)
        counts[quad] = (
            int(complete.sum()),
            int((complete & (vertical[:, quad].sum(axis=1) >= 3)).sum()),
            int((complete & ((~vertical[:, quad]).sum(axis=1) >= 2)).sum()),
        )
    assert [(q.shared_tracks, q.aligned_tracks, q.random_tracks) for q in quads] == [counts[q.images] for q in quads]
    assert [q.shared_tracks for q in quads] == sorted((c[0] for c in counts.values()), reverse=True)[:5]
    images = quads[0].images
    expected = np.where(seen[:, images], np.arange(400)[:, None], -1)
    np.testing.assert_array_equal(tracks.table(images), expected)


def test_later_quads_are_of_other_images() -> None:
    """Enumeration: in their order, those that share at most two images with any before."""
    tracks, seen, vertical = random_tracks("apart")
    known = [True] * 7
    everything = candidate_quads(tracks, vertical[seen], with_gravity=known, limit=35, min_tracks=3)
    first = everything[:1]
    later = candidate_quads(tracks, vertical[seen], with_gravity=known, limit=35, min_tracks=3, apart_from=first)
    expected = list(first)
    for quad in everything[1:]:
        if all(len({*quad.images} & {*other.images}) <= 2 for other in expected):
            expected.append(quad)
    assert later == expected[1:] and len(later) >= 3


def test_images_without_gravity_do_not_seed() -> None:
    tracks, seen, vertical = random_tracks("gravity")
    aligned = vertical[seen]
    quads = candidate_quads(tracks, aligned, with_gravity=[True] * 4 + [False] * 3, min_tracks=3)
    assert [q.images for q in quads] == [(0, 1, 2, 3)]
    assert candidate_quads(tracks, aligned, with_gravity=[True] * 3 + [False] * 4, min_tracks=3) == []
    with pytest.raises(RangeError, match="limit"):
        candidate_quads(tracks, aligned, with_gravity=[True] * 7, limit=0)

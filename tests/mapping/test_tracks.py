"""Tracks and quads against enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.mapping.lines.tracks import Tracks, build_tracks, candidate_quads, quad_rows
from worlds import generator


def pairs(*rows: tuple[int, int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def test_components_become_tracks_and_contradictions_are_dropped() -> None:
    """By hand: a0-b0-c1 is a track; a1-b1 and a1-c0, b1-c2 joins c0 and c2 of one image: a contradiction."""
    found = build_tracks(
        {"a": 3, "b": 2, "c": 3},
        {("a", "b"): pairs((0, 0), (1, 1)), ("a", "c"): pairs((1, 0)), ("b", "c"): pairs((0, 1), (1, 2))},
    )
    assert found.names == ("a", "b", "c")
    assert found.feature.tolist() == [[0, 0, 1]]
    assert found.conflicting == 1


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
    found = build_tracks({n: len(where[n]) for n in names}, matches)
    expected = {tuple(where[n].get(p, -1) for n in names) for p in range(60) if sum(p in where[n] for n in names) >= 2}
    assert {tuple(row) for row in found.feature.tolist()} == expected
    assert found.conflicting == 0


def test_impossible_matches_are_refused() -> None:
    with pytest.raises(InputError, match="not there"):
        build_tracks({"a": 1, "b": 1}, {("a", "b"): pairs((0, 1))})
    with pytest.raises(InputError, match="no features"):
        build_tracks({"a": 1}, {("a", "b"): pairs((0, 0))})


def random_tracks(name: str) -> tuple[Tracks, list[np.ndarray]]:
    random = generator(name)
    feature = np.where(random.random((400, 7)) < 0.8, np.arange(400)[:, None], -1)
    aligned = [random.random(400) < 0.5 for _ in range(7)]
    return Tracks(names=tuple("abcdefg"), feature=feature, conflicting=0), aligned


def test_quads_are_counted_and_ordered() -> None:
    """Enumeration of all C(7, 4) quads."""
    tracks, aligned = random_tracks("quads")
    flags = np.stack(aligned, axis=1)
    found = candidate_quads(tracks, aligned, with_gravity=[True] * 7, limit=5, min_tracks=3)
    counts = {}
    for quad in combinations(range(7), 4):
        complete = (tracks.feature[:, quad] >= 0).all(axis=1)
        counts[quad] = (
            int((complete & flags[:, quad].all(axis=1)).sum()),
            int((complete & ((~flags[:, quad]).sum(axis=1) >= 2)).sum()),
        )
    assert [(q.aligned_tracks, q.random_tracks) for q in found] == [counts[q.images] for q in found]
    assert [q.aligned_tracks for q in found] == sorted((c for c, _ in counts.values()), reverse=True)[:5]
    rows = quad_rows(tracks, found[0])
    assert (rows >= 0).all() and len(rows) == int((tracks.feature[:, found[0].images] >= 0).all(axis=1).sum())


def test_images_without_gravity_do_not_seed() -> None:
    tracks, aligned = random_tracks("gravity")
    found = candidate_quads(tracks, aligned, with_gravity=[True] * 4 + [False] * 3, min_tracks=3)
    assert [q.images for q in found] == [(0, 1, 2, 3)]
    assert candidate_quads(tracks, aligned, with_gravity=[True] * 3 + [False] * 4, min_tracks=3) == []
    with pytest.raises(RangeError, match="limit"):
        candidate_quads(tracks, aligned, with_gravity=[True] * 7, limit=0)

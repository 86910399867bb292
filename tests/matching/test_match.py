"""Matching finds planted pairs, keeps those that pass the ratio test, and refuses forms that cannot be compared."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Form, Points, Subspaces
from veil.ldp.guarantee import NoProof
from veil.matching import MatchOptions, match, match_pairs
from veil.matching.neighbors import distance_name
from veil.matching.pairs import all_pairs
from veil.matching.ratio import best_ratio, calibrated, ratio_key
from veil.space import Space
from worlds import generator, sift_like, subspaces, unit

SPACE = Space(descriptor="sift", normalization="L2", dim=128)


def planted(name: str, count: int, m: tuple[int, int]) -> tuple[Form, Form, np.ndarray]:
    """Two forms of the same descriptors with noise; left feature i is right feature `where[i]`."""
    random = generator(name)
    d = unit(sift_like(random, count))
    where = random.permutation(count)
    e = np.empty_like(d)
    e[where] = unit(d + 0.01 * random.normal(size=d.shape))
    sides: list[Form] = []
    for values, dims in ((d, m[0]), (e, m[1])):
        if dims:
            sides.append(subspaces(random, values, dims, SPACE))
        else:
            sides.append(Points(vectors=values.astype(np.float32), space=SPACE))
    return sides[0], sides[1], where


@pytest.mark.parametrize("m", [(0, 0), (0, 4), (4, 0), (4, 4), (2, 8)])
def test_planted_pairs_are_found(m: tuple[int, int]) -> None:
    """Oracle: planted permutation."""
    left, right, where = planted(f"planted {m}", 120, m)
    matches = match(left, right)
    assert (where[matches.indices[:, 0]] == matches.indices[:, 1]).mean() > 0.97
    assert len(matches) > 110
    assert distance_name(left, right) == ("point", "p2s", "s2s")[sum(x > 0 for x in m)]


def test_matching_is_symmetric() -> None:
    left, right, _ = planted("symmetric", 80, (4, 2))
    ahead, back = match(left, right), match(right, left)
    assert {tuple(p) for p in ahead.indices} == {(b, a) for a, b in back.indices}


def test_the_ratio_is_the_worse_of_both_directions() -> None:
    """Points on a line, worked by hand: {0, 10} against {1, 8}."""
    base = np.zeros((2, 128), dtype=np.float32)
    base[:, 0] = [0.0, 10.0]
    other = np.zeros((2, 128), dtype=np.float32)
    other[:, 0] = [1.0, 8.0]
    matches = match(Points(vectors=base[:1], space=SPACE), Points(vectors=other, space=SPACE))
    assert matches.indices.tolist() == [[0, 0]]
    assert matches.ratios.tolist() == [0.125]
    matches = match(Points(vectors=base, space=SPACE), Points(vectors=other, space=SPACE))
    assert dict(zip(map(tuple, matches.indices.tolist()), matches.ratios, strict=True)) == pytest.approx(
        {(0, 0): 1 / 8, (1, 1): 2 / 8}
    )
    assert len(match(Points(vectors=base, space=SPACE), Points(vectors=other, space=SPACE), MatchOptions(max_ratio=0.2))) == 1


def test_spaces_must_agree() -> None:
    left, right, _ = planted("spaces", 10, (0, 2))
    assert isinstance(left, Points)
    other = Space(descriptor="sift", normalization="L1_ROOT", dim=128)
    with pytest.raises(SpaceError, match="differ in normalization"):
        match(Points(vectors=left.vectors, space=other), right)


def test_subspaces_that_fill_the_space_are_refused() -> None:
    left, right, _ = planted("large", 6, (64, 64))
    with pytest.raises(InputError, match="every distance is 0"):
        match(left, right)


def test_empty_forms_match_nothing() -> None:
    left, right, _ = planted("empty", 10, (2, 2))
    assert len(match(left.take(np.array([], dtype=int)), right)) == 0


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.5, float("nan")])
def test_ratios_out_of_range_are_refused(ratio: float) -> None:
    with pytest.raises(RangeError, match="max_ratio"):
        MatchOptions(max_ratio=ratio)


def test_many_pairs_in_parallel_equal_one_by_one() -> None:
    """Pairs matched in parallel equal the same pairs matched one by one; progress counts every pair once."""
    random = generator("pairs")
    forms = {name: subspaces(random, unit(sift_like(random, 50)), 2, SPACE) for name in "abcd"}
    calls: list[tuple[int, int]] = []
    lock = threading.Lock()

    def progress(done: int, total: int) -> None:
        with lock:
            calls.append((done, total))

    by_pair = match_pairs(forms, all_pairs(list("abcd")), workers=3, progress=progress)
    assert list(by_pair) == all_pairs(list("abcd"))
    for (a, b), matches in by_pair.items():
        np.testing.assert_array_equal(matches.indices, match(forms[a], forms[b]).indices)
    assert sorted(calls) == [(i, 6) for i in range(1, 7)]
    with pytest.raises(InputError, match="no features for x"):
        match_pairs(forms, [("a", "x")])


def test_best_ratio_separates_right_from_wrong() -> None:
    """Enumeration of all thresholds: the best one has the largest Youden index."""
    ratios = np.array([0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
    right = np.array([True, True, True, False, True, False])
    scores = {t: (ratios[right] <= t).mean() - (ratios[~right] <= t).mean() for t in ratios}
    assert best_ratio(ratios, right) == max(scores, key=scores.__getitem__) == 0.3
    with pytest.raises(InputError, match="right and wrong"):
        best_ratio(ratios, np.ones(6, dtype=bool))


def test_a_ratio_is_never_borrowed() -> None:
    """Thresholds exist for one profile, dimension and distance each; a missing one is an error, and none is borrowed."""
    left, right, _ = planted("borrowed", 6, (0, 3))
    assert ratio_key(left, right) == "sift-L2/paper/3/p2s"
    with pytest.raises(InputError, match="no ratio is calibrated"):
        calibrated(left, right)
    raw, _, _ = planted("raw", 6, (0, 0))
    assert 0.5 < calibrated(raw, raw) <= 1


def test_shared_decoys_are_no_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: views of the same points, with decoys that serve several features of both images.

    Broken twin: nearest neighbors without a look beyond the decoys pair features that share one.
    """
    from veil.matching import neighbors

    left, right = _sharing_decoys(600, words=6000)
    identity = np.arange(len(left))
    matches = match(left, right).indices
    right_ones = (matches[:, 0] == matches[:, 1]).sum()
    monkeypatch.setattr(neighbors, "shares_decoys", lambda *_: False)
    misled = match(left, right).indices
    assert right_ones > 0.9 * len(identity) and (misled[:, 0] == misled[:, 1]).sum() < 0.6 * len(identity)


def test_without_shared_decoys_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from veil.matching import neighbors

    left, right = _sharing_decoys(300, words=200_000)
    matches = match(left, right)
    monkeypatch.setattr(neighbors, "shares_decoys", lambda *_: False)
    assert np.array_equal(match(left, right).indices, matches.indices) and len(matches) > 0.9 * len(left)


def _sharing_decoys(count: int, *, words: int) -> tuple[Subspaces, Subspaces]:
    """Hardened subspaces of two views of the same points, whose decoys are dithered copies of the same words."""
    random = np.random.default_rng(words)
    space = Space(descriptor="sift", normalization="L2", dim=48, codebook="ab" * 32, dither_steps=4.0)
    pool, points = random.normal(size=(words, 48)) / 7, random.normal(size=(count, 48)) / 7
    width = 4 / 512

    def view() -> Subspaces:
        seen = points + 0.02 * random.normal(size=points.shape)
        decoys = pool[random.integers(0, words, (count, 4))] + width * random.uniform(-0.5, 0.5, (count, 4, 48))
        basis = np.linalg.qr((decoys - seen[:, None]).transpose(0, 2, 1))[0].transpose(0, 2, 1)
        origin = seen - np.einsum("fmn,fm->fn", basis, np.einsum("fmn,fn->fm", basis, seen))
        return Subspaces(
            origin=origin.astype(np.float32),
            basis=np.ascontiguousarray(basis, dtype=np.float32),
            space=space,
            guarantee=NoProof(reason="planted"),
            profile="hardened",
            releasable=False,
        )

    return view(), view()


WIDTH, DIM = 4 / 512, 48
HARDENED = Space(descriptor="sift", normalization="L2", dim=DIM, codebook="ab" * 32, dither_steps=4.0)


def _dithered(random: np.random.Generator, points: np.ndarray) -> np.ndarray:
    return points + WIDTH * random.uniform(-0.5, 0.5, points.shape)


def _through(points: np.ndarray, decoys: np.ndarray) -> Subspaces:
    """Hardened subspaces through points (features, dim) and their decoys (features, 4, dim)."""
    basis = np.linalg.qr((decoys - points[:, None]).transpose(0, 2, 1))[0].transpose(0, 2, 1)
    origin = points - np.einsum("fmn,fm->fn", basis, np.einsum("fmn,fn->fm", basis, points))
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=np.ascontiguousarray(basis, dtype=np.float32),
        space=HARDENED,
        guarantee=NoProof(reason="planted"),
        profile="hardened",
        releasable=False,
    )


def _views(name: str, *, noise: float, shared: float, related: bool = True) -> tuple[Subspaces, Subspaces, np.ndarray]:
    """Two messages of 600 features, of which a share has one decoy in common with another feature of the other message.

    Descriptors of one place differ by `noise` in each number. The last array has, for each feature of the left message, the one
    of the right that shares its decoy, -1 for none.
    """
    random = generator(name)
    count = 600
    first = random.normal(size=(count, DIM)) / 7
    second = (first if related else random.normal(size=(count, DIM)) / 7) + noise * random.normal(size=first.shape)
    decoys = [random.normal(size=(count, 4, DIM)) / 7 for _ in range(2)]
    partner = np.where(np.arange(count) < shared * count, random.permutation(count), -1)
    own = np.flatnonzero(partner >= 0)
    decoys[1][partner[own], 2] = decoys[0][own, 1]
    left, right = (
        _through(_dithered(random, points), _dithered(random, others))
        for points, others in zip((first, second), decoys, strict=True)
    )
    return left, right, partner


@pytest.mark.parametrize("share", [0.9, 0.1])
def test_one_decoy_photograph_of_two_messages_misleads_nobody(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: views of the same points, where a share of the features meets one other in a decoy, and none meets two.

    Broken twin: a guard that asks the second neighbor alone pairs features that share a decoy.
    """
    from veil.matching import neighbors

    left, right, partner = _views("one photograph", noise=0.015, shared=share)
    matches = match(left, right).indices
    assert (matches[:, 0] == matches[:, 1]).sum() > 0.9 * len(left)
    monkeypatch.setattr(neighbors, "MET", 1.0)
    misled = match(left, right).indices
    wrong = (partner[misled[:, 0]] == misled[:, 1]).sum()
    assert wrong > 0.9 * share * len(left)


def test_strangers_that_share_a_decoy_photograph_do_not_match_in_it() -> None:
    left, right, partner = _views("strangers", noise=0.0, shared=0.9, related=False)
    matches = match(left, right).indices
    assert (partner[matches[:, 0]] == matches[:, 1]).sum() < 0.02 * len(left)


@pytest.mark.parametrize("noise", [0.002, 0.004])
def test_near_repeats_still_match_where_they_meet(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: descriptors that differ by about a dither. Broken twin: a guard that takes all meetings for decoys."""
    from veil.matching import neighbors

    left, right, _ = _views("near repeats", noise=noise, shared=0.0)
    matches = match(left, right).indices
    assert (matches[:, 0] == matches[:, 1]).sum() > 0.98 * len(left)
    monkeypatch.setattr(neighbors, "shares_decoys", lambda *_: True)
    lost = match(left, right).indices
    assert (lost[:, 0] == lost[:, 1]).sum() < 0.98 * (matches[:, 0] == matches[:, 1]).sum()


def test_draws_that_left_twice_match_beside_shared_decoys() -> None:
    """Planted: a third of the subspaces are equal, others share decoys of one photograph. One stands twice."""
    left, right, _ = _views("left twice", noise=0.015, shared=0.6)
    origin, basis = right.origin.copy(), right.basis.copy()
    again = np.arange(400, 600)
    origin[again], basis[again] = left.origin[again[::-1]], left.basis[again[::-1]]
    origin[0], basis[0] = origin[599], basis[599]  # stands twice
    right = replace(right, origin=origin, basis=basis)
    matches = match(left, right)
    matched = dict(map(tuple, matches.indices.tolist()))
    assert all(matched.get(int(row)) == 999 - row for row in again[1:])
    assert (matches.distances[np.isin(matches.indices[:, 0], again[1:])] == 0).all()
    kept = np.array([row for row in range(1, 400) if matched.get(row) == row])
    assert len(kept) > 0.8 * 399

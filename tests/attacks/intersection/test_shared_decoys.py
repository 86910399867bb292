"""The intersection attack on planted shared decoys: exact points and certificates, and silence where nothing is shared."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil.attacks.distribution.nearest import entries, nearby
from veil.attacks.intersection import shared_decoys as module
from veil.attacks.intersection.shared_decoys import (
    MeetingOptions,
    Meetings,
    intersection_attack,
    meeting_points,
    meetings,
    pooled,
    shared_decoys,
)
from veil.distances.reference import subspace_to_subspace
from veil.errors import InputError, RangeError, SpaceError
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil.space import Space
from veil.wire.codec_subspaces import as_sent
from worlds.material import hardened_form, lifted, photograph, truth
from worlds.rules import Rule

SPACE = Space(descriptor="sift", normalization="L2", dim=128)
BOOK = bundled_codebook()


@cache
def image(number: int, m: int, words: int, strategy: str = "hybrid", case: str = "i") -> tuple[Subspaces, np.ndarray]:
    """Form of 40 features lifted with decoys out of the first `words` words only, and the rows of the decoys."""
    drawn: list[np.ndarray] = []

    def rule(rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        chosen = np.argsort(np.random.default_rng(number).random((40, words)), axis=1)[rows, : draws.shape[1]]
        drawn.append(chosen)
        return chosen

    profile = Profile.paper(m, strategy)  # type: ignore[arg-type]
    form = lift(
        photograph(number, 40),
        profile=profile,
        compression=BOOK.compression,
        decoys=BOOK,
        randomness=seeded(case),
        rule=Rule(rule),
    ).form
    return form, np.concatenate(drawn) if drawn else np.zeros((40, 0), dtype=np.int64)


def sharing(rows: np.ndarray, others: np.ndarray, *, within: bool) -> list[set[int]]:
    """Oracle: the decoys that each feature shares with some feature that shares no other decoy with it."""
    shared_words: list[set[int]] = []
    for index, mine in enumerate(rows.tolist()):
        pool = [set(other) for other in others.tolist()]
        pool += [set(other) for j, other in enumerate(rows.tolist()) if within and j != index]
        common = [set(mine) & other for other in pool]
        shared_words.append(set().union(*(words for words in common if len(words) == 1)))
    return shared_words


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize(("m", "strategy", "words"), [(2, "hybrid", 60), (8, "hybrid", 300), (4, "adversarial", 200)])
def test_every_shared_decoy_is_found_exactly(m: int, strategy: str, words: int, within: bool) -> None:
    form, rows = image(1, m, words, strategy)
    other, other_rows = image(2, m, words, strategy)
    expected = sharing(rows, other_rows, within=within)
    lists = shared_decoys(form, [other], within=within)
    assert sum(len(candidates) for candidates in expected) > 20
    for candidates, shared, sure in zip(lists.candidates, expected, lists.certified, strict=True):
        assert len(candidates) == len(shared) and sure == (len(shared) > 0)
        for word in shared:
            assert np.linalg.norm(candidates - BOOK.vectors[word], axis=1).min() < 1e-5


def test_null_different_words_never_meet() -> None:
    """Two images whose decoys have no word in common: no pair within 1e-3, no claim. The twin shares words and has many."""
    form, rows = image(1, 4, 4000, case="a")
    other, other_rows = image(2, 4, 4000, case="b")
    alone = np.flatnonzero(~np.isin(other_rows, rows).any(axis=1))
    assert len(meetings(form, [other.take(alone)], within=False, tol=1e-3).feature) == 0
    lists = shared_decoys(form, [other.take(alone)], within=False)
    assert not lists.certified.any() and not any(len(candidates) for candidates in lists.candidates)
    twin, _ = image(1, 4, 40)
    assert shared_decoys(twin).certified.mean() > 0.9


def test_random_lifting_shares_nothing() -> None:
    form, _ = image(1, 4, 10, "random")
    assert not shared_decoys(form).certified.any()


@pytest.mark.slow
def test_meetings_are_the_small_distances_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEATURES", 7)
    monkeypatch.setattr(module, "POOL", 11)
    form, _ = image(1, 4, 60)
    other, _ = image(2, 4, 60)
    pool = pooled(form, [other], within=True)
    exact = subspace_to_subspace((form.origin, form.basis), (pool.origin, pool.basis))
    exact[np.arange(40), 40 + np.arange(40)] = np.inf
    done: list[tuple[int, int]] = []
    pairs = meetings(form, [other], tol=1e-4, progress=lambda *step: done.append(step))
    np.testing.assert_array_equal(np.stack([pairs.feature, pairs.other]), np.nonzero(exact <= 1e-4))
    assert pairs.distance.max() < 1e-6 and done[-1] == (40, 40)
    for feature, members in enumerate(pairs.members_by_feature(40)):
        np.testing.assert_array_equal(members, np.flatnonzero(exact[feature] <= 1e-4))


def test_two_shared_decoys_leave_a_line_and_no_claim() -> None:
    """Planted: one feature lifted with the words 0, 1 and two others with 0, 1 and 1, 2."""
    base = photograph(1, 40)

    def single(number: int, chosen: list[int]) -> Subspaces:
        features = replace(base, keypoints=base.keypoints[[number]], descriptors=base.descriptors[[number]])
        return lift(
            features,
            profile=Profile.paper(4, "hybrid"),
            compression=BOOK.compression,
            decoys=BOOK,
            randomness=seeded("line"),
            rule=Rule(lambda rows, draws, available: np.array([chosen])),
        ).form

    form, twice, once = single(0, [0, 1]), single(1, [0, 1]), single(2, [1, 2])
    pairs = meetings(form, [twice, once], within=False, tol=1e-4)
    np.testing.assert_array_equal(pairs.other, [0, 1])
    points, unique = meeting_points(form, pooled(form, [twice, once], within=False), pairs, min_sine=1e-2)
    np.testing.assert_array_equal(unique, [False, True])
    assert np.linalg.norm(points[1] - BOOK.vectors[1]) < 1e-5
    lists = shared_decoys(form, [twice, once], within=False)
    assert len(lists.candidates[0]) == 1
    assert not shared_decoys(form, [twice], within=False).certified.any()
    assert not shared_decoys(form, [form], within=False).certified.any()  # an identical release determines nothing


def test_two_fresh_lifts_of_one_descriptor_meet_in_it() -> None:
    """The certificate says: a point that two subspaces were made from. Here that is the descriptor.

    Theory: release.md#memoized-draws.
    """
    form, rows = image(1, 4, 2000)
    again = lift(
        photograph(1, 40),
        profile=Profile.paper(4, "hybrid"),
        compression=BOOK.compression,
        decoys=BOOK,
        randomness=seeded("another secret"),
    ).form
    d = truth(photograph(1, 40), form)
    lists = shared_decoys(form, [again], within=False)
    assert lists.certified.mean() > 0.9
    nearest = [
        float(np.linalg.norm(candidates - d[i], axis=1).min())
        for i, candidates in enumerate(lists.candidates)
        if len(candidates)
    ]
    assert np.max(nearest) < 1e-5 and rows.shape == (40, 2)


def test_the_meeting_point_is_the_nearest_point() -> None:
    """Defining equation for subspaces that do not meet: the offset of the closest points is orthogonal to both."""
    form, _ = image(1, 4, 4000)
    pool, _ = image(2, 4, 4000)
    pairs = Meetings(feature=np.arange(10), other=np.arange(10), distance=np.zeros(10))
    x, unique = meeting_points(form, pool, pairs, min_sine=1e-3)
    y, _ = meeting_points(pool, form, pairs, min_sine=1e-3)
    assert unique.all()
    for offset, a, b in zip(y - x, form.basis, pool.basis, strict=False):
        assert np.linalg.norm(a @ offset) < 1e-5 and np.linalg.norm(b @ offset) < 1e-5
    all_pairs = subspace_to_subspace((form.origin[:10], form.basis[:10]), (pool.origin[:10], pool.basis[:10]))
    np.testing.assert_allclose(np.linalg.norm(y - x, axis=1), all_pairs[np.arange(10), np.arange(10)], atol=1e-6)


def test_often_shared_decoys_come_first_and_copies_are_merged() -> None:
    points = np.array([[0.0, 0], [1, 0], [0, 1e-4], [1, 1e-4], [1, -1e-4]])
    np.testing.assert_allclose(module._merged(points, 1e-3), np.array([[1.0, 0.0], [0.0, 0.5e-4]]), atol=1e-12)
    assert module._merged(points[:0], 1e-3).shape == (0, 2)


@pytest.mark.slow
def test_known_decoys_replace_the_database_that_they_came_from() -> None:
    """Broken defense: a small secret pool. With public entries alone the nearest neighbor is far worse."""
    form, _ = image(1, 2, 20)
    public = entries(bundled_decoys(), SPACE)
    estimates, known = intersection_attack(form, public)
    decided = estimates.decided
    np.testing.assert_array_equal(decided, [len(candidates) > 0 for candidates in known.candidates])
    error = np.linalg.norm(estimates.points - truth(photograph(1, 40), form), axis=1)[decided]
    assert decided.mean() > 0.8 and error.mean() < 0.25 and not estimates.certified.any()
    # Null: no decoy is shared, so nothing is claimed.
    alone, _ = intersection_attack(image(1, 2, 4000)[0].take(np.arange(5)), public)
    assert not alone.decided.any() and not alone.confidence.any()


@pytest.mark.slow
def test_fewer_known_decoys_than_asked_for_leave_a_feature_undecided() -> None:
    form, rows = image(1, 8, 100)
    public = replace(entries(bundled_decoys(), SPACE), vectors=entries(bundled_decoys(), SPACE).vectors[:500])
    shared = np.array([len(words) for words in sharing(rows, rows[:0], within=True)])
    for least in (None, 1, 4):
        estimates, _ = intersection_attack(form, public, least=least)
        np.testing.assert_array_equal(estimates.decided, shared >= (4 if least is None else least))
    assert 0 < (shared >= 4).sum() < (shared >= 1).sum()


def test_dithered_decoys_are_found_without_a_certificate() -> None:
    """A wide tolerance finds decoys that differ by their dither; it proves nothing."""
    profile = Profile(name="study", strategy="adversarial", m=4, decoys="descriptors", dither_steps=4.0)
    form = lift(
        photograph(1, 60),
        profile=profile,
        compression=BOOK.compression,
        decoys=bundled_decoys(),
        randomness=seeded("dither"),
        rule=Rule(lambda rows, draws, available: np.argsort(draws, axis=1) + 4 * (rows[:, None] % 20)),
    ).form
    assert not shared_decoys(form).certified.any()
    wide = meetings(form, tol=0.06)
    assert (wide.feature % 20 == wide.other % 20).all() and len(wide.feature) == 120


def test_half_precision_hides_no_shared_decoy() -> None:
    form, rows = image(1, 4, 60)
    lists = shared_decoys(as_sent(form, "float16"))
    for candidates, shared in zip(lists.candidates, sharing(rows, rows[:0], within=True), strict=True):
        assert len(candidates) == len(shared)
        assert all(np.linalg.norm(candidates - BOOK.vectors[word], axis=1).min() < 5e-3 for word in shared)


@pytest.mark.slow
def test_one_hardened_image_gives_its_secret_decoys_away() -> None:
    """Broken defense: 300 features with 4 decoys use a run of 1,024 words more than once (docs/theory/lifting.md, Eq. 8).

    Null: a run of 32,768 words. The oracle is the words themselves: a claimed point is one of the feature's four, give or take
    dither.
    """
    form = hardened_form(photograph(1, 300))
    pool = entries(bundled_decoys(), form.space, codebook=BOOK)
    words = pool.vectors[nearby(form, pool, count=4).rows].astype(np.float64)
    lists = shared_decoys(form)
    claimed = [(words[row], point) for row, candidates in enumerate(lists.candidates) for point in candidates]
    error = np.array([np.linalg.norm(own - point, axis=1).min() for own, point in claimed])
    assert len(claimed) > 1.5 * len(form) and np.median(error) < 0.03 and (error < 0.1).mean() > 0.97
    assert not lists.certified.any()
    wide = lifted(photograph(1, 300), replace(Profile.hardened(quantized=True), strategy="adversarial"), case="wide")
    assert sum(map(len, shared_decoys(wide).candidates)) < 0.3 * len(wide)


def test_wrong_input_is_refused() -> None:
    form, _ = image(1, 4, 60)
    for wrong in (
        lambda: MeetingOptions(tol=0.0),
        lambda: MeetingOptions(merge=float("nan")),
        lambda: MeetingOptions(min_sine=1.0),
        lambda: MeetingOptions(min_sine=float("nan")),
        lambda: intersection_attack(form, entries(BOOK, SPACE), least=0),
    ):
        with pytest.raises(RangeError):
            wrong()
    with pytest.raises(InputError, match="nothing"):
        meetings(form, within=False, tol=1e-4)
    with pytest.raises(InputError, match="two runs"):
        shared_decoys(form, [image(1, 2, 60)[0]])
    with pytest.raises(SpaceError):
        shared_decoys(form, [replace(form, space=replace(SPACE, normalization="L1_ROOT"))])
    assert len(shared_decoys(form.take(np.arange(0)))) == 0

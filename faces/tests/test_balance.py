"""Balanced decoys: of other classes, evenly, without repetition; refused where a pool cannot give them."""

from __future__ import annotations

import numpy as np
import pytest

from face_worlds.crowd import crowd
from veil.errors import InputError, RangeError
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil_faces.balance import BalancedRule
from worlds import generator


def draws(count: int, decoys: int) -> np.ndarray:
    return generator("draws").integers(0, 2**64, size=(count, decoys), dtype=np.uint64)


@pytest.mark.parametrize("others_only", [False, True])
@pytest.mark.parametrize("decoys", [1, 2, 3, 6, 7])
def test_classes_are_even(decoys: int, others_only: bool) -> None:
    """Oracle: counting. Of four classes, the face itself counted, none is there more often than another by more than one; as in
    the paper the own class gives no decoy, and the others equally many, or one more."""
    random = generator(f"balance {decoys}")
    own, pool = random.integers(0, 4, 50), random.integers(0, 4, 300)
    rule = BalancedRule(own=own, pool=pool, classes=4, others_only=others_only)
    chosen = rule(np.arange(50), draws(50, decoys), np.arange(10, 290))
    assert ((chosen >= 10) & (chosen < 290)).all()
    for row, line in enumerate(chosen):
        counts = np.bincount(pool[line], minlength=4)
        counts[own[row]] += not others_only
        even = np.delete(counts, own[row]) if others_only else counts
        assert even.max() - even.min() <= 1 and len(set(line.tolist())) == decoys
        assert not others_only or counts[own[row]] == 0
    first = np.array([pool[line[0]] for line in chosen[own == 0]])
    assert len(set(first.tolist())) == 3, "a round starts with any class"


def test_a_quota_is_kept() -> None:
    rule = BalancedRule(own=np.zeros(9, dtype=np.int64), pool=np.arange(60) % 3, classes=3, quota=(5, 2, 1), others_only=True)
    chosen = rule(np.arange(9), draws(9, 6), np.arange(60))
    assert (np.sort(chosen % 3, axis=1) == [1, 1, 1, 1, 2, 2]).all()


def test_what_cannot_be_balanced_is_refused() -> None:
    zeros = np.zeros(3, dtype=np.int64)
    with pytest.raises(InputError, match="leaves no class"):
        BalancedRule(own=zeros, pool=zeros, classes=1)(np.arange(3), draws(3, 2), np.arange(3))
    with pytest.raises(InputError, match="1 decoys of class 1, 2 are needed"):
        BalancedRule(own=zeros, pool=np.array([0, 0, 1]), classes=2)(np.arange(3), draws(3, 2), np.arange(3))
    for quota in ((1,), (-1, 2), (0, 0)):
        with pytest.raises(RangeError, match="quota"):
            BalancedRule(own=zeros, pool=zeros, classes=2, quota=quota)


def test_it_lifts() -> None:
    """The subspace holds its decoys: those of the other sex are near, no word of one's own is."""
    faces, others = crowd("victims", 12, 1), crowd("decoys", 80, 1)
    own, classes = faces.classes("sex")
    pool, _ = others.classes("sex")
    book = others.pool("test")
    profile = Profile(name="study", strategy="adversarial", m=3, decoys="descriptors")
    rule = BalancedRule(own=own, pool=pool, classes=len(classes), others_only=True)
    form = lift(
        faces.features, profile=profile, compression=book.compression, decoys=book, randomness=seeded("balanced"), rule=rule
    ).form
    offset = book.vectors[None] - form.origin[:, None]
    inside = np.einsum("fwn,fmn->fwm", offset, form.basis)
    distance = np.linalg.norm(offset - np.einsum("fwm,fmn->fwn", inside, form.basis), axis=2)
    for row in range(12):
        near = np.flatnonzero(distance[row] < 1e-5)
        assert len(near) == 3 and (pool[near] != own[row]).all()

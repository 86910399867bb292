"""Everything that a rule of balanced decoys chooses by changes draws and ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil import randomness
from veil.errors import ReleaseRefused
from veil.files.device.ledger import Ledger
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import DecoyRule, Lifted, lift, uniform_rule
from veil_faces.balance import BalancedRule
from worlds import codebook, features, generator
from worlds.ledgers import ENTRY

BOOK = codebook(generator("book"), 512, 4)


POOL = codebook(generator("pool"), 400, 4, kind="descriptors")


IMAGE = features(generator("parameters"), 6)


SECRET = randomness.memoized(randomness.Secret(b"parameters".ljust(32, b".")))


def balanced(own: int, quota: tuple[int, ...] | None = None, others_only: bool = False, shift: int = 0) -> BalancedRule:
    classes = (np.arange(len(POOL)) + shift) % 2
    return BalancedRule(own=np.full(6, own), pool=classes, classes=2, quota=quota, others_only=others_only)


def lifted(rule: DecoyRule) -> Lifted:
    profile = replace(Profile.paper(4, "adversarial"), decoys="descriptors")
    return lift(IMAGE, profile=profile, compression=BOOK.compression, decoys=POOL, randomness=SECRET, rule=rule)


def test_a_quota_changes_draws_and_ledger(tmp_path: Path) -> None:
    """Everything that a rule chooses by changes draws and ledger; draws that two rules shared would tie their lifts."""
    rules = [balanced(0), balanced(1), balanced(0, (2, 1)), balanced(0, (1, 2)), balanced(0, None, True), balanced(0, shift=1)]
    made = [*(lifted(rule) for rule in rules), lifted(uniform_rule)]
    assert len({item.parameters.text for item in made}) == len(made)
    spent = {rule.identity(np.arange(6))[0] for rule in rules}
    assert len(spent) == len(rules)
    for a, first in enumerate(made):
        for second in made[a + 1 :]:
            assert not (first.form.origin == second.form.origin).any(axis=1).any()
    np.testing.assert_array_equal(lifted(balanced(0, (1, 1))).form.basis, made[0].form.basis)  # one of each is no quota
    ledger = Ledger(tmp_path)
    ledger.record(replace(ENTRY, parameters=made[0].parameters.text, message_digest="0"))
    for index, item in enumerate(made[1:]):
        with pytest.raises(ReleaseRefused, match="already released with other choices"):
            ledger.record(replace(ENTRY, parameters=item.parameters.text, message_digest=f"{index}a"))
    assert ledger.record(replace(ENTRY, parameters=lifted(balanced(0, (1, 1))).parameters.text, message_digest="1"))

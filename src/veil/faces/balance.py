"""Attribute-balanced decoys, `hybrid+` of Dusmanu et al. 2021, Sec. 4.3: people of other classes than one's own (traps D19).

The labels are used on the client and never leave it; that a subspace was balanced shows in what it hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt64

from veil.chance import distinct_below
from veil.errors import InputError, RangeError


@dataclass(frozen=True, kw_only=True, eq=False)
class BalancedRule:
    """A decoy rule (`veil.privatize.subspace.DecoyRule`): decoys in turn from every other class, starting with a random one.

    `own` is the class of each feature, `pool` of each word, both numbers below `classes`. `quota` says how many decoys of a
    round each class gives (one, if not given); one's own class never gives any. The paper says neither.
    """

    own: Int64[np.ndarray, "_"]
    pool: Int64[np.ndarray, "_"]
    classes: int
    quota: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.quota is not None and (len(self.quota) != self.classes or min(self.quota) < 0 or sum(self.quota) < 1):
            raise RangeError(f"quota must be a count for each of {self.classes} classes, got {self.quota!r}")

    def __call__(
        self,
        rows: Int64[np.ndarray, "features"],
        draws: UInt64[np.ndarray, "features decoys"],
        available: Int64[np.ndarray, "words"],
    ) -> Int64[np.ndarray, "features decoys"]:
        """Words of other classes for the features `rows`. Raises InputError if a class has too few."""
        words = [available[self.pool[available] == k] for k in range(self.classes)]
        chosen = np.empty(draws.shape, dtype=np.int64)
        for at, row in enumerate(rows.tolist()):
            order = self._round(int(self.own[row]))
            first = int(draws[at, 0] & np.uint64(0xFFF)) % len(order)  # the high bits choose the word
            turns = np.array([order[(first + k) % len(order)] for k in range(draws.shape[1])])
            for k in np.unique(turns):
                places = np.flatnonzero(turns == k)
                if len(words[k]) < len(places):
                    raise InputError(f"the pool has {len(words[k])} decoys of class {k}, {len(places)} are needed; enlarge it")
                chosen[at, places] = words[k][distinct_below(draws[at : at + 1, places], len(words[k]))[0]]
        return chosen

    def _round(self, own: int) -> list[int]:
        quota = self.quota or [1] * self.classes
        order = [k for k in range(self.classes) if k != own for _ in range(quota[k])]
        if not order:
            raise InputError("the quota leaves no class for decoys but one's own")
        return order

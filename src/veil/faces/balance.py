"""Attribute-balanced decoys, `hybrid+` of Dusmanu et al. 2021, Sec. 4.3 (faces.md#what-the-steps-are-worth).

Every class is as often in a subspace as any other, the face itself counted. [D21] samples other classes only; a vote among
neighbors then turns over, and tells an attacker who knows this as much as before (`veil evaluate attributes`, "others only").
The labels are used on the client and never leave it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64, UInt64

from veil.attacks.distribution.attributes import NEIGHBORS, Labelled, infer
from veil.errors import InputError, RangeError
from veil.faces.collection import Faces
from veil.forms import Points
from veil.randomness import distinct_below


@dataclass(frozen=True, kw_only=True, eq=False)
class BalancedRule:
    """A decoy rule (`veil.mechanisms.subspaces.DecoyRule`): decoys from all classes in turn, each round in random rotation.

    `own` is the class of each feature, `pool` of each word, both numbers below `classes`. In the first round the face stands
    for its own class, and in all of them with `others_only`, as [D21] has it. `quota` says how many decoys of a round each
    class gives (one, if not given).
    """

    own: Int64[np.ndarray, "_"]
    pool: Int64[np.ndarray, "_"]
    classes: int
    quota: Sequence[int] | None = None
    others_only: bool = False

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
            turns = np.array(self._turns(int(self.own[row]), draws[at]))
            for k in np.unique(turns):
                places = np.flatnonzero(turns == k)
                if len(words[k]) < len(places):
                    raise InputError(f"the pool has {len(words[k])} decoys of class {k}, {len(places)} are needed; enlarge it")
                chosen[at, places] = words[k][distinct_below(draws[at : at + 1, places], len(words[k]))[0]]
        return chosen

    def identity(self, rows: Int64[np.ndarray, "features"]) -> list[bytes]:
        """Every field, and of `own` each feature's class: version 1 of this rule, in which templates are drawn for ever."""
        return [b"%s own=%d" % (self._shared, int(self.own[row])) for row in rows.tolist()]

    @cached_property
    def _shared(self) -> bytes:
        quota = ",".join(str(int(count)) for count in self.quota or [1] * self.classes)
        pool = hashlib.sha256(self.pool.astype("<i8").tobytes()).hexdigest()
        return f"balanced 1 classes={self.classes} quota={quota} others_only={int(self.others_only)} pool={pool}".encode()

    def _turns(self, own: int, draws: UInt64[np.ndarray, "decoys"]) -> list[int]:
        """The class of each decoy. The low bits of the draws rotate the rounds, the high bits choose words."""
        quota, turns = self.quota or [1] * self.classes, list[int]()
        while len(turns) < len(draws):
            without = own if self.others_only or not turns else -1
            order = [k for k in range(self.classes) if k != without for _ in range(quota[k])]
            if not order:
                raise InputError("the quota leaves no class for decoys but one's own")
            first = int(draws[len(turns)] & np.uint64(0xFFF)) % len(order)
            turns += order[first:] + order[:first]
        return turns[: len(draws)]


def guessed(vectors: Float32[np.ndarray, "faces dim"], crowd: Faces, label: str) -> Int64[np.ndarray, "faces"]:
    """The class of each face as its nearest ten of a labelled crowd vote, for a client that was not told."""
    numbers, classes = crowd.classes(label)
    known = Labelled(vectors=crowd.vectors, labels=numbers, classes=classes, space=crowd.space)
    return infer(Points(vectors=vectors, space=crowd.space), known, neighbors=min(NEIGHBORS, len(crowd))).labels

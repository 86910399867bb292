"""Attribute-balanced decoys, `hybrid+` of Dusmanu et al. 2021, Sec. 4.3 (faces.md#what-the-steps-are-worth).

Every class is in a subspace as often as any other, the face itself counted. [D21] samples other classes only; then the vote of
neighbors is merely inverted, and tells an attacker who knows this as much as before (`veil evaluate attributes`, "others
only"). The labels are used on the client and never leave it.
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
from veil.forms import Points
from veil.randomness import distinct_below
from veil_faces.collection import Faces


@dataclass(frozen=True, kw_only=True, eq=False)
class BalancedRule:
    """A decoy rule (`veil.mechanisms.subspaces.DecoyRule`) that takes decoys from all classes in turn.

    Each round goes through the classes, rotated at random.

    - `own`, int64 (features,): class of each feature, a number below `classes`.
    - `pool`, int64 (words,): class of each word of the decoys.
    - `classes`: number of classes.
    - `quota`: number of decoys that each class gives in a round; None: one.
    - `others_only`: no round takes decoys of the feature's own class, as in [D21]. Otherwise only the first round takes none,
      where the face itself stands for its class.

    Raises RangeError for a quota of other classes, or without any decoy.
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
        """Indices of decoys for the features `rows`, chosen by `draws` among `available`.

        Raises InputError if a class has too few words, or the quota leaves no class but the feature's own.
        """
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
        """Everything that the choice depends on, for each of `rows`. It is version 1 of this rule and must not change, as
        templates are drawn from it."""
        return [b"%s own=%d" % (self._shared, int(self.own[row])) for row in rows.tolist()]

    @cached_property
    def _shared(self) -> bytes:
        quota = ",".join(str(int(count)) for count in self.quota or [1] * self.classes)
        pool = hashlib.sha256(self.pool.astype("<i8").tobytes()).hexdigest()
        return f"balanced 1 classes={self.classes} quota={quota} others_only={int(self.others_only)} pool={pool}".encode()

    def _turns(self, own: int, draws: UInt64[np.ndarray, "decoys"]) -> list[int]:
        """Classes of the decoys of a feature of class `own`: low bits of the draws rotate rounds, high bits choose words."""
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
    """The class of each face by the vote of its nearest ten faces of a labelled crowd, where the true class is not given."""
    numbers, classes = crowd.classes(label)
    known = Labelled(vectors=crowd.vectors, labels=numbers, classes=classes, space=crowd.space)
    return infer(Points(vectors=vectors, space=crowd.space), known, neighbors=min(NEIGHBORS, len(crowd))).labels

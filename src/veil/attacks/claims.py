"""What attacks claim: what they believe of each feature, how sure they are, and where they make no claim.

An attack sees what a server sees: released forms, lines, messages, public codebooks and the attacker's own photographs. It
never sees the truth; `veil.audit` scores it. A guess that is right by luck and one that the attack has proved to itself are
told apart: `certified` is set only where a wrong guess would pass the attack's own test with negligible probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, VeilError
from veil.forms import Subspaces

# Called with the number of features done and the number of all.


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """A point for each feature: a descriptor in the space of the form that was attacked, or a position in pixels.

    Rows of `points` are NaN where the attack made no decision. `confidence` in [0, 1] ranks the decisions of one attack and is
    not comparable between attacks; it is 0 where there is none. What is certified is decided.
    """

    points: Float64[np.ndarray, "_ _"]
    confidence: Float64[np.ndarray, "_"]
    certified: Bool[np.ndarray, "_"]

    def __post_init__(self) -> None:
        if not len(self.points) == len(self.confidence) == len(self.certified):
            raise InputError("estimates need a confidence and a certificate for each point")
        if not ((self.confidence >= 0) & (self.confidence <= 1)).all():
            raise InputError("the confidence of an estimate lies between 0 and 1")
        if (self.certified & ~self.decided).any():
            raise InputError("an attack cannot certify what it has not decided")

    def __len__(self) -> int:
        return len(self.points)

    @property
    def decided(self) -> Bool[np.ndarray, "_"]:
        """Where the attack claims anything."""
        return np.isfinite(self.points).all(axis=1)

    def take(self, rows: np.ndarray) -> Estimates:
        """The estimates of `rows` (indices or a mask)."""
        return Estimates(points=self.points[rows], confidence=self.confidence[rows], certified=self.certified[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Lists:
    """A list of candidates for each feature, best first: one of them is claimed to be the truth, or near it.

    `candidates[i]` has shape (entries, dim) and may be empty. `certified` marks lists whose every entry the attack has proved
    to be one of the points that made the subspace.
    """

    candidates: tuple[Float64[np.ndarray, "_ _"], ...]
    certified: Bool[np.ndarray, "_"]

    def __post_init__(self) -> None:
        if len(self.candidates) != len(self.certified):
            raise InputError("lists need a certificate for each feature")

    def __len__(self) -> int:
        return len(self.candidates)

    def take(self, rows: np.ndarray) -> Lists:
        """The lists of `rows` (indices)."""
        return Lists(candidates=tuple(self.candidates[row] for row in rows), certified=self.certified[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedWords:
    """The word of a dictionary that each feature is believed to have (-1: none), and the descriptors that they stand for."""

    ids: Int64[np.ndarray, "_"]
    estimates: Estimates


@dataclass(frozen=True, kw_only=True)
class OrderEvidence:
    """How special the order of a message is among random ones, and the rank correlation that would have been seen."""

    p_value: float
    detectable: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Classes:
    """The class that each feature is believed to be of, an attribute of a face."""

    labels: Int64[np.ndarray, "_"]
    names: tuple[str, ...]


# `Lists` are for an oracle to pick from, which nobody has; the others are claims.
Claim = Estimates | Lists | NamedWords | OrderEvidence | Classes


class CannotRun(VeilError):
    """An attack needs what this attacker does not have, or cannot work on this release; the message says why.

    `features` were to be attacked, but for them time was too short.
    """

    def __init__(self, why: str, features: int = 0) -> None:
        super().__init__(why)
        self.features = features


def joined(parts: Sequence[Estimates]) -> Estimates:
    """All estimates of several parts, one after the other."""
    return Estimates(
        points=np.concatenate([part.points for part in parts]),
        confidence=np.concatenate([part.confidence for part in parts]),
        certified=np.concatenate([part.certified for part in parts]),
    )


def undecided(count: int, dim: int) -> Estimates:
    """No claim about any of `count` features."""
    return Estimates(points=np.full((count, dim), np.nan), confidence=np.zeros(count), certified=np.zeros(count, dtype=bool))


def project(form: Subspaces, points: Float64[np.ndarray, "features dim"]) -> Float64[np.ndarray, "features dim"]:
    """p_D of [P23]: for each feature the point of its subspace that is nearest to the feature's row of `points`."""
    origin, basis = form.origin.astype(np.float64), form.basis.astype(np.float64)
    return origin + np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", basis, points - origin), basis)


def renormalized(form: Subspaces, points: Float64[np.ndarray, "features dim"]) -> Float64[np.ndarray, "features dim"]:
    """`points` scaled to unit length where the form's descriptors have it: not behind a PCA (lifting.md#strategies)."""
    if form.space.codebook:
        return points
    return points / np.maximum(np.linalg.norm(points, axis=-1, keepdims=True), 1e-12)

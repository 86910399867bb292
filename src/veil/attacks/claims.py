"""Types of what attacks claim: estimates, candidate lists, words or classes of features, evidence on the order, or a pose.

An attack sees what a server sees: released forms, lines, messages, public codebooks and the attacker's own photographs. It
never sees the truth; `veil.audit` scores it. `certified` separates what an attack has proved to itself from guesses that may be
right by luck: it is set only where a wrong guess would pass the attack's own test with negligible probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, Remedy, VeilError
from veil.forms import Subspaces
from veil.geometry.rigid import Rigid

NONE_GIVEN = "no other release of this kind was given"


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Point estimates, one for each feature: descriptors in the space of the attacked form, or positions in pixels.

    Rows of `points` are NaN where the attack made no decision. `confidence` in [0, 1] ranks the decisions of one attack and is
    not comparable between attacks; it is 0 where there is no decision. Every certified feature is decided.
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
        """Mask of the features that the attack made a decision about."""
        return np.isfinite(self.points).all(axis=1)

    def take(self, rows: np.ndarray) -> Estimates:
        """Estimates of the features `rows` (indices or a mask)."""
        return Estimates(points=self.points[rows], confidence=self.confidence[rows], certified=self.certified[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Lists:
    """Candidate lists, one for each feature, best first: one candidate is claimed to be the truth, or near it.

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
        """Candidate lists of the features `rows` (indices)."""
        return Lists(candidates=tuple(self.candidates[row] for row in rows), certified=self.certified[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedWords:
    """Dictionary words that the features are believed to have (-1: none), and estimates of the descriptors behind them."""

    ids: Int64[np.ndarray, "_"]
    estimates: Estimates


@dataclass(frozen=True, kw_only=True)
class OrderEvidence:
    """Evidence that the order of a message means something: its p-value among random orders, and the detectable correlation.

    `detectable` is the rank correlation that the test would have seen (`on_lines.detectable_order`).
    """

    p_value: float
    detectable: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Classes:
    """Classes that the features are believed to be of, an attribute of faces: `labels` are indices into `names`."""

    labels: Int64[np.ndarray, "_"]
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pose:
    """Where the camera is believed to have been, in the attacker's map; None where no pose is better than chance."""

    cam_from_world: Rigid | None


# Only an oracle, which nobody has, could pick from `Lists`; the other types are claims of their own.
Claim = Estimates | Lists | NamedWords | OrderEvidence | Classes | Pose


class CannotRun(VeilError):
    """Error of an attack that needs what this attacker does not have, or cannot work on this release; the message says why.

    `features` counts the features that were to be attacked, but for which time was too short.
    """

    def __init__(self, why: str, features: int = 0, *, remedy: Remedy | tuple[Remedy, ...] = ()) -> None:
        super().__init__(why, remedy=remedy)
        self.features = features


def no_release(given: int, sort: str) -> CannotRun:
    """Reason why none of `given` other releases can be compared with the attacked one; they would have to be of a `sort`."""
    why = f"of {given} other releases none is {sort}" if given else NONE_GIVEN
    return CannotRun(why, remedy=Remedy("give", "Attacker.others"))


def joined(parts: Sequence[Estimates]) -> Estimates:
    """Estimates of several parts, concatenated in their order."""
    return Estimates(
        points=np.concatenate([part.points for part in parts]),
        confidence=np.concatenate([part.confidence for part in parts]),
        certified=np.concatenate([part.certified for part in parts]),
    )


def undecided(count: int, dim: int) -> Estimates:
    """Estimates without a decision about any of `count` features; `dim` is the dimension of their points."""
    return Estimates(points=np.full((count, dim), np.nan), confidence=np.zeros(count), certified=np.zeros(count, dtype=bool))


def project(form: Subspaces, points: Float64[np.ndarray, "features dim"]) -> Float64[np.ndarray, "features dim"]:
    """Orthogonal projections of the rows of `points`, each on the subspace of its feature (p_D of [P23])."""
    origin, basis = form.origin.astype(np.float64), form.basis.astype(np.float64)
    return origin + np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", basis, points - origin), basis)


def renormalized(form: Subspaces, points: Float64[np.ndarray, "features dim"]) -> Float64[np.ndarray, "features dim"]:
    """Points scaled to unit length if the form's descriptors have it; unchanged behind a PCA (lifting.md#strategies)."""
    if form.space.codebook:
        return points
    return points / np.maximum(np.linalg.norm(points, axis=-1, keepdims=True), 1e-12)

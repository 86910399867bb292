"""Forms of descriptors and positions that may exist outside the device, each with its guarantee."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, UInt32

from veil.errors import InputError
from veil.ldp.guarantee import Guarantee, NoProof
from veil.ldp.mechanism import SubsetMechanism
from veil.one_line import one_line
from veil.space import Space

PUBLIC_POINTS = NoProof(
    reason="Raw descriptors: anyone who holds them can invert them into images of the scene. Publish only public scenes."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    """Raw descriptors of a map that its owner chose to make public; they are never part of a wire message.

    - `vectors`, float32 (N, dim): one descriptor a row, of unit length unless a PCA compressed them.
    - `space`: the space that they live in.
    - `guarantee`: `NoProof`, as raw descriptors can be inverted into images.

    Raises InputError if `vectors` are not (N, space.dim).
    """

    vectors: Float32[np.ndarray, "_ _"]
    space: Space
    guarantee: Guarantee = PUBLIC_POINTS

    __repr__ = one_line

    def __post_init__(self) -> None:
        _require_shape(self.vectors, (len(self.vectors), self.space.dim), "vectors")

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: np.ndarray) -> Points:
        """The form of the features `rows` (indices or a mask)."""
        return replace(self, vectors=self.vectors[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Subspaces:
    """Affine subspaces D = origin + span(basis), one for each descriptor, in canonical form (lifting.md#canonical-form).

    Origin and basis follow from D and from chance that is independent of the descriptor inside (Dusmanu et al. 2021, Sec. 3).

    - `origin`, float32 (N, dim): the point of each D nearest to zero.
    - `basis`, float32 (N, m, dim): orthonormal rows that span each D.
    - `space`: the space that the descriptors live in.
    - `guarantee`: what is promised of the descriptors; `NoProof` for lifting.
    - `profile`: name of the lifting ("hardened", "paper", ...).
    - `releasable`: False for what a seeded study made; such forms cannot be put on the wire.
    - `sent_as`: precision that the numbers had on the wire. They are made orthonormal again on arrival, so that they do not
      show it themselves, and attacks have to allow for it.

    Raises InputError for wrong shapes, or an m outside 1..dim-1.
    """

    origin: Float32[np.ndarray, "_ _"]
    basis: Float32[np.ndarray, "_ _ _"]
    space: Space
    guarantee: Guarantee
    profile: str
    releasable: bool
    sent_as: Literal["float16", "float32"] = "float32"

    __repr__ = one_line

    def __post_init__(self) -> None:
        count, dim = len(self.origin), self.space.dim
        _require_shape(self.origin, (count, dim), "origin")
        if self.basis.ndim != 3 or self.basis.shape[0] != count or self.basis.shape[2] != dim:
            raise InputError(f"basis must be ({count}, m, {dim}), got {self.basis.shape}")
        if self.sent_as not in ("float16", "float32"):
            raise InputError(f"sent_as must be float16 or float32, got {self.sent_as!r}")
        if not 1 <= self.m < dim:
            raise InputError(f"a subspace of dimension m={self.m} hides nothing or everything in {dim}-D; use 1..{dim - 1}")

    def __len__(self) -> int:
        return len(self.origin)

    @property
    def m(self) -> int:
        """Dimension m of every subspace."""
        return self.basis.shape[1]

    def take(self, rows: np.ndarray) -> Subspaces:
        """The form of the features `rows` (indices or a mask)."""
        return replace(self, origin=self.origin[rows], basis=self.basis[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Subsets:
    """Random subsets of a public dictionary's words, one in place of each descriptor (Pittaluga and Zhuang 2023, Sec. 5).

    - `ids`, uint32 (N, m): word ids of each feature, distinct and ascending.
    - `mechanism`: the law of the subsets (K words, m, epsilon); it is the guarantee.
    - `space`: the space that the descriptors lived in.
    - `dictionary`: SHA-256 (hex) of the codebook that the ids number.
    - `releasable`: False for what a seeded study made; such forms cannot be put on the wire.

    Raises InputError if a word id is outside the dictionary, a row is not strictly ascending (another order would give the true
    word away), or `dictionary` is no SHA-256.
    """

    ids: UInt32[np.ndarray, "_ _"]
    mechanism: SubsetMechanism
    space: Space
    dictionary: str
    releasable: bool

    __repr__ = one_line

    def __post_init__(self) -> None:
        _require_shape(self.ids, (len(self.ids), self.mechanism.m), "words")
        if len(self.ids) and int(self.ids[:, -1].max()) >= self.mechanism.dictionary_size:
            raise InputError(f"a word id lies outside the dictionary of {self.mechanism.dictionary_size} words")
        if not (self.ids[:, 1:] > self.ids[:, :-1]).all():
            raise InputError("a feature's words must be distinct and in ascending order: another order gives the true one away")
        digits = set(self.dictionary)
        if len(self.dictionary) != 64 or not digits <= set("0123456789abcdef") or digits == {"0"}:
            raise InputError(
                f"dictionary must be the SHA-256 (hex) of the codebook whose words these are, got {self.dictionary!r}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def m(self) -> int:
        """Number m of words in every subset."""
        return self.mechanism.m

    @property
    def guarantee(self) -> Guarantee:
        """`LocalDP` with the epsilon of each feature, or `NoProof` if epsilon is infinite."""
        return self.mechanism.guarantee

    def take(self, rows: np.ndarray) -> Subsets:
        """The form of the features `rows` (indices or a mask)."""
        return replace(self, ids=self.ids[rows])


# Forms that a distance compares, forms that a message may carry, and all forms.
Flat = Points | Subspaces
Released = Subspaces | Subsets
Form = Points | Subspaces | Subsets


def canonical(
    origin: Float64[np.ndarray, "features dim"], basis: Float64[np.ndarray, "features m dim"]
) -> tuple[Float64[np.ndarray, "features dim"], Float64[np.ndarray, "features m dim"]]:
    """Canonical form (origin, basis) of affine subspaces: the point nearest to zero and an orthonormal basis, in float64.

    The basis is the QR factor of the given one with a positive diagonal of R, that is Gram-Schmidt of its rows. This factor is
    unique, so that the result depends on no library's signs; it is Haar distributed in the span if the rows are Gaussian in it
    (Mezzadri 2007, Sec. 4), and the rows themselves, up to rounding, if they are orthonormal already.
    Raises InputError if a number is not finite or a basis is rank deficient.

    Theory: distances.md#notation, lifting.md#canonical-form.
    """
    if not (np.isfinite(origin).all() and np.isfinite(basis).all()):
        raise InputError("a subspace contains NaN or infinity")
    q, r = np.linalg.qr(np.swapaxes(basis, 1, 2))
    diagonal = np.diagonal(r, axis1=1, axis2=2)
    lengths = np.abs(diagonal)
    if lengths.size and not (lengths.min(axis=1) > 1e-9 * np.maximum(lengths.max(axis=1), 1e-300)).all():
        raise InputError("a subspace has linearly dependent directions; the feature that made it has duplicate decoys")
    # LAPACK's signs follow from the matrix (lifting.md#canonical-form)
    orthonormal = np.swapaxes(q * np.sign(diagonal)[:, None, :], 1, 2)
    nearest = origin
    for _ in range(2):  # the second pass removes what rounding left of the first
        nearest = nearest - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", orthonormal, nearest), orthonormal)
    return nearest, np.ascontiguousarray(orthonormal)


def _require_shape(array: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    """Raise InputError unless `array`, which the message calls `name`, has this shape."""
    if array.shape != shape:
        raise InputError(f"{name} must have shape {shape}, got {array.shape}")


_BY_PROFILE = {
    "paper": (
        "Lifting to affine subspaces is an obfuscation without proof. The paper's lifting of 8-bit descriptors such as "
        "SIFT is broken: structural attacks recover the descriptors exactly, from the subspaces alone."
    ),
    "hardened": (
        "Lifting to affine subspaces is an obfuscation without proof. The hardened profile stops the known exact "
        "recoveries, but a share of descriptors is still approximated by nearest-neighbor attacks, decoys from a "
        "public or small pool are identified, and two different releases of one view intersect in the descriptors."
    ),
}


def lifted_guarantee(profile: str) -> NoProof:
    """`NoProof` with what is known to break subspaces of the profile of this name."""
    return NoProof(
        reason=_BY_PROFILE.get(profile, "Lifting to affine subspaces is an obfuscation without proof.")
        + " Descriptors that match a map can be estimated by whoever matches them."
    )


LINES = NoProof(
    reason="Random lines hide one coordinate of each keypoint and nothing else; no proof of privacy exists. Lines along "
    "gravity reveal the exact horizontal coordinate of their features. A point that is seen in four or more images is "
    "reconstructed, and with it the positions of its keypoints: static private rooms are not protected. Two different "
    "lines through one keypoint meet in it."
)


def require_unit_gravity(gravity: Float64[np.ndarray, "_"] | None) -> None:
    """Raise InputError unless `gravity` is None or a unit vector (3,)."""
    if gravity is None:
        return
    bounded = gravity.shape == (3,) and bool(np.isfinite(gravity).all() and (np.abs(gravity) < 2).all())
    if not bounded or not abs(float(np.linalg.norm(gravity)) - 1) < 1e-6:
        raise InputError("gravity must be a unit vector")


@dataclass(frozen=True, kw_only=True, eq=False)
class Lines:
    """Lines through the keypoints in place of their positions, in the undistorted normalized image plane (lines.md#release).

    - `coefficients`, float32 (N, 3): (n_x, n_y, c) with unit normal n, so that n . x + c = 0.
    - `aligned`, bool (N,): whether each line follows gravity; such a line shows the horizontal coordinate of its keypoint.
    - `gravity`, float64 (3,): unit vector that points down in the camera frame (x right, y down, z forward); None if unknown.
    - `releasable`: False for what a seeded study made; such lines cannot be put on the wire.
    - `guarantee`: `NoProof`, with what lines do not protect.

    Raises InputError for wrong shapes, numbers that are not finite, normals or gravity not of unit length, or aligned lines
    without gravity.
    """

    coefficients: Float32[np.ndarray, "_ _"]
    aligned: Bool[np.ndarray, "_"]
    gravity: Float64[np.ndarray, "_"] | None
    releasable: bool
    guarantee: Guarantee = LINES

    __repr__ = one_line

    def __post_init__(self) -> None:
        _require_shape(self.coefficients, (len(self.coefficients), 3), "coefficients")
        _require_shape(self.aligned, (len(self.coefficients),), "aligned")
        normals = self.coefficients[:, :2]
        # Before any arithmetic: that of signaling NaNs, and the length of huge normals, are themselves invalid operations.
        bounded = bool(np.isfinite(self.coefficients).all()) and bool((np.abs(normals) < 2).all())
        if not bounded or not (np.abs(np.hypot(normals[:, 0], normals[:, 1]) - 1) < 1e-4).all():
            raise InputError("lines need finite coefficients with normals of unit length")
        if self.gravity is None and self.aligned.any():
            raise InputError("lines cannot be aligned with a gravity that is not given")
        require_unit_gravity(self.gravity)

    def __len__(self) -> int:
        return len(self.coefficients)

    def take(self, rows: np.ndarray) -> Lines:
        """The lines of `rows` (indices or a mask)."""
        return replace(self, coefficients=self.coefficients[rows], aligned=self.aligned[rows])

"""Integer vectors near a subspace: how much noise leaves one identifiable, and how unlikely one is by chance.

Code of docs/theory/hardened.md, Eq. 2 and G1-G3; the search itself is in `veil.attacks.structural.lattice`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.codebooks.compression import Pca
from veil.errors import InputError, RangeError
from veil.forms import Subspaces

# |u| of COLMAP's 8-bit descriptors: one step is 1/512.
LENGTH_STEPS = 512.0
# Lengths are rounded up to powers of 2^(1/8), so that a bound for each level is one for all lengths up to 2^12.
LEVELS_PER_OCTAVE, LEVELS = 8, 96


class Spans(NamedTuple):
    """For each feature the linear span of its subspace, in the descriptors' own space.

    Rows of `axes` are an orthonormal basis of the span; the last one is orthogonal to the directions of the subspace, whose
    points have the coordinate `height` along it: u lies over the point u / t with t = <u, last axis> / height.
    """

    axes: Float64[np.ndarray, "features span dim"]
    height: Float64[np.ndarray, "features"]


def effective_dimension(form: Subspaces, pca: Pca | None = None) -> int:
    """m, or behind a PCA the dimension of the preimage (Eq. 4). Raises InputError if the PCA is not the form's."""
    if pca is None:
        if form.space.codebook:
            raise InputError("these subspaces lie behind a public PCA; give that of the codebook they were made with")
        return form.m
    if not form.space.codebook or len(pca.axes) != form.space.dim:
        raise InputError(f"a PCA to {len(pca.axes)} dimensions does not lead to the space [{form.space}]; give the form's own")
    return form.m + pca.axes.shape[1] - pca.axes.shape[0]


def identifiable_noise(m_eff: int, dim: int, *, length_steps: float = LENGTH_STEPS) -> float:
    """sigma* of Eq. 2: the noise (steps, root mean square) above which u is one of many vectors of its length."""
    if not 0 < m_eff < dim - 1:
        raise RangeError(f"m_eff must lie between 1 and {dim - 2} for {dim}-D descriptors, got {m_eff!r}")
    if not 0 < length_steps < math.inf:
        raise RangeError(f"length_steps must be positive and finite, got {length_steps!r}")
    rho = (m_eff + 1) / dim
    g = length_steps / math.sqrt(dim)
    return float((g**-rho / math.sqrt(2 * math.pi * math.e)) ** (1 / (1 - rho)))


def release_noise(form: Subspaces, *, length_steps: float = LENGTH_STEPS) -> float:
    """Noise (steps, root mean square) that the release's number format alone puts on a coordinate (Eq. G1)."""
    if not len(form):
        return 0.0
    values = np.concatenate([form.origin.ravel(), form.basis.ravel()])
    spacing = np.spacing(np.abs(values).astype(form.sent_as)).astype(np.float64)
    # u = t (o + c B) with |o|^2 + |c|^2 <= 1: errors of o count once, those of the basis |c| <= 1 times.
    return float(length_steps * math.sqrt(2 / 12) * np.sqrt(np.mean(spacing**2)))


def spans(form: Subspaces, pca: Pca | None = None) -> Spans:
    """The spans of all features; behind a PCA those of the flats that it maps to the subspaces (Eq. 4)."""
    origin, directions = form.origin.astype(np.float64), form.basis.astype(np.float64)
    if pca is not None:
        matrix = pca.axes.astype(np.float64)
        inverse = np.linalg.pinv(matrix)
        origin = (origin + matrix @ pca.mean.astype(np.float64)) @ inverse.T
        unseen = np.linalg.svd(matrix)[2][len(matrix) :]
        directions = np.concatenate([directions @ inverse.T, np.broadcast_to(unseen, (len(origin), *unseen.shape))], axis=1)
    q, r = np.linalg.qr(np.swapaxes(np.concatenate([directions, origin[:, None]], axis=1), 1, 2))
    return Spans(axes=np.ascontiguousarray(np.swapaxes(q, 1, 2)), height=r[:, -1, -1])


def log_false_claims(
    lengths: Float64[np.ndarray, "vectors"], distances: Float64[np.ndarray, "vectors"], *, span: int, dim: int
) -> Float64[np.ndarray, "vectors"]:
    """Logarithm of Eq. G3 times the levels: it bounds how many integer vectors are expected to be as short and near by chance.

    Chance is a uniformly random linear `span`-dimensional subspace of R^dim; `distances` are those of vectors of such `lengths`
    from it. Claiming only where the bound is below tau is wrong with probability at most tau in all, however many are tried.
    """
    from scipy.special import betaln, gammaln

    if not 2 <= span < dim:
        raise RangeError(f"a span must have between 2 and {dim - 1} dimensions, got {span!r}")
    usable = lengths >= 1
    level = np.ceil(LEVELS_PER_OCTAVE * np.log2(np.where(usable, lengths, 1.0)))
    squared_sine = 2 * np.log(np.maximum(distances, 1e-300) / np.where(usable, lengths, 1.0))
    reach = 2.0 ** (level / LEVELS_PER_OCTAVE) + math.sqrt(dim) / 2
    points = dim / 2 * math.log(math.pi) - gammaln(dim / 2 + 1) + dim * np.log(reach)
    a, b = (dim - span) / 2, span / 2
    tail = a * squared_sine - math.log(a) - betaln(a, b)
    bound = math.log(LEVELS) + points + np.minimum(tail, 0.0)
    return np.where(usable & (level < LEVELS), bound, np.inf)


def independent_rows(vectors: Float64[np.ndarray, "rows dim"], sure: Bool[np.ndarray, "rows"]) -> Int64[np.ndarray, "kept"]:
    """The rows among `sure` that are no combination of earlier ones: two rows of a noisy lattice may lead to one vector."""
    kept: list[int] = []
    axes = np.zeros((0, vectors.shape[1]))
    for row in np.flatnonzero(sure).tolist():
        rest = vectors[row] - vectors[row] @ axes.T @ axes
        rest -= rest @ axes.T @ axes
        length = float(np.linalg.norm(rest))
        if length > 1e-6 * float(np.linalg.norm(vectors[row])):
            kept.append(row)
            axes = np.concatenate([axes, rest[None] / length])
    return np.array(kept, dtype=np.int64)

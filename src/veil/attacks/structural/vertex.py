"""The vertex attack: a non-negative descriptor with many zeros is a degenerate vertex of its subspace.

The attack needs no database and no training (docs/theory/hardened.md, Eq. V1-V4). It minimizes random linear objectives over
the non-negative points of each subspace, reweights them toward the small coordinates of the minimum, and counts zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from veil.attacks.claims import Estimates, Lists, undecided
from veil.attacks.structural.vertex_search import FlatSearch, flats
from veil.codebooks.compression import Pca
from veil.errors import InputError, RangeError
from veil.forms import Subspaces
from veil.progress import Progress
from veil.space import U8_STEP
from veil.threads import shared

# Share of COLMAP's SIFT descriptors with more zeros than `ZEROS`, by normalization, on photographs of ImageNet.
ZEROS = (0, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96)
SHARE = {
    "L2": (0.976, 0.940, 0.895, 0.801, 0.607, 0.427, 0.271, 0.084, 0.017, 0.002, 0.0),
    "L1_ROOT": (0.819, 0.675, 0.565, 0.406, 0.215, 0.113, 0.059, 0.012, 0.002, 0.0, 0.0),
}


@dataclass(frozen=True, kw_only=True)
class VertexOptions:
    """Effort of the vertex attack's search. Raises RangeError for values out of range.

    Each of up to `restarts` random objectives is followed by `steps - 1` reweighted ones, until a certificate is found. `floor`
    is added to a coordinate before its inverse becomes a weight, `spread` is the standard deviation of the weights' logarithm.
    Defaults were tuned on photographs of ImageNet, plain (m = 8, 16) and hardened. `chunk_features` bounds memory; the result
    depends on it, but not on `threads`.
    """

    restarts: int = 100
    steps: int = 8
    floor: float = 0.06
    spread: float = 1.0
    chunk_features: int = 256
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("restarts", "steps", "chunk_features", "threads"):
            if not getattr(self, name) >= 1:
                raise RangeError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if not 0 < self.floor < math.inf:
            raise RangeError(f"floor must be positive and finite, got {self.floor!r}")
        if not 0 <= self.spread <= 8:
            raise RangeError(f"spread must be between 0 and 8, got {self.spread!r}")


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Whether the vertex attack can apply to a form, the dimension of its flats (Eq. 4), and the share of them it may reach.

    `share` is that of typical descriptors of this kind with more than `dimension` zeros, which an unlimited search could
    recover. It is not the share that was recovered, and it does not account for dither, which hides the zeros.
    """

    applies: bool
    dimension: int
    share: float
    reason: str


def vertex_reach(form: Subspaces, *, pca: Pca | None = None) -> Reach:
    """Reach of the vertex attack by the form's kind alone: SIFT is non-negative and sparse, others are taken to be signed.

    Raises InputError where PCA and form do not fit.
    """
    _check(form, pca, None)
    dimension = form.m + (0 if pca is None else len(pca.mean) - len(pca.axes))
    if form.space.descriptor != "sift":
        reason = f"{form.space.descriptor!r} is not known to be non-negative with exact zeros"
        return Reach(applies=False, dimension=dimension, share=0.0, reason=reason)
    share = float(np.interp(dimension, ZEROS, SHARE[form.space.normalization]))
    reason = f"more than {dimension} zeros are needed; about {share:.1%} of SIFT descriptors have them"
    if form.space.dither_steps:
        reason += f", here hidden by a dither of {form.space.dither_steps:g} steps"
    return Reach(applies=True, dimension=dimension, share=share, reason=reason)


def vertex_attack(
    form: Subspaces,
    *,
    options: VertexOptions | None = None,
    seed: int,
    pca: Pca | None = None,
    decoys: Float[np.ndarray, "_ _"] | None = None,
    progress: Progress | None = None,
) -> Estimates:
    """The best degenerate vertex of each subspace, in the space of the form; undecided where no point is non-negative.

    `pca` is the public compression of the form's space, which must be given where there is one. `decoys` are the words that the
    attacker knows decoys to be from, unit vectors before dither and PCA: a vertex at a word is passed over. A vertex is
    certified if Eq. V4 rules chance out: then it is one of the points that made the subspace. As a sparse decoy is one too,
    nothing is certified where `decoys` is None; give no words, shape (0, n), for subspaces that have no decoys.
    The random objectives follow from `seed`. Raises InputError where PCA, decoys and form do not fit.
    """
    if len(form) == 0:
        return undecided(0, form.space.dim)
    points, confidence = np.empty((len(form), form.space.dim)), np.empty(len(form))
    certified = np.empty(len(form), dtype=bool)
    for rows, search in _searched(form, options or VertexOptions(), seed, pca, decoys, wanted=1, progress=progress):
        points[rows] = search.points if pca is None else pca.apply(search.points)
        confidence[rows] = search.confidence()
        certified[rows] = [decoys is not None and len(proved) > 0 for proved in search.proved]
    return Estimates(points=points, confidence=confidence, certified=certified)


def vertex_lists(
    form: Subspaces,
    *,
    options: VertexOptions | None = None,
    seed: int,
    pca: Pca | None = None,
    decoys: Float[np.ndarray, "_ _"] | None = None,
    progress: Progress | None = None,
) -> Lists:
    """All certified degenerate vertices of each subspace: the descriptor, and the decoys where these are sparse as well.

    Parameters and space are those of `vertex_attack`. A list has at most m + 1 entries, those with the most evidence first.
    Lists with entries are certified: each entry is one of the points that made the subspace, but it remains open which one.
    """
    vertices: list[Float64[np.ndarray, "entries dim"]] = []
    for _, search in _searched(form, options or VertexOptions(), seed, pca, decoys, wanted=form.m + 1, progress=progress):
        for proved in search.proved:
            ranked = sorted(proved, key=lambda entry: -entry[0])[: form.m + 1]
            points = np.array([point for _, point in ranked]).reshape(-1, search.points.shape[1])
            vertices.append(points if pca is None else pca.apply(points))
    return Lists(candidates=tuple(vertices), certified=np.array([len(points) > 0 for points in vertices], dtype=bool))


def _searched(
    form: Subspaces,
    options: VertexOptions,
    seed: int,
    pca: Pca | None,
    decoys: np.ndarray | None,
    *,
    wanted: int,
    progress: Progress | None,
) -> Iterator[tuple[np.ndarray, FlatSearch]]:
    """Iterator over chunks of features, as their rows and their finished searches, in order."""
    words = _check(form, pca, decoys)
    size = options.chunk_features
    chunks = [np.arange(start, min(start + size, len(form))) for start in range(0, len(form), size)]

    def run(item: tuple[int, np.ndarray]) -> FlatSearch:
        number, rows = item
        search = FlatSearch(flats(form.take(rows), pca), words, wanted, pca)
        search.run(
            np.random.default_rng([seed, number]),
            restarts=options.restarts,
            steps=options.steps,
            floor=options.floor,
            spread=options.spread,
        )
        return search

    # Few chunks at a time: a chunk holds copies of its subspaces.
    for rows, search in zip(chunks, shared(run, enumerate(chunks), options.threads), strict=True):
        yield rows, search
        if progress is not None:
            progress(int(rows[-1]) + 1, len(form))


def _check(form: Subspaces, pca: Pca | None, decoys: np.ndarray | None) -> Float64[np.ndarray, "words n"]:
    """The words, moved as dither moves them on average and scaled to unit length; checks that all arguments fit."""
    if bool(form.space.codebook) != (pca is not None) or (pca is not None and len(pca.axes) != form.space.dim):
        raise InputError(f"the vertex attack on [{form.space}] needs the PCA of its codebook if it has one, and none otherwise")
    n = form.space.dim if pca is None else len(pca.mean)
    if decoys is None:
        return np.empty((0, n))
    if decoys.ndim != 2 or decoys.shape[1] != n or not np.isfinite(decoys).all():
        raise InputError(f"decoys must be finite words of {n} dimensions, from before any PCA, got {decoys.shape}")
    moved = decoys.astype(np.float64) + 0.5 * form.space.dither_steps * U8_STEP
    return moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)

"""The lattice attack: a descriptor that was once stored in 8 bits is a short integer vector in the span of its subspace.

The attack needs no database and no training, and certifies its own success (docs/theory/hardened.md, Eq. 1, 2 and G1-G4). Where
decoys are integers as well it lists them all. Rows, blocks and scales were tuned on photographs of `imagenet_sample`; the
certificate has nothing to tune.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from veil.attacks.claims import Estimates, Lists
from veil.attacks.structural.lattice_certificate import (
    LENGTH_STEPS,
    Spans,
    effective_dimension,
    identifiable_noise,
    independent_rows,
    log_false_claims,
    release_noise,
    spans,
)
from veil.attacks.structural.lattice_reduction import entry_limit, none_beyond, reduce, short_vectors
from veil.codebooks.compression import Pca
from veil.errors import InputError, RangeError
from veil.forms import Subspaces
from veil.progress import Progress
from veil.space import Space
from veil.threads import shared

# Fixed point: the lattice of Eq. 1 is scaled by this before it is rounded to integers.
FRACTION = 16
# A coordinate of an integer vector may lie this far (steps) from the span: `GRAIN`, or four times the noise, but at most
# `GRAIN_MOST`, so that the next integer is never nearer.
GRAIN, GRAIN_MOST = 0.25, 0.45
CHUNK = 16  # features that are reduced in one call, after which progress is reported


@dataclass(frozen=True, kw_only=True)
class LatticeOptions:
    """Settings of the lattice attack: knowledge of the grid, and effort. Raises RangeError for values out of range.

    `length_steps` is |u| in grid steps where it is known, within `length_slack_steps` (COLMAP: 512, as rounding leaves it),
    else None; `nonnegative` descriptors have no negative coordinates. In a first round of LLL the lattice has one pivot for
    each dimension of the span, and `equations_per_dimension` equations for each, within `min_equations` and `max_equations`.
    Features that it leaves open get a second round with twice as many and BKZ with blocks of `block` rows for `tours` tours (0:
    no second round), and those where nothing was found a third with four times as many; neither if the noise is beyond Eq. 2,
    unless `beyond_reach` is set. Noise is that of the number format, of a declared dither, and `noise_steps` (root mean square)
    beyond these. `max_scale` bounds kappa of Eq. 1. A list holds vectors up to `reach` times the known length, or the longest
    row found. `max_false_claims` bounds the chance of one false certificate among all integer vectors.
    """

    length_steps: float | None = LENGTH_STEPS
    length_slack_steps: float = 4.0
    nonnegative: bool = True
    equations_per_dimension: float = 2.0
    min_equations: int = 20
    max_equations: int = 48
    block: int = 20
    tours: int = 8
    beyond_reach: bool = False
    noise_steps: float = 0.0
    max_scale: float = 2.0**20
    reach: float = 1.2
    max_false_claims: float = 1e-9

    def __post_init__(self) -> None:
        if self.length_steps is not None and not 1 <= self.length_steps <= 4096:
            raise RangeError(f"length_steps must be between 1 and 4096 or None, got {self.length_steps!r}")
        for name, low, high in (
            ("length_slack_steps", 0, 4096),
            ("equations_per_dimension", 0.1, 128),
            ("min_equations", 1, 4096),
            ("max_equations", 1, 4096),
            ("block", 2, 40),
            ("tours", 0, 1000),
            ("noise_steps", 0, 64),
            ("max_scale", 1, 2.0**24),
            ("reach", 1, 4),
            ("max_false_claims", 1e-300, 1),
        ):
            if not low <= getattr(self, name) <= high:
                raise RangeError(f"{name} must be between {low:g} and {high:g}, got {getattr(self, name)!r}")

    @staticmethod
    def of(space: Space) -> LatticeOptions:
        """Options for a kind of descriptor: SIFT is non-negative and 512 steps long, others are signed, of unknown length."""
        known = space.descriptor == "sift"
        return LatticeOptions(length_steps=LENGTH_STEPS if known else None, nonnegative=known)


class _Found(NamedTuple):
    """Integer vectors over points of unit length in one feature's subspace, and whether there are provably no others."""

    vectors: Int64[np.ndarray, "found dim"]
    complete: bool


def lattice_attack(
    form: Subspaces,
    *,
    options: LatticeOptions | None = None,
    pca: Pca | None = None,
    decoys: Float[np.ndarray, "decoys dim"] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Estimates:
    """The descriptor in each subspace, if it is an integer vector scaled to unit length; no decision where none is found.

    `options` default to those for `form.space`. Subspaces behind a public PCA need that `pca`. `decoys` are public ones, of
    unit length and from before any PCA, which are struck off. An estimate is certified if it is the only integer vector of its
    kind: if the descriptor lies on a grid at all, it is this one. Of several, the one of the most likely length is estimated.
    `progress` is called with the numbers of features done and of all. Raises InputError for forms, PCA or decoys that do not
    fit.
    """
    options = options or LatticeOptions.of(form.space)
    outcomes = _search(form, options, pca, decoys, threads, progress)
    points = np.full((len(form), form.space.dim), np.nan)
    confidence, certified = np.zeros(len(form)), np.zeros(len(form), dtype=bool)
    for row, each in enumerate(outcomes):
        likely = each.vectors[_of_length(each.vectors, options)]
        if len(likely):
            points[row] = _described(likely[:1], pca)[0]
            confidence[row] = 1 / len(likely)
            certified[row] = len(likely) == 1 and each.complete
    return Estimates(points=points, confidence=confidence, certified=certified)


def lattice_lists(
    form: Subspaces,
    *,
    options: LatticeOptions | None = None,
    pca: Pca | None = None,
    decoys: Float[np.ndarray, "decoys dim"] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Lists:
    """All integer vectors that each subspace contains, scaled to unit length: the descriptor and decoys that are integers too.

    Parameters are those of `lattice_attack`. Vectors of the known length come first. A list is certified if its entries are
    independent and there are provably no others of the known length, or up to `reach` times the longest.
    """
    options = options or LatticeOptions.of(form.space)
    outcomes = _search(form, options, pca, decoys, threads, progress)
    certified = [
        each.complete and 0 < len(each.vectors) == np.linalg.matrix_rank(each.vectors.astype(np.float64)) for each in outcomes
    ]
    return Lists(
        candidates=tuple(_described(each.vectors, pca) for each in outcomes), certified=np.array(certified, dtype=bool)
    )


def _described(vectors: Int64[np.ndarray, "found dim"], pca: Pca | None) -> Float64[np.ndarray, "found out"]:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit if pca is None else pca.apply(unit)


def _of_length(vectors: Int64[np.ndarray, "found dim"], options: LatticeOptions) -> Bool[np.ndarray, "found"]:
    if options.length_steps is None:
        return np.ones(len(vectors), dtype=bool)
    return np.abs(np.linalg.norm(vectors, axis=1) - options.length_steps) <= options.length_slack_steps


def _search(
    form: Subspaces,
    options: LatticeOptions,
    pca: Pca | None,
    decoys: Float[np.ndarray, "decoys dim"] | None,
    threads: int,
    progress: Progress | None,
) -> list[_Found]:
    """Integer vectors of all features, found chunk by chunk; the arguments are those of `lattice_attack`, checked here."""
    span = effective_dimension(form, pca) + 1
    dim = form.space.dim if pca is None else pca.axes.shape[1]
    if span > dim - 2:
        raise InputError(f"the span of these subspaces has {span} of {dim} dimensions: nothing is left to tell integers by")
    if not (np.isfinite(form.origin).all() and np.isfinite(form.basis).all()):
        raise InputError("the subspaces contain NaN or infinity")
    if decoys is not None and decoys.shape[1:] != (dim,):
        raise InputError(f"decoys must have shape (decoys, {dim}), got {decoys.shape}")
    length = options.length_steps or LENGTH_STEPS
    declared = form.space.dither_steps / math.sqrt(12)
    noise = math.hypot(release_noise(form, length_steps=length), declared, options.noise_steps)
    reachable = noise < identifiable_noise(span - 1, dim, length_steps=length)
    tours = options.tours if reachable or options.beyond_reach else 0
    chunks = [np.arange(start, min(start + CHUNK, len(form))) for start in range(0, len(form), CHUNK)]

    def work(rows: np.ndarray) -> list[_Found]:
        return _search_chunk(spans(form.take(rows), pca), noise, tours, options, decoys)

    outcomes: list[_Found] = []
    for part in shared(work, chunks, threads):
        outcomes += part
        if progress is not None:
            progress(len(outcomes), len(form))
    return outcomes


def _search_chunk(
    chunk: Spans, noise: float, tours: int, options: LatticeOptions, decoys: Float[np.ndarray, "decoys dim"] | None
) -> list[_Found]:
    """Integer vectors of one chunk of features after up to three rounds; `noise` is in steps (root mean square)."""
    _, span, dim = chunk.axes.shape
    equations = math.ceil(options.equations_per_dimension * span)
    equations = max(options.min_equations, min(equations, options.max_equations))
    outcomes = _round(chunk, noise, min(dim, span + equations), options, tours=0)
    for more in (2, 4) if tours else ():
        # Nothing is gained by more rows where a list was found that is only not proved to be all.
        open_ = np.flatnonzero([not len(each.vectors) or (more == 2 and not each.complete) for each in outcomes])
        rest = Spans(chunk.axes[open_], chunk.height[open_])
        again = _round(rest, noise, min(dim, span + more * equations), options, tours=tours) if len(open_) else []
        for row, each in zip(open_.tolist(), again, strict=True):
            if len(each.vectors) >= len(outcomes[row].vectors):
                outcomes[row] = each
    return [each if decoys is None else _without(each, decoys) for each in outcomes]


def _without(outcome: _Found, decoys: Float[np.ndarray, "decoys dim"]) -> _Found:
    """The integer vectors of a feature that are no known decoys."""
    if not len(outcome.vectors):
        return outcome
    unit = outcome.vectors / np.linalg.norm(outcome.vectors, axis=1, keepdims=True)
    return outcome._replace(vectors=outcome.vectors[(unit @ decoys.T.astype(np.float64)).max(axis=1) < 1 - 1e-6])


def _round(chunk: Spans, noise: float, rows: int, options: LatticeOptions, *, tours: int) -> list[_Found]:
    lattices = [_lattice(axes, noise, rows, options) for axes in chunk.axes]
    reduced, _ = reduce(np.array([each.basis for each in lattices]), block=options.block, tours=tours)
    return [
        _read(lattice, basis, axes, height, options)
        for lattice, basis, axes, height in zip(lattices, reduced, chunk.axes, chunk.height, strict=True)
    ]


class _Lattice(NamedTuple):
    """The lattice of Eq. 1 in fixed point: a vector u of pivots u_p is u_p `extend`, and at most `stretch` |u| long in it.

    `tol` is ten times the relative error of lengths t that the noise leaves, `grain` the error of coordinates, in steps.
    """

    basis: Int64[np.ndarray, "rows rows"]
    extend: Float64[np.ndarray, "span dim"]
    stretch: float
    tol: float
    grain: float


def _lattice(axes: Float64[np.ndarray, "span dim"], noise: float, rows: int, options: LatticeOptions) -> _Lattice:
    """The lattice of `rows` rows for a feature's span; `noise` is in steps (root mean square)."""
    from scipy.linalg import qr

    span, dim = axes.shape
    length = options.length_steps or LENGTH_STEPS
    order = qr(axes, mode="r", pivoting=True)[1]  # the first `span` columns are well conditioned
    extend = np.linalg.solve(axes[:, order[:span]], axes)
    # An equation is worth the less the more it amplifies the noise of the pivots (Eq. G1).
    amplified = noise * np.sqrt(1 + np.square(extend).sum(axis=0))
    others = order[span:][np.argsort(amplified[order[span:]], kind="stable")][: rows - span]
    room = entry_limit(rows, rows) / (2 * FRACTION * max(1.0, float(np.abs(extend).max())))
    kappa = np.minimum(min(options.max_scale, room), length / math.sqrt(dim) / amplified[others])
    scale = np.rint(FRACTION * kappa)
    basis = np.zeros((rows, rows), dtype=np.int64)
    basis[: rows - span, span:] = np.diag(scale.astype(np.int64))
    basis[rows - span :, :span] = FRACTION * np.eye(span, dtype=np.int64)
    basis[rows - span :, span:] = np.rint(scale * extend[:, others]).astype(np.int64)
    # Per unit of |u|: twice sigma on all equations together, and what rounding adds to each.
    tail = 2 / length * float(np.linalg.norm(scale * amplified[others])) + math.sqrt(rows - span) / 2
    tol = 10 * noise * math.sqrt(dim) / length
    grain = min(GRAIN_MOST, max(GRAIN, 4 * noise))
    return _Lattice(basis=basis, extend=extend, stretch=math.hypot(FRACTION, tail), tol=tol, grain=grain)


def _read(
    lattice: _Lattice,
    basis: Int64[np.ndarray, "rows rows"],
    axes: Float64[np.ndarray, "span dim"],
    height: float,
    options: LatticeOptions,
) -> _Found:
    """Integer vectors that the rows of a reduced basis show and generate; `axes` and `height` are those of `Spans`."""
    span, dim = axes.shape
    vectors = np.rint(np.rint((basis[:, :span] // FRACTION) @ lattice.extend) @ axes.T @ axes)
    apart = vectors - vectors @ axes.T @ axes
    claims = log_false_claims(np.linalg.norm(vectors, axis=1), np.linalg.norm(apart, axis=1), span=span, dim=dim)
    # Next to an integer vector in the span others are less than a step off, which by themselves would be unlikely as well.
    claims[np.abs(apart).max(axis=1) > lattice.grain] = np.inf
    sure = independent_rows(vectors, claims <= math.log(options.max_false_claims))
    if not len(sure):
        return _Found(np.zeros((0, dim), dtype=np.int64), False)
    integers = reduce(vectors[sure].astype(np.int64)[None])[0][0]
    longest = float(np.linalg.norm(integers, axis=1).max())
    short, all_short = short_vectors(integers, options.reach * (options.length_steps or longest))
    kept = _over_unit_points(short, axes, height, lattice.tol, options)
    # Eq. G4: the rows found come first, and the rest of the lattice holds nothing so short.
    wanted = options.length_steps + options.length_slack_steps if options.length_steps else options.reach * longest
    alone = sure[-1] == len(sure) - 1 and none_beyond(basis, len(sure), lattice.stretch * wanted)
    return _Found(kept, bool(alone) and all_short)


def _over_unit_points(
    vectors: Int64[np.ndarray, "found dim"],
    axes: Float64[np.ndarray, "span dim"],
    height: float,
    tol: float,
    options: LatticeOptions,
) -> Int64[np.ndarray, "kept dim"]:
    """Vectors u or -u over a point u / t of unit length (t = |u|), no multiples or wrong signs, likeliest lengths first."""
    t = vectors @ axes[-1] / height
    signed = vectors * np.where(t < 0, -1, 1)[:, None]
    lengths = np.linalg.norm(signed, axis=1)
    kept = np.abs(np.abs(t) / lengths - 1) < tol
    if options.nonnegative:
        kept &= (signed >= 0).all(axis=1)
    if options.length_steps is None:
        kept &= np.gcd.reduce(signed, axis=1) == 1
    order = np.argsort(np.abs(lengths[kept] - (options.length_steps or 0.0)), kind="stable")
    return signed[kept][order]

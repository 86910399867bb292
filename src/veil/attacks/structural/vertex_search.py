"""Search of the vertex attack, from random objectives to degenerate vertices, and the evidence of their zeros."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.structural.simplex import OPTIMAL, minimize
from veil.codebooks.compression import Pca
from veil.forms import Subspaces
from veil.space import U8_STEP

# Points of unit length have |c| <= 1 in an orthonormal basis around the point nearest to zero.
BOX = 1.5
# A coordinate counts as zero below ZERO times its rounding noise. Coordinates below LOOSE times that, at most LOOSE_MAX, are
# tried as zeros at a vertex.
ZERO, LOOSE, LOOSE_MAX = 20.0, 50.0, 2e-3
# A certificate needs LEAST_EXCESS more zeros than m, and at most MAX_FALSE expected false claims about a feature (Eq. V4).
LEAST_EXCESS, MAX_FALSE = 3, 1e-9
# Upper bounds for the density of a wrong vertex's coordinate near 0, and of its length near 1 (Eq. V4).
COORDINATE_DENSITY, LENGTH_DENSITY = 40.0, 10.0
# Leverage above which a zero alone is taken to determine a direction: float16 leaves 1 - 1e-6.
ALONE = 1 - 1e-4
# Two points nearer than SAME, or than SAME_NOISES times the rounding noise, are one: float32 leaves 1e-7, float16 up to 2e-3.
SAME, SAME_NOISES = 1e-3, 500.0
# A point within this many times the rounding noise of a word is taken for the word: at m = 16 float16 moves points by up to 900
# times that noise.
WORD_NOISES = 4000.0
# Error of length that costs as much as a zero in the score behind dither.
LENGTH_PRICE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Flats:
    """Affine subspaces where descriptors are non-negative: `origin`, the point nearest to 0, and orthonormal rows of `basis`.

    `noise` is the rounding of a coordinate (rms), `dither` the width of the uniform dither that hides the zeros.
    """

    origin: Float64[np.ndarray, "_ _"]
    basis: Float64[np.ndarray, "_ _ _"]
    noise: float
    dither: float

    @property
    def m(self) -> int:
        """Dimension of the flats, m_eff of Eq. 4."""
        return self.basis.shape[1]

    @property
    def n(self) -> int:
        """Number of coordinates of a point."""
        return self.basis.shape[2]

    @property
    def zero(self) -> float:
        """Absolute value below which a coordinate counts as zero."""
        return ZERO * self.noise

    @property
    def same(self) -> float:
        """Distance below which two points are one point."""
        return max(SAME, SAME_NOISES * self.noise)

    def take(self, rows: np.ndarray) -> Flats:
        """The flats of `rows` (indices or a mask)."""
        return Flats(origin=self.origin[rows], basis=self.basis[rows], noise=self.noise, dither=self.dither)

    def at(self, coefficients: Float64[np.ndarray, "flats m"]) -> Float64[np.ndarray, "flats n"]:
        """The points origin + c basis of the flats at coefficients c."""
        return self.origin + np.matmul(coefficients[:, None], self.basis)[:, 0]

    def nearest(self, support: Bool[np.ndarray, "flats n"], value: float) -> Float64[np.ndarray, "flats n"]:
        """The points whose coordinates in `support` are nearest to `value`: least squares, with a trace of a ridge."""
        chosen = self.basis * support[:, None]
        gram = np.matmul(chosen, np.swapaxes(self.basis, 1, 2)) + 1e-13 * np.eye(self.m)
        right = np.matmul(chosen, (value - self.origin)[..., None])
        return self.at(np.linalg.solve(gram, right)[..., 0])


def flats(form: Subspaces, pca: Pca | None = None) -> Flats:
    """The subspaces of a form, or their preimages under the PCA, which have n - k more dimensions (Eq. 4)."""
    origin, basis = form.origin.astype(np.float64), form.basis.astype(np.float64)
    noise = (2.0**-13 if form.sent_as == "float16" else 2.0**-26) / math.sqrt(form.space.dim)
    if pca is not None:
        axes = pca.axes.astype(np.float64)
        lost = np.linalg.svd(axes, full_matrices=True)[2][len(axes) :]
        origin = pca.mean.astype(np.float64) + origin @ axes
        basis = np.concatenate([basis @ axes, np.broadcast_to(lost, (len(form), *lost.shape))], axis=1)
    # Rounding left the rows orthonormal only to within its noise.
    basis = np.ascontiguousarray(np.swapaxes(np.linalg.qr(np.swapaxes(basis, 1, 2))[0], 1, 2))
    origin = origin - np.matmul(np.matmul(origin[:, None], np.swapaxes(basis, 1, 2)), basis)[:, 0]
    return Flats(origin=origin, basis=basis, noise=noise, dither=form.space.dither_steps * U8_STEP)


@dataclass(frozen=True, kw_only=True, eq=False)
class PolishedPoints:
    """Polished points, the number of zeros that they have beyond m (`excess`), and their evidence.

    The evidence is that of Eq. V4, or a mere score behind dither.
    """

    points: Float64[np.ndarray, "_ _"]
    excess: Int64[np.ndarray, "_"]
    evidence: Float64[np.ndarray, "_"]


def weigh(part: Flats, vertices: Float64[np.ndarray, "flats n"]) -> PolishedPoints:
    """Points at vertices, polished by least squares on the coordinates that are nearly zero, with their zeros and evidence."""
    return _weigh_dithered(part, vertices) if part.dither > 0 else _weigh_exact(part, vertices)


def _weigh_exact(part: Flats, vertices: Float64[np.ndarray, "flats n"]) -> PolishedPoints:
    """Polished vertices without dither, weighed by Eq. V4."""
    points, zero = vertices.copy(), part.zero
    near = np.abs(vertices) < max(min(LOOSE * zero, LOOSE_MAX), zero)
    rows = np.flatnonzero(near.sum(axis=1) > part.m)
    if len(rows):
        chosen = part.take(rows)
        polished = chosen.nearest(near[rows], 0.0)
        polished = chosen.nearest(np.abs(polished) < 3 * zero, 0.0)
        kept = (np.abs(polished) < zero).sum(axis=1) > part.m
        points[rows[kept]] = polished[kept]
    excess = np.where((points > -1.5 * zero).all(axis=1), (np.abs(points) < zero).sum(axis=1) - part.m, 0)
    excess = np.maximum(excess, 0)
    return PolishedPoints(points=points, excess=excess, evidence=evidence(part, points, excess))


def evidence(
    part: Flats, points: Float64[np.ndarray, "flats n"], excess: Int64[np.ndarray, "flats"]
) -> Float64[np.ndarray, "flats"]:
    """-log10 of the chance that a wrong vertex has as many zeros beyond m and a length as near to 1 (Eq. V4)."""
    from scipy.special import gammaln

    expected = 2 * part.n * part.zero * COORDINATE_DENSITY
    chance = 2 * LENGTH_DENSITY * (np.abs(np.linalg.norm(points, axis=1) - 1) + 3 * part.zero)
    return (gammaln(excess + 1.0) - excess * math.log(expected) - np.log(np.minimum(chance, 1))) / math.log(10)


def independent_excess(normals: Float64[np.ndarray, "m zeros"], most: int = 24) -> int:
    """Number of zeros, at most `most`, that can be left out before the others no longer determine a point (Eq. V3).

    `normals` are the basis's columns at the point's zeros. Sparse decoys share zeros with the descriptor. Such zeros hold on
    whole faces and do not single out one point of them. The zero of the largest leverage is left out first: at leverage 1 the
    others do not determine the point.
    """
    kept = normals
    for removed in range(most):
        gram = kept @ kept.T
        leverage = np.einsum("mz,mz->z", kept, np.linalg.solve(gram + 1e-13 * np.eye(len(gram)), kept))
        if kept.shape[1] <= len(gram) or leverage.max() > ALONE:
            return removed
        kept = np.delete(kept, int(leverage.argmax()), axis=1)
    return most


def _weigh_dithered(part: Flats, vertices: Float64[np.ndarray, "flats n"]) -> PolishedPoints:
    """Polished vertices behind dither, with a score: zeros beyond m, less negative coordinates and errors of length."""
    points, width = vertices, part.dither
    for _ in range(3):
        near = np.abs(points - 0.5 * width) < 0.75 * width
        enough = near.sum(axis=1) >= part.m
        points = np.where(enough[:, None], part.nearest(near, 0.5 * width), points)
    excess = (np.abs(points - 0.5 * width) < 0.75 * width).sum(axis=1) - part.m
    off = np.abs(np.linalg.norm(points, axis=1) - 1)
    score = excess - (points < -width).sum(axis=1) - np.minimum(off / LENGTH_PRICE, part.n)
    return PolishedPoints(points=points, excess=np.maximum(excess, 0), evidence=score.astype(np.float64))


class FlatSearch:
    """State of a search in some flats: the best point of each flat, proved points, and decoys that were met.

    A flat is done when `wanted` points of it are proved. `words` are known decoys, of unit length, before the PCA.
    """

    def __init__(self, where: Flats, words: Float64[np.ndarray, "words n"], wanted: int, pca: Pca | None = None) -> None:
        count = len(where.origin)
        self.flats, self.wanted = where, wanted
        self.axes = None if pca is None else pca.axes.astype(np.float64)
        self.words = self._place(words)
        self.squared = np.square(self.words).sum(axis=1)
        self.points = np.full((count, where.n), np.nan)
        self.evidence = np.full(count, -np.inf)
        self.visited = np.zeros(count, dtype=np.int64)
        self.proved: list[list[tuple[float, np.ndarray]]] = [[] for _ in range(count)]
        self.met: list[list[np.ndarray]] = [[] for _ in range(count)]
        # Decoys lie within `radius` of their words, behind dither of their mean places; estimates behind a PCA are rougher.
        exact = max(SAME, WORD_NOISES * where.noise)
        self.radius = exact + (2 if pca is None else 4) * where.dither * math.sqrt(where.n / 12)

    def run(self, rng: np.random.Generator, *, restarts: int, steps: int, floor: float, spread: float) -> None:
        """Search by noisy reweighted l1 (Eq. V1): weights push the next objective toward coordinates that are small already.

        Arguments are those of `VertexOptions`.
        """
        active, part = np.arange(len(self.points)), self.flats
        for step in range(restarts * steps):
            if step % steps == 0:
                objective = rng.standard_normal((len(active), part.m))
            self._turn_away(active, part, objective)
            # Rounding may have moved d out of the orthant.
            minimum = minimize(part.origin + part.zero, part.basis, objective, box=BOX)
            self.visited[active] += 1
            vertices = part.at(minimum.coefficients)
            self._absorb(active, part, vertices, minimum.status == OPTIMAL)
            weights = np.exp(spread * rng.standard_normal(vertices.shape)) / (np.maximum(vertices, 0) + floor)
            objective = np.matmul(part.basis, weights[..., None])[..., 0]
            wanted = np.array([len(self.proved[row]) < self.wanted for row in active], dtype=bool)
            # No point at all is non-negative: this cannot change.
            wanted &= minimum.status == OPTIMAL
            if not wanted.all():
                active, objective, part = active[wanted], objective[wanted], part.take(wanted)
            if len(active) == 0:
                return

    def confidence(self) -> Float64[np.ndarray, "flats"]:
        """Confidence in each flat's best point: 1 / (1 + expected number of false points as good), or the share of zeros.

        The share is that behind dither, of zeros among the coordinates beyond m.
        """
        if self.flats.dither > 0:
            return np.clip(self.evidence / (self.flats.n - self.flats.m), 0, 1)
        return 1 / (1 + self.visited * 10 ** -np.clip(self.evidence, -300, 300)) * np.isfinite(self.evidence)

    def _turn_away(self, active: np.ndarray, part: Flats, objective: np.ndarray) -> None:
        """Project objectives, in place, to be indifferent between points that are known already, so that another may win."""
        for k, row in enumerate(active):
            known = [point for _, point in self.proved[row]] + self.met[row]
            if len(known) >= 2:
                directions = part.basis[k] @ (np.array(known[1:]) - known[0]).T
                orthonormal = np.linalg.qr(directions)[0]
                objective[k] -= orthonormal @ (orthonormal.T @ objective[k])

    def _absorb(self, active: np.ndarray, part: Flats, vertices: np.ndarray, usable: np.ndarray) -> None:
        """Keep the vertices that are better than before or proved, unless they are decoys or known already."""
        weighed = weigh(part, vertices)
        better = usable & (weighed.evidence > self.evidence[active])
        worth = better | (usable & self._proof(active, weighed))
        fresh = [k for k in np.flatnonzero(worth).tolist() if not self._knows(int(active[k]), weighed.points[k])]
        if not fresh:
            return
        decoy = self._at_words(weighed.points[fresh]) & (weighed.excess[fresh] > 0)
        for k, is_decoy in zip(fresh, decoy, strict=True):
            if is_decoy:
                self.met[active[k]].append(weighed.points[k])
        self._keep(active, part, weighed, np.array(fresh)[~decoy])

    def _keep(self, active: np.ndarray, part: Flats, weighed: PolishedPoints, chosen: np.ndarray) -> None:
        """Update the best and the proved points by the `chosen` rows of `weighed`, whose zeros are counted if independent."""
        if part.dither == 0:
            for k in chosen[weighed.excess[chosen] > 0]:
                zeros = np.abs(weighed.points[k]) < part.zero
                weighed.excess[k] = min(int(weighed.excess[k]), independent_excess(part.basis[k][:, zeros]))
            weighed.evidence[chosen] = evidence(part, weighed.points[chosen], weighed.excess[chosen])
        proof = self._proof(active, weighed)
        for k in chosen:
            row, point, value = active[k], weighed.points[k], float(weighed.evidence[k])
            if value > self.evidence[row] or (proof[k] and not self.proved[row]):
                self.points[row], self.evidence[row] = point, value
            if proof[k]:
                self.proved[row].append((value, point))

    def _proof(self, active: np.ndarray, weighed: PolishedPoints) -> Bool[np.ndarray, "active"]:
        """Mask of the points that Eq. V4, for all vertices visited so far, and unit length prove.

        Every descriptor and every decoy has unit length. Behind dither nothing is proved.
        """
        if self.flats.dither > 0:
            return np.zeros(len(active), dtype=bool)
        unit = np.abs(np.linalg.norm(weighed.points, axis=1) - 1) < self.flats.same
        sure = weighed.evidence - np.log10(self.visited[active]) >= -math.log10(MAX_FALSE)
        return unit & sure & (weighed.excess >= LEAST_EXCESS)

    def _knows(self, row: int, point: Float64[np.ndarray, "n"]) -> bool:
        """Whether the point is a decoy that was met, or proved before."""
        decoys = [self._place(decoy) for decoy in self.met[row]]
        known = [other for _, other in self.proved[row]]
        return _holds(decoys, self._place(point), self.radius) or _holds(known, point, self.flats.same)

    def _place(self, points: Float64[np.ndarray, "*points n"]) -> Float64[np.ndarray, "*points k"]:
        """Points in the coordinates where they are compared with words: behind the PCA, as what it dropped is only guessed."""
        return points if self.axes is None else points @ self.axes.T

    def _at_words(self, points: Float64[np.ndarray, "points n"]) -> Bool[np.ndarray, "points"]:
        """Mask of the points that lie at a word."""
        if len(self.words) == 0 or len(points) == 0:
            return np.zeros(len(points), dtype=bool)
        places = self._place(points)
        squared = (self.squared - 2 * places @ self.words.T).min(axis=1) + np.square(places).sum(axis=1)
        return squared < self.radius**2


def _holds(points: list[np.ndarray], point: np.ndarray, radius: float) -> bool:
    """Whether one of `points` lies within `radius` of `point`."""
    return any(float(np.linalg.norm(other - point)) < radius for other in points)

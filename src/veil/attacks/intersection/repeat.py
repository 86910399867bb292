"""Repeat attack: subspaces or lines of several releases of one feature meet in exactly that feature.

Theory: release.md#memoized-draws, position_attacks.md#repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.positions.segments import focal_px, pixels
from veil.distances import nearest, nearest_two
from veil.errors import InputError, RangeError
from veil.forms import Lines, Subspaces
from veil.geometry.camera import Camera
from veil.progress import Progress
from veil.space import Space, require_same

CHUNK_FEATURES = 256
# Features of two releases of one photograph are at one position.
SAME_PLACE_PX = 1e-3
PairGaps = Callable[[Int64[np.ndarray, "pairs 2"]], Float64[np.ndarray, "pairs"]]


@dataclass(frozen=True, kw_only=True)
class RepeatOptions:
    """Tolerances of the repeat attack.

    `meet` is the greatest root mean square distance of a point to its subspaces at which they count as meeting, in units of
    descriptors, beside what the dither of their space explains (docs/theory/release.md, Eq. 11). Rounding to float16 on the
    wire leaves some 0.0005; subspaces of different descriptors of ImageNet photographs are tens of times further apart.
    `meet_px` is the corresponding distance to lines, in pixels.

    A common point whose distance to a known decoy is at most `decoy`, plus twice the dither's reach, is taken for that decoy.
    `tol` is the smallest eigenvalue of the mean of the complements' projectors at which a point counts as determined;
    `tol_lines` is that of the mean of n n^T, a quarter of the squared angle between two lines.
    """

    meet: float = 2e-3
    meet_px: float = 1e-2
    decoy: float = 1e-2
    tol: float = 1e-6
    tol_lines: float = 1e-9

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if not 0 < value <= 1:
                raise RangeError(f"{name} must be above 0 and at most 1, got {value!r}")


def dither_reach(space: Space) -> float:
    """Distance by which the dither of a space moves a descriptor from its mean (docs/theory/release.md, Eq. 11)."""
    return space.dither_steps / 512 * math.sqrt(space.dim / 12)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recovered:
    """Points nearest to all subspaces or lines of each feature, with the root mean square distances to them (`residual`).

    A residual near 0 certifies that the subspaces meet. `determined` is False where they share a direction, so that more than
    one point is nearest: identical releases share all directions and determine nothing.
    """

    points: Float64[np.ndarray, "features dim"]
    residual: Float64[np.ndarray, "features"]
    determined: Bool[np.ndarray, "features"]

    def estimates(self, *, meet: float, surplus: bool) -> Estimates:
        """Estimates that are decided where the points are determined, and certified where the residual is at most `meet`, too.

        `surplus` says that the equations outnumber the unknowns. Nothing is certified without: meeting then proves nothing.
        """
        points = np.where(self.determined[:, None], self.points, np.nan)
        confidence = np.where(self.determined, 1 / (1 + np.square(self.residual / meet)), 0.0)
        certified = self.determined & (self.residual <= meet) & surplus
        return Estimates(points=points, confidence=confidence, certified=certified)


def intersect(releases: Sequence[Subspaces], *, tol: float = 1e-6, progress: Progress | None = None) -> Recovered:
    """Least-squares common points: row i is the point nearest to the i-th subspaces of all `releases`.

    The point x minimizes sum_k |Q_k (x - o_k)|^2 with Q_k = I - B_k^T B_k, so (sum Q_k) x = sum Q_k o_k = sum o_k for origins
    nearest to zero (docs/theory/release.md, Eq. 2, 10). `tol` is the smallest eigenvalue of the mean of Q_k at which x counts
    as determined. Raises InputError for fewer than two releases or unequal counts, SpaceError for different spaces.
    """
    if len(releases) < 2 or len({len(form) for form in releases}) != 1:
        raise InputError("the repeat attack needs two or more releases of the same features")
    for form in releases[1:]:
        require_same(releases[0].space, form.space)
    count, dim = releases[0].origin.shape
    points, residual, determined = np.empty((count, dim)), np.empty(count), np.empty(count, dtype=bool)
    for start in range(0, count, CHUNK_FEATURES):
        rows = slice(start, min(start + CHUNK_FEATURES, count))
        origins = np.stack([form.origin[rows].astype(np.float64) for form in releases], axis=1)
        bases = [form.basis[rows].astype(np.float64) for form in releases]
        points[rows], determined[rows] = _common(origins, np.concatenate(bases, axis=1), tol)
        outside = points[rows, None] - origins
        for k, basis in enumerate(bases):
            outside[:, k] -= np.einsum("fmn,fm->fn", basis, np.einsum("fmn,fn->fm", basis, outside[:, k]))
        residual[rows] = np.sqrt(np.square(outside).sum(axis=2).mean(axis=1))
        if progress is not None:
            progress(rows.stop, count)
    return Recovered(points=points, residual=residual, determined=determined)


def _common(
    origins: Float64[np.ndarray, "features releases dim"], stacked: Float64[np.ndarray, "features directions dim"], tol: float
) -> tuple[Float64[np.ndarray, "features dim"], Bool[np.ndarray, "features"]]:
    """Least-squares common points, and whether each is determined.

    They are (T I - S^T S)^+ sum o_k, through the small Gram matrix S S^T of all bases, the rows of `stacked`
    (docs/theory/release.md, Eq. 10).
    """
    count = origins.shape[1]
    total = origins.sum(axis=1)
    values, vectors = np.linalg.eigh(stacked @ stacked.transpose(0, 2, 1))
    shared = 1 - values / count <= tol
    along = np.einsum("fdk,fd->fk", vectors, np.einsum("fdn,fn->fd", stacked, total))
    # Along a shared direction the pseudo-inverse is 0, so the 1/T part of the result is subtracted again there.
    factor = np.where(shared, -1 / np.maximum(values, tol), 1 / np.where(shared, 1.0, count - values))
    turned = np.einsum("fdn,fd->fn", stacked, np.einsum("fdk,fk->fd", vectors, along * factor))
    enough = count * stacked.shape[2] - stacked.shape[1] >= stacked.shape[2]
    return (total + turned) / count, ~shared.any(axis=1) & enough


def repeat_descriptors(
    releases: Sequence[Subspaces], *, options: RepeatOptions | None = None, progress: Progress | None = None
) -> Estimates:
    """Estimates of the descriptors from several releases of the same features, with rows in the same order.

    `pair_releases` finds that order. Features are undecided where the releases share directions, as memoized ones do. They are
    certified where the subspaces meet although their dimensions do not force them to (for two releases: 2 m < dim): exactly,
    or in a dithered space to within the dither, which then is what the certificate promises. A decoy that both lifts drew gives
    them the direction from it to the descriptor in common, and leaves the feature undecided.
    """
    options = options or RepeatOptions()
    common = intersect(releases, tol=options.tol, progress=progress)
    space = releases[0].space
    equations = sum(space.dim - form.m for form in releases)
    return common.estimates(meet=options.meet + dither_reach(space), surplus=equations > space.dim)


def pair_releases(
    first: Subspaces,
    second: Subspaces,
    *,
    options: RepeatOptions | None = None,
    decoys: Float[np.ndarray, "words dim"] | None = None,
) -> Int64[np.ndarray, "pairs 2"]:
    """Pairs (row of `first`, row of `second`) of subspaces that meet in a point that is not a known decoy.

    Shuffling does not protect two releases of one image: of all pairs only those of one descriptor, or of one shared decoy, are
    at distance 0. Each row is in at most one pair, the nearest ones first. Pairs that meet in one of `decoys` (in the forms'
    space) are left out. Rows of identical subspaces are paired as well: they say that two features are equal.
    Raises SpaceError if the spaces differ, InputError if the dimensions are so large that any two subspaces meet.

    Theory: distribution_attacks.md#the-intersection-attack, release.md#memoized-draws.
    """
    return pair_with_each(first, [second], options=options, decoys=decoys)[0]


def pair_with_each(
    first: Subspaces,
    others: Sequence[Subspaces],
    *,
    options: RepeatOptions | None = None,
    decoys: Float[np.ndarray, "words dim"] | None = None,
    gaps_px: Sequence[PairGaps | None] = (),
    threads: int = 1,
) -> list[Int64[np.ndarray, "_ 2"]]:
    """Pairs of `pair_releases` of one release with each of `others`; the pool of decoys is searched once for all of them.

    `gaps_px` gives for each of `others` the distances between the positions of some pairs, or None where these are hidden.
    Pairs at different positions are no pairs of one feature, even where both meet in a decoy.
    """
    options = options or RepeatOptions()
    near = [_near_pairs(first, other, options, threads) for other in others]
    allowed = [
        np.ones(len(pairs), dtype=bool) if gap is None else gap(pairs) <= SAME_PLACE_PX
        for (pairs, _), gap in zip(near, gaps_px or [None] * len(near), strict=True)
    ]
    if decoys is not None and near:
        paired = [(first, other, pairs) for other, (pairs, _) in zip(others, near, strict=True)]
        in_decoys = _meet_in_decoys(paired, decoys, options, threads)
        allowed = [fits & ~in_decoy for fits, in_decoy in zip(allowed, in_decoys, strict=True)]
    return [_one_to_one(pairs[kept], distance[kept]) for (pairs, distance), kept in zip(near, allowed, strict=True)]


def _near_pairs(
    first: Subspaces, second: Subspaces, options: RepeatOptions, threads: int
) -> tuple[Int64[np.ndarray, "pairs 2"], Float64[np.ndarray, "pairs"]]:
    """Pairs of subspaces that meet, and their distances, among the two nearest partners of each row.

    One partner would not do: the nearest may share a decoy only, at a distance as near to 0 as that of the descriptor.
    """
    require_same(first.space, second.space)
    if first.m + second.m >= first.space.dim:
        raise InputError(
            f"any two subspaces of dimensions {first.m} and {second.m} meet in {first.space.dim}-D: nothing to pair"
        )
    if min(len(first), len(second)) == 0:
        return np.empty((0, 2), dtype=np.int64), np.empty(0)
    partners = nearest_two((first.origin, first.basis), (second.origin, second.basis), threads=threads)
    left = np.repeat(np.arange(len(first)), 2)
    pairs = np.concatenate(
        [
            np.stack([left, partners.right_of_left.ravel()], axis=1),
            np.stack([partners.left_of_right.ravel(), np.repeat(np.arange(len(second)), 2)], axis=1),
        ]
    )
    distance = np.concatenate([partners.left_distance.ravel(), partners.right_distance.ravel()])
    # The distance of two subspaces is twice the root mean square distance of the middle of their closest points to both.
    near = (distance <= 2 * (options.meet + dither_reach(first.space))) & (pairs >= 0).all(axis=1)
    pairs, keep = np.unique(pairs[near], axis=0, return_index=True)
    return pairs, distance[near][keep]


def _meet_in_decoys(
    paired: Sequence[tuple[Subspaces, Subspaces, Int64[np.ndarray, "_ 2"]]],
    decoys: Float[np.ndarray, "words dim"],
    options: RepeatOptions,
    threads: int,
) -> list[Bool[np.ndarray, "_"]]:
    """Masks of the pairs that meet in a known decoy, one for each entry (first, second, pairs) of `paired`."""
    common = [
        intersect([first.take(pairs[:, 0]), second.take(pairs[:, 1])], tol=options.tol) for first, second, pairs in paired
    ]
    determined = np.concatenate([part.determined for part in common])
    in_decoy = np.zeros(len(determined), dtype=bool)
    points = np.concatenate([part.points for part in common])[determined]
    if len(points) and len(decoys):
        words = nearest((points, None), (np.asarray(decoys, dtype=np.float64), None), 1, threads=threads)
        in_decoy[determined] = words.distance[:, 0] <= options.decoy + 2 * dither_reach(paired[0][0].space)
    return np.split(in_decoy, np.cumsum([len(pairs) for _, _, pairs in paired])[:-1])


def _one_to_one(pairs: Int64[np.ndarray, "pairs 2"], distance: Float64[np.ndarray, "pairs"]) -> Int64[np.ndarray, "kept 2"]:
    """Pairs of a greedy one-to-one assignment: the nearest pairs are taken first, and each row is used once."""
    order = np.lexsort((pairs[:, 1], pairs[:, 0], distance))
    seen: tuple[set[int], set[int]] = set(), set()
    kept = []
    for index in order:
        a, b = int(pairs[index, 0]), int(pairs[index, 1])
        if a not in seen[0] and b not in seen[1]:
            seen[0].add(a)
            seen[1].add(b)
            kept.append(index)
    return pairs[np.sort(np.array(kept, dtype=np.int64))]


def intersect_lines(releases: Sequence[Lines], *, tol: float = 1e-9) -> Recovered:
    """Least-squares common points: row i is the point of the undistorted normalized plane nearest to the i-th lines.

    It minimizes sum_k (n_k . x + c_k)^2 over the i-th lines of all `releases` (docs/theory/position_attacks.md, Eq. 10). `tol`
    is the smallest eigenvalue of the mean of n_k n_k^T at which x counts as determined. Raises InputError for fewer than two
    releases or unequal counts.

    Theory: position_attacks.md#repeats.
    """
    if len(releases) < 2 or len({len(lines) for lines in releases}) != 1:
        raise InputError("the repeat attack needs two or more releases of the same features")
    coefficients = np.stack([lines.coefficients.astype(np.float64) for lines in releases], axis=1)
    normal, offset = coefficients[..., :2], coefficients[..., 2]
    values, vectors = np.linalg.eigh(np.einsum("fti,ftj->fij", normal, normal) / len(releases))
    determined = values[:, 0] > tol
    inverse = np.where(values > tol, 1 / np.where(values > tol, values, 1.0), 0.0)
    right = -np.einsum("fti,ft->fi", normal, offset) / len(releases)
    points = np.einsum("fij,fj->fi", vectors, inverse * np.einsum("fij,fi->fj", vectors, right))
    residual = np.sqrt(np.square(np.einsum("fti,fi->ft", normal, points) + offset).mean(axis=1))
    return Recovered(points=points, residual=residual, determined=determined)


def repeat_positions(releases: Sequence[Lines], *, camera: Camera, options: RepeatOptions | None = None) -> Estimates:
    """Estimated positions (pixels) of keypoints from several releases of lines through them, with rows in the same order.

    The order follows from the descriptors of the same messages (`pair_releases`), or from any matching. Two lines always meet:
    with two releases nothing is certified, and a wrong pair gives a wrong point. Keypoints are undecided where the lines are
    equal, as memoized ones are, and as two lines along gravity are.
    """
    options = options or RepeatOptions()
    common = intersect_lines(releases, tol=options.tol_lines)
    scaled = Recovered(
        points=pixels(common.points, camera), residual=common.residual * focal_px(camera), determined=common.determined
    )
    return scaled.estimates(meet=options.meet_px, surplus=len(releases) > 2)

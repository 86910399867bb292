"""Inlier attack: whoever matches a feature learns its descriptor ([P23] Sec. S3.3).

Whoever holds the map's descriptor e and has matched it to a subspace D takes the point of D that is nearest to e: it is never
further from the hidden descriptor than e itself (docs/theory/release.md, Eq. 5). Where the map is lifted, too, the closest
points of both subspaces estimate both descriptors (Eq. 6). Nothing is certified: a wrong match gives a wrong estimate. Whoever
localizes a release on a map knows which features match which points.

Theory: release.md#matched-features-are-known-to-whoever-matches-them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.attacks.attack import Attempt
from veil.attacks.claims import CannotRun, Estimates
from veil.attacks.target import Target
from veil.errors import InputError, RangeError, Remedy
from veil.forms import Points, Subspaces
from veil.places.poses.answer import NoPose
from veil.places.poses.options import LocalizeOptions
from veil.scene import Scene
from veil.space import require_same

CHUNK_FEATURES = 512


@dataclass(frozen=True, kw_only=True)
class InlierOptions:
    """Options of the inlier attack.

    `on_sphere` looks among the subspace's points of unit length, where the descriptor is unless a PCA moved it (release.md,
    Eq. 12).

    `half_distance` is the distance between D and its match at which the confidence has sunk to one half. `tol` is the smallest
    squared sine of an angle between two subspaces that counts as a direction of its own.
    """

    on_sphere: bool = True
    half_distance: float = 0.4
    tol: float = 1e-9

    def __post_init__(self) -> None:
        if not 0 < self.half_distance < math.inf:
            raise RangeError(f"half_distance must be positive and finite, got {self.half_distance!r}")
        if not 0 < self.tol < 1:
            raise RangeError(f"tol must be between 0 and 1, got {self.tol!r}")


def inlier_points(
    form: Subspaces, matched: Float[np.ndarray, "features dim"], *, options: InlierOptions | None = None
) -> Estimates:
    """Estimates of the descriptors of `form` from the raw descriptors `matched` of a map, in the form's space.

    Row i of `matched` is what feature i was matched to (docs/theory/release.md, Eq. 5); rows of NaN have no match and stay
    undecided. Raises InputError if the shapes disagree.
    """
    options = options or InlierOptions()
    if matched.shape != form.origin.shape:
        raise InputError(
            f"the matched descriptors must have shape {form.origin.shape}, got {matched.shape}; NaN rows have none"
        )
    points, distance = np.full(matched.shape, np.nan), np.full(len(form), np.nan)
    rows = np.flatnonzero(np.isfinite(matched).all(axis=1))
    for part in _parts(rows):
        origin, basis = form.origin[part].astype(np.float64), form.basis[part].astype(np.float64)
        e = matched[part].astype(np.float64)
        inside = np.einsum("fmn,fn->fm", basis, e - origin)
        if options.on_sphere and not form.space.codebook:
            inside = _on_sphere(origin, inside)
        points[part] = origin + np.einsum("fm,fmn->fn", inside, basis)
        distance[part] = np.linalg.norm(points[part] - e, axis=1)
    return _estimates(points, distance, options)


def inlier_subspaces(
    form: Subspaces, matched: Subspaces, *, options: InlierOptions | None = None
) -> tuple[Estimates, Estimates]:
    """Estimates of the descriptors of `form` and of `matched`, whose equal rows are matches: the closest points of each pair.

    Raises InputError if the counts disagree, SpaceError if the spaces do (docs/theory/release.md, Eq. 6).
    """
    options = options or InlierOptions()
    require_same(form.space, matched.space)
    if len(form) != len(matched):
        raise InputError(f"matched subspaces come in pairs of rows, got {len(form)} and {len(matched)}")
    first_points, second_points = np.empty(form.origin.shape), np.empty(form.origin.shape)
    for part in _parts(np.arange(len(form))):
        first = form.origin[part].astype(np.float64), form.basis[part].astype(np.float64)
        second = matched.origin[part].astype(np.float64), matched.basis[part].astype(np.float64)
        a, b = _closest(*first, *second, options.tol)
        if options.on_sphere and not form.space.codebook:
            a, b = _on_sphere(first[0], a), _on_sphere(second[0], b)
        first_points[part] = first[0] + np.einsum("fm,fmn->fn", a, first[1])
        second_points[part] = second[0] + np.einsum("fm,fmn->fn", b, second[1])
    distance = np.linalg.norm(first_points - second_points, axis=1)
    return _estimates(first_points, distance, options), _estimates(second_points, distance, options)


def _closest(
    o: Float64[np.ndarray, "features dim"],
    basis: Float64[np.ndarray, "features m dim"],
    p: Float64[np.ndarray, "features dim"],
    other: Float64[np.ndarray, "features k dim"],
    tol: float,
) -> tuple[Float64[np.ndarray, "features m"], Float64[np.ndarray, "features k"]]:
    """Coefficients of the closest points of two subspaces, of least length where the points are not unique.

    The subspaces have origins `o` and `p` and orthonormal rows `basis` and `other`; squared sines up to `tol` count as 0.

    Theory: distances.md#what-n-is-and-when-it-is-singular.
    """
    gap = p - o
    u, cosine, vt = np.linalg.svd(basis @ other.transpose(0, 2, 1), full_matrices=False)
    # In principal vectors the pairs decouple: a - c b = g, b - c a = h with g, h the gap along each of them.
    g_all, h_all = np.einsum("fmn,fn->fm", basis, gap), -np.einsum("fkn,fn->fk", other, gap)
    g, h = np.einsum("fmr,fm->fr", u, g_all), np.einsum("frk,fk->fr", vt, h_all)
    sine2 = np.maximum(1 - cosine**2, 0)
    shared = sine2 <= tol
    scale = np.where(shared, 0.0, 1 / np.where(shared, 1.0, sine2))
    along = np.where(shared, (g - h) / 4, scale * (g + cosine * h))
    back = np.where(shared, (h - g) / 4, scale * (h + cosine * g))
    # Directions of the larger subspace that have no partner stay as they are.
    a = g_all + np.einsum("fmr,fr->fm", u, along - g)
    b = h_all + np.einsum("frk,fr->fk", vt, back - h)
    return a, b


def _on_sphere(
    origin: Float64[np.ndarray, "features dim"], inside: Float64[np.ndarray, "features m"]
) -> Float64[np.ndarray, "features m"]:
    """Coefficients scaled so that their point of the subspace has unit length; `origin` is orthogonal to the subspace.

    Theory: release.md, Eq. 12; lifting.md#canonical-form.
    """
    radius = np.sqrt(np.maximum(1 - np.square(origin).sum(axis=1), 0))
    length = np.linalg.norm(inside, axis=1)
    return inside * (radius / np.maximum(length, 1e-12))[:, None]


def _parts(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[start : start + CHUNK_FEATURES] for start in range(0, len(rows), CHUNK_FEATURES)]


def _estimates(points: np.ndarray, distance: np.ndarray, options: InlierOptions) -> Estimates:
    known = np.isfinite(points).all(axis=1)
    confidence = np.where(known, 1 / (1 + np.square(np.where(known, distance, 0.0) / options.half_distance)), 0.0)
    return Estimates(points=points, confidence=confidence, certified=np.zeros(len(points), dtype=bool))


def matched_attack(target: Target) -> Attempt:
    """Estimates of the features of `target` that a map localizes, from the map's descriptors of the points that they match.

    Of several observations of a point the one nearest to the subspace is taken. Raises CannotRun without a map or a pose: most
    matches may then be wrong, and nothing tells which.
    """
    from veil.places.poses.by_distance import localize  # loads SciPy and COLMAP

    form, image, scene = target.form, target.image, target.knowledge.scene
    if scene is None:
        raise CannotRun("no map of the place was given", remedy=Remedy("give", "Attacker.where"))
    seen = image.keypoints if image.lines is None else image.lines
    if seen is None or image.camera is None:
        raise CannotRun("the release has neither positions nor lines, so that no map can tell which matches are right")
    with target.timer() as clock:
        options = LocalizeOptions(workers=target.effort.threads, seed=target.effort.seed)
        pose = localize(image.camera, seen, form, scene, codebook=target.knowledge.codebook, options=options)
        if isinstance(pose, NoPose):
            raise CannotRun(f"the map does not localize the release: {pose.reason}")
        estimates = _map_estimates(target, scene, pose.keypoint_rows, pose.point_rows)
    agreeing = int(estimates.decided.sum())
    return Attempt(
        label="inliers",
        rows=target.rows,
        claim=estimates,
        seconds=clock.seconds,
        notes=(f"{agreeing} of {len(target.rows)} features agree with the pose; the map's holder learns these: by design",),
        details={"matched": agreeing / max(len(target.rows), 1)},
    )


def _map_estimates(
    target: Target, scene: Scene, features: Int64[np.ndarray, "inliers"], points: Int64[np.ndarray, "inliers"]
) -> Estimates:
    """Estimates of the attacked features, each from the observation of its point that gives the highest confidence.

    `features` are the rows of the inliers, `points` the rows of their points of the map. Features without a point stay
    undecided.
    """
    form = target.form
    best = Estimates(
        points=np.full(form.origin.shape, np.nan), confidence=np.zeros(len(form)), certified=np.zeros(len(form), dtype=bool)
    )
    order = np.argsort(points, kind="stable")
    for image in scene.images.values():
        place = np.searchsorted(points[order], image.point_rows)
        place = order[np.minimum(place, len(order) - 1)]
        seen = np.flatnonzero(points[place] == image.point_rows)
        rows = features[place[seen]]
        if isinstance(image.form, Points):
            public = target.knowledge.codebook
            brought = image.form if public is None else public.compression.into_space(image.form, form.space)
            estimates = inlier_points(form.take(rows), brought.vectors[seen].astype(np.float64))
        elif isinstance(image.form, Subspaces):
            estimates, _ = inlier_subspaces(form.take(rows), image.form.take(seen))
        else:
            raise CannotRun("the map's descriptors are words, which have no point nearest to a subspace")
        surer = estimates.confidence > best.confidence[rows]
        best.points[rows[surer]], best.confidence[rows[surer]] = estimates.points[surer], estimates.confidence[surer]
    return best.take(target.rows)

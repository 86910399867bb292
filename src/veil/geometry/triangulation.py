"""Robust triangulation of tracks from the planes of their lines: triples of planes, then Gauss-Newton; compiled by numba.

    l_i^T (R_i X + t_i) = 0,   three planes a hypothesis            (Geppert et al. 2020, Sec. 3.2, Eq. 10)

A line agrees if the point is in front of its camera, projects into the image and lies within the limit in pixels; a point
counts with enough such lines, one of them not along gravity, and two rays far enough apart (lines.md#points-and-cameras).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.compiled import compiled
from veil.geometry.bundle.schur import MIN_DEPTH
from veil.threads import shared

MAX_TRIPLES = 60
THREADS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class TrackLines:
    """Observations of tracks, and the cameras that made them: those of track t are rows `starts[t]` to `starts[t + 1]`.

    Only `active` observations take part; `aligned` lines run along gravity. `lines` have unit normals in the normalized plane
    of camera `camera_of`. `rotations` and `translations` are cam_from_world, `focal_px` turns distances of the normalized plane
    into pixels, and projections beyond `half_extent` (normalized, |x| and |y|) are outside the image.
    """

    starts: Int64[np.ndarray, "_"]
    camera_of: Int64[np.ndarray, "_"]
    lines: Float64[np.ndarray, "_ 3"]
    aligned: Bool[np.ndarray, "_"]
    active: Bool[np.ndarray, "_"]
    rotations: Float64[np.ndarray, "_ 3 3"]
    translations: Float64[np.ndarray, "_ 3"]
    focal_px: Float64[np.ndarray, "_"]
    half_extent: Float64[np.ndarray, "_ 2"]


def triangulate_tracks(
    tracks: TrackLines,
    points: Float64[np.ndarray, "tracks 3"],
    known: Bool[np.ndarray, "tracks"],
    *,
    limit_px: float,
    min_lines: int = 4,
    min_angle_deg: float = 1.5,
) -> tuple[Float64[np.ndarray, "tracks 3"], Bool[np.ndarray, "observations"]]:
    """Points of all tracks, and a mask of the observations that agree with their track's point.

    `points[t]` is a further hypothesis where `known[t]`; it comes back unchanged for a track that gets no point, which then has
    no agreeing observation. A line agrees within `limit_px`. A point needs `min_lines` agreeing lines, one of them not along
    gravity, and two rays at least `min_angle_deg` apart.
    """
    triangulated, observed = points.copy(), np.zeros(len(tracks.lines), dtype=np.bool_)
    arrays = _Tracks(**{name: getattr(tracks, name) for name in _Tracks._fields})
    limits = _PointLimits(float(limit_px), min_lines, math.cos(math.radians(min_angle_deg)))
    edges = np.linspace(0, len(tracks.starts) - 1, 4 * THREADS + 1).astype(int).tolist()
    list(shared(lambda part: _triangulate(arrays, limits, known, *part, triangulated, observed), pairwise(edges), THREADS))
    return triangulated, observed


class _Tracks(NamedTuple):
    """The arrays of `TrackLines`, as compiled functions take them."""

    starts: Int64[np.ndarray, "tracks+1"]
    camera_of: Int64[np.ndarray, "observations"]
    lines: Float64[np.ndarray, "observations 3"]
    aligned: Bool[np.ndarray, "observations"]
    active: Bool[np.ndarray, "observations"]
    rotations: Float64[np.ndarray, "cameras 3 3"]
    translations: Float64[np.ndarray, "cameras 3"]
    focal_px: Float64[np.ndarray, "cameras"]
    half_extent: Float64[np.ndarray, "cameras 2"]


class _PointLimits(NamedTuple):
    """Thresholds of a point: distances of agreeing lines, their number, and the cosine of the least angle of two rays."""

    limit_px: float
    min_lines: int
    cosine: float


@compiled
def _distance(line, rotation, translation, focal, extent, x):
    """Pixels from the projection of point `x` (3,) to a line (3,) of one camera; infinite behind it or outside its image."""
    depth = rotation[2, 0] * x[0] + rotation[2, 1] * x[1] + rotation[2, 2] * x[2] + translation[2]
    if depth <= MIN_DEPTH:
        return np.inf
    u = (rotation[0, 0] * x[0] + rotation[0, 1] * x[1] + rotation[0, 2] * x[2] + translation[0]) / depth
    v = (rotation[1, 0] * x[0] + rotation[1, 1] * x[1] + rotation[1, 2] * x[2] + translation[1]) / depth
    if abs(u) > extent[0] or abs(v) > extent[1]:
        return np.inf
    return abs(line[0] * u + line[1] * v + line[2]) * focal


@compiled
def _score(tracks, rows, limit, x):
    """Score of point `x` (3,): sum of 1 - (r / limit)^2 over the lines `rows` that agree (Torr and Zisserman 2000).

    `limit` and the distances r are in pixels.
    """
    camera_of, lines, rotations, translations = tracks.camera_of, tracks.lines, tracks.rotations, tracks.translations
    focal, extent = tracks.focal_px, tracks.half_extent
    total = 0.0
    for k in rows:
        i = camera_of[k]
        r = _distance(lines[k], rotations[i], translations[i], focal[i], extent[i], x) / limit
        if r < 1.0:
            total += 1.0 - r * r
    return total


@compiled
def _solve(a, b, x, tol):
    """Solve a (3, 3) x (3,) = b (3,) by Cramer's rule into `x`; False where |det| is below `tol` for rows of unit length."""
    c0 = a[1, 1] * a[2, 2] - a[1, 2] * a[2, 1]
    c1 = a[1, 2] * a[2, 0] - a[1, 0] * a[2, 2]
    c2 = a[1, 0] * a[2, 1] - a[1, 1] * a[2, 0]
    det = a[0, 0] * c0 + a[0, 1] * c1 + a[0, 2] * c2
    scale = 1.0
    for i in range(3):
        scale *= math.sqrt(a[i, 0] ** 2 + a[i, 1] ** 2 + a[i, 2] ** 2)
    if not abs(det) > tol * scale:
        return False
    x[0] = (b[0] * c0 + b[1] * (a[0, 2] * a[2, 1] - a[0, 1] * a[2, 2]) + b[2] * (a[0, 1] * a[1, 2] - a[0, 2] * a[1, 1])) / det
    x[1] = (b[0] * c1 + b[1] * (a[0, 0] * a[2, 2] - a[0, 2] * a[2, 0]) + b[2] * (a[0, 2] * a[1, 0] - a[0, 0] * a[1, 2])) / det
    x[2] = (b[0] * c2 + b[1] * (a[0, 1] * a[2, 0] - a[0, 0] * a[2, 1]) + b[2] * (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])) / det
    return True


@compiled
def _best_triple(tracks, rows, limit, x, best):
    """Best score of the points of triples of planes, or `best` where none is above it; the point replaces `x` (3,).

    Of the triples of the observations `rows` at most about 60 are tried; `limit` (pixels) is that of `_score`.
    """
    camera_of, lines, rotations, translations = tracks.camera_of, tracks.lines, tracks.rotations, tracks.translations
    normals, offsets, trial = np.empty((3, 3)), np.empty(3), np.empty(3)
    count = len(rows)
    stride = max(1, count * (count - 1) * (count - 2) // 6 // MAX_TRIPLES)
    index = -1
    for a in range(count - 2):
        for b in range(a + 1, count - 1):
            for c in range(b + 1, count):
                index += 1
                if index % stride:
                    continue
                for row, k in enumerate((rows[a], rows[b], rows[c])):
                    i = camera_of[k]
                    offsets[row] = 0.0
                    for d in range(3):
                        offsets[row] -= lines[k, d] * translations[i, d]
                        normals[row, d] = (
                            lines[k, 0] * rotations[i, 0, d]
                            + lines[k, 1] * rotations[i, 1, d]
                            + lines[k, 2] * rotations[i, 2, d]
                        )
                if _solve(normals, offsets, trial, 1e-4):
                    score = _score(tracks, rows, limit, trial)
                    if score > best:
                        best = score
                        x[:] = trial
    return best


@compiled
def _refine(tracks, rows, limit, x):
    """Refine `x` (3,) in place by three Gauss-Newton steps on the lines `rows` within twice `limit` (lines.md, Eq. 14).

    Weights are those of a Cauchy loss of half of `limit` (pixels).
    """
    camera_of, lines, rotations, translations = tracks.camera_of, tracks.lines, tracks.rotations, tracks.translations
    focal, extent = tracks.focal_px, tracks.half_extent
    normal, right, step, g = np.empty((3, 3)), np.empty(3), np.empty(3), np.empty(3)
    for _ in range(3):
        normal[:] = 0.0
        right[:] = 0.0
        for k in rows:
            i = camera_of[k]
            if not _distance(lines[k], rotations[i], translations[i], focal[i], extent[i], x) < 2 * limit:
                continue
            rotation = rotations[i]
            depth = rotation[2, 0] * x[0] + rotation[2, 1] * x[1] + rotation[2, 2] * x[2] + translations[i, 2]
            r = 0.0
            for b in range(3):
                y = rotation[b, 0] * x[0] + rotation[b, 1] * x[1] + rotation[b, 2] * x[2] + translations[i, b]
                r += lines[k, b] * y / depth
            for b in range(3):
                along = lines[k, 0] * rotation[0, b] + lines[k, 1] * rotation[1, b] + (lines[k, 2] - r) * rotation[2, b]
                g[b] = along / depth * focal[i]
            r *= focal[i]
            weight = 1.0 / (1.0 + (2.0 * r / limit) ** 2)
            for b in range(3):
                right[b] -= weight * g[b] * r
                for c in range(3):
                    normal[b, c] += weight * g[b] * g[c]
        if not _solve(normal, right, step, 1e-13):
            return
        for b in range(3):
            x[b] += step[b]


@compiled
def _well_seen(tracks, rows, limits, x):
    """Whether point `x` (3,) has enough agreeing lines `rows`, one not along gravity, and two rays far enough apart."""
    camera_of, rotations, translations = tracks.camera_of, tracks.rotations, tracks.translations
    free, wide = 0, False
    rays = np.empty((len(rows), 3))
    for a in range(len(rows)):
        free += not tracks.aligned[rows[a]]
        i = camera_of[rows[a]]
        length = 0.0
        for b in range(3):
            center = 0.0
            for c in range(3):
                center -= rotations[i, c, b] * translations[i, c]
            rays[a, b] = x[b] - center
            length += rays[a, b] ** 2
        rays[a] /= math.sqrt(length)
        for other in range(a):
            cosine = rays[a, 0] * rays[other, 0] + rays[a, 1] * rays[other, 1] + rays[a, 2] * rays[other, 2]
            wide = wide or cosine < limits.cosine
    return len(rows) >= limits.min_lines and free > 0 and wide


@compiled
def _triangulate(tracks, limits, known, begin, end, points, observed):
    """Write the points of the tracks `begin` to `end` to `points` (tracks, 3), and mark what agrees in `observed`.

    `points[t]` is a hypothesis where `known[t]`, and stays as it is for a track that gets no point. `observed` has a flag for
    each observation.
    """
    camera_of, lines, rotations, translations = tracks.camera_of, tracks.lines, tracks.rotations, tracks.translations
    focal, extent, limit = tracks.focal_px, tracks.half_extent, limits.limit_px
    for t in range(begin, end):
        first, last = tracks.starts[t], tracks.starts[t + 1]
        rows = np.arange(first, last)[tracks.active[first:last]]
        if len(rows) < limits.min_lines:
            continue
        x, best = points[t].copy(), 0.0
        if known[t]:
            best = _score(tracks, rows, limit, x)
        if best < 0.5 * len(rows):  # a point that most of its lines support needs no other hypothesis
            best = _best_triple(tracks, rows, limit, x, best)
        if best <= 0.0:
            continue
        _refine(tracks, rows, limit, x)
        agrees = np.zeros(len(rows), dtype=np.bool_)
        for a in range(len(rows)):
            k = rows[a]
            i = camera_of[k]
            agrees[a] = _distance(lines[k], rotations[i], translations[i], focal[i], extent[i], x) < limit
        if _well_seen(tracks, rows[agrees], limits, x):
            points[t] = x
            for k in rows[agrees]:
                observed[k] = True

"""Points of many tracks from the planes of their lines, robustly: triples of planes, then Gauss-Newton; compiled by numba.

    l_i^T (R_i X + t_i) = 0,   three planes a hypothesis            (Geppert et al. 2020, Sec. 3.2, Eq. 10)

A line agrees if the point is in front of its camera, projects into the image and lies within the limit in pixels; a point
counts with enough such lines, one of them not along gravity, and two rays far enough apart (lines.md#points-and-cameras).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.compiled import compiled
from veil.geometry.bundle.schur import MIN_DEPTH
from veil.threads import shared

MAX_TRIPLES = 60
THREADS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class TrackLines:
    """What triangulation sees: observations of track t are `starts[t]` to `starts[t + 1]`; only `active` ones take part.

    `lines` have unit normals in the normalized plane, `focal_px` turns distances into pixels, and projections beyond
    `half_extent` (normalized) are outside the image.
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
    """(points, which observations agree). `points[t]` is a further hypothesis where `known[t]`; without a point it is kept."""
    found, observed = points.copy(), np.zeros(len(tracks.lines), dtype=np.bool_)
    cameras = tracks.camera_of, tracks.lines, tracks.rotations, tracks.translations, tracks.focal_px, tracks.half_extent
    cosine = math.cos(math.radians(min_angle_deg))

    def part(edges: tuple[int, int]) -> None:
        begin, end = edges
        _triangulate(
            tracks.starts,
            tracks.active,
            tracks.aligned,
            *cameras,
            known,
            limit_px,
            min_lines,
            cosine,
            begin,
            end,
            found,
            observed,
        )

    edges = np.linspace(0, len(tracks.starts) - 1, 4 * THREADS + 1).astype(int).tolist()
    list(shared(part, pairwise(edges), THREADS))
    return found, observed


@compiled
def _distance(line, rotation, translation, focal, extent, x):  # type: ignore[no-untyped-def]
    """Pixels from the projection of x to the line; infinite behind the camera or outside the image."""
    depth = rotation[2, 0] * x[0] + rotation[2, 1] * x[1] + rotation[2, 2] * x[2] + translation[2]
    if depth <= MIN_DEPTH:
        return np.inf
    u = (rotation[0, 0] * x[0] + rotation[0, 1] * x[1] + rotation[0, 2] * x[2] + translation[0]) / depth
    v = (rotation[1, 0] * x[0] + rotation[1, 1] * x[1] + rotation[1, 2] * x[2] + translation[1]) / depth
    if abs(u) > extent[0] or abs(v) > extent[1]:
        return np.inf
    return abs(line[0] * u + line[1] * v + line[2]) * focal


@compiled
def _score(x, rows, camera_of, lines, rotations, translations, focal, extent, limit):  # type: ignore[no-untyped-def]
    """Sum of 1 - (r / limit)^2 over the lines that agree (Torr and Zisserman 2000)."""
    total = 0.0
    for k in rows:
        i = camera_of[k]
        r = _distance(lines[k], rotations[i], translations[i], focal[i], extent[i], x) / limit
        if r < 1.0:
            total += 1.0 - r * r
    return total


@compiled
def _solve(a, b, x, tol):  # type: ignore[no-untyped-def]
    """Cramer's rule for a 3x3 system; False where its determinant is below `tol` for rows of unit length."""
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
def _best_triple(rows, camera_of, lines, rotations, translations, focal, extent, limit, x, best):  # type: ignore[no-untyped-def]
    """Replace x by the point of the best triple of planes if that scores above `best`; at most about 60 are tried."""
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
                    score = _score(trial, rows, camera_of, lines, rotations, translations, focal, extent, limit)
                    if score > best:
                        best = score
                        x[:] = trial
    return best


@compiled
def _refine(rows, camera_of, lines, rotations, translations, focal, extent, limit, x):  # type: ignore[no-untyped-def]
    """Three Gauss-Newton steps on the lines within twice the limit, Cauchy weights of half of it (lines.md, Eq. 14)."""
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
def _well_seen(x, rows, camera_of, aligned, rotations, translations, min_lines, cosine):  # type: ignore[no-untyped-def]
    """Enough agreeing lines, one not along gravity, and two rays at least the angle apart."""
    free, wide = 0, False
    rays = np.empty((len(rows), 3))
    for a in range(len(rows)):
        free += not aligned[rows[a]]
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
            wide = wide or rays[a, 0] * rays[other, 0] + rays[a, 1] * rays[other, 1] + rays[a, 2] * rays[other, 2] < cosine
    return len(rows) >= min_lines and free > 0 and wide


@compiled
def _triangulate(  # type: ignore[no-untyped-def]
    starts, active, aligned, camera_of, lines, rotations, translations, focal, extent, known, limit, min_lines, cosine,
    begin, end, points, observed,
):  # fmt: skip
    for t in range(begin, end):
        rows = np.arange(starts[t], starts[t + 1])[active[starts[t] : starts[t + 1]]]
        if len(rows) < min_lines:
            continue
        x, best = points[t].copy(), 0.0
        if known[t]:
            best = _score(x, rows, camera_of, lines, rotations, translations, focal, extent, limit)
        if best < 0.5 * len(rows):  # a point that most of its lines support needs no other hypothesis
            best = _best_triple(rows, camera_of, lines, rotations, translations, focal, extent, limit, x, best)
        if best <= 0.0:
            continue
        _refine(rows, camera_of, lines, rotations, translations, focal, extent, limit, x)
        agrees = np.zeros(len(rows), dtype=np.bool_)
        for a in range(len(rows)):
            k = rows[a]
            i = camera_of[k]
            agrees[a] = _distance(lines[k], rotations[i], translations[i], focal[i], extent[i], x) < limit
        if _well_seen(x, rows[agrees], camera_of, aligned, rotations, translations, min_lines, cosine):
            points[t] = x
            for k in rows[agrees]:
                observed[k] = True

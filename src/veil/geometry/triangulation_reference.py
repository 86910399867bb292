"""Triangulation of one track in plain NumPy: the slow, obvious reference of `veil.geometry.triangulation`."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float64

MIN_DEPTH = 1e-9


def triangulate_track(
    lines: Float64[np.ndarray, "lines 3"],
    aligned: Bool[np.ndarray, "lines"],
    rotations: Float64[np.ndarray, "lines 3 3"],
    translations: Float64[np.ndarray, "lines 3"],
    focal_px: Float64[np.ndarray, "lines"],
    half_extent: Float64[np.ndarray, "lines 2"],
    *,
    known: Float64[np.ndarray, "3"] | None,
    limit_px: float,
    min_lines: int,
    min_angle_deg: float,
) -> tuple[Float64[np.ndarray, "3"], Bool[np.ndarray, "lines"]] | None:
    """The point of a track and a mask of the lines that agree with it, or None where there is no such point.

    Arguments are those of `veil.geometry.triangulation.TrackLines`, with one row for each line, those of its camera repeated.
    Every triple of planes is tried, unless most lines support the hypothesis `known` already. A line agrees within `limit_px`;
    a point needs `min_lines` agreeing lines, one of them not along gravity, and two rays at least `min_angle_deg` apart.
    """

    def distances(x: np.ndarray) -> np.ndarray:
        """Distances in pixels from the projections of `x` to the lines; infinite behind a camera or outside its image."""
        y = np.einsum("lij,j->li", rotations, x) + translations
        ahead = y[:, 2] > MIN_DEPTH
        projected = y[:, :2] / np.where(ahead, y[:, 2], 1.0)[:, None]
        inside = ahead & (np.abs(projected) <= half_extent).all(axis=1)
        return np.where(inside, np.abs((lines[:, :2] * projected).sum(axis=1) + lines[:, 2]) * focal_px, np.inf)

    def score(x: np.ndarray) -> float:
        """Sum of 1 - (r / limit)^2 over the lines that agree."""
        return float(np.maximum(1 - (np.minimum(distances(x), limit_px) / limit_px) ** 2, 0).sum())

    if len(lines) < min_lines:
        return None
    hypotheses = [] if known is None else [known]
    if known is None or score(known) < 0.5 * len(lines):
        normals, offsets = np.einsum("li,lij->lj", lines, rotations), np.einsum("li,li->l", lines, translations)
        hypotheses += [
            np.linalg.solve(normals[list(rows)], -offsets[list(rows)])
            for rows in combinations(range(len(lines)), 3)
            if _independence(normals[list(rows)]) > 1e-4
        ]
    best = max(hypotheses, key=score, default=None)
    if best is None or score(best) <= 0:
        return None
    for _ in range(3):
        step = _step(best, lines, rotations, translations, focal_px, distances(best) < 2 * limit_px, limit_px)
        if step is None:
            break
        best = best + step
    agrees = distances(best) < limit_px
    rays = best + np.einsum("lji,lj->li", rotations[agrees], translations[agrees])
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    wide = (rays @ rays.T < np.cos(np.deg2rad(min_angle_deg))).any()
    if agrees.sum() < min_lines or not (agrees & ~aligned).any() or not wide:
        return None
    return best, agrees


def _independence(rows: Float64[np.ndarray, "3 3"]) -> float:
    """Absolute determinant of the rows scaled to unit length: 1 for orthogonal rows, 0 for dependent ones."""
    return float(abs(np.linalg.det(rows / np.linalg.norm(rows, axis=1, keepdims=True))))


def _step(
    x: np.ndarray,
    lines: np.ndarray,
    rotations: np.ndarray,
    translations: np.ndarray,
    focal_px: np.ndarray,
    near: np.ndarray,
    limit_px: float,
) -> np.ndarray | None:
    """Gauss-Newton step (3,) on the lines `near`, or None where it is not determined (docs/theory/lines.md, Eq. 12-14).

    Weights are those of a Cauchy loss of half the limit.
    """
    residuals, rows = [], []
    for k in np.flatnonzero(near):
        y = rotations[k] @ x + translations[k]
        r = lines[k] @ y / y[2]
        g = rotations[k].T @ (lines[k] - r * np.array([0, 0, 1])) / y[2]
        root = 1 / np.hypot(1, 2 * r * focal_px[k] / limit_px)
        residuals.append(root * r * focal_px[k])
        rows.append(root * g * focal_px[k])
    if len(rows) < 3:
        return None
    matrix = np.array(rows).T @ np.array(rows)
    if not _independence(matrix) > 1e-13:
        return None
    return np.linalg.solve(matrix, -np.array(rows).T @ np.array(residuals))

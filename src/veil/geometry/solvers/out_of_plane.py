"""Translations along gravity of views 2 to 4 from three or more four-view line tracks (Geppert et al. 2020, Eq. 10-11).

    det [l_i^T R_i, l_i^T t_i] = 0,   i = 1..4

is linear in (t_y2, t_y3, t_y4), because all unknowns stand in the last column. Tracks with three or four gravity-aligned lines
do not constrain them.

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError

MINIMAL_TRACKS = 3


def determinant_rows(
    lines: Float64[np.ndarray, "tracks 4 3"],
    rotations: Float64[np.ndarray, "4 3 3"],
    translations: Float64[np.ndarray, "4 3"],
) -> tuple[Float64[np.ndarray, "tracks 3"], Float64[np.ndarray, "tracks"]]:
    """The linear system (M, b) with M (t_y2, t_y3, t_y4) = b, one row a track.

    `lines` are unit normals in the gravity-aligned camera frames; the y of `translations` is ignored. Rows are scaled by the
    largest product of the three other planes' normals, so residuals are comparable between tracks.
    """
    flat = translations.copy()
    flat[:, 1] = 0.0
    normals = np.einsum("tvi,vij->tvj", lines, rotations)
    cofactors = np.empty(lines.shape[:2])
    for view in range(4):
        others = [v for v in range(4) if v != view]
        cofactors[:, view] = (-1) ** (view + 3) * np.linalg.det(normals[:, others])
    constant = np.einsum("tv,tvi,vi->t", cofactors, lines, flat)
    matrix = cofactors[:, 1:] * lines[:, 1:, 1]
    scale = np.maximum(np.abs(cofactors).max(axis=1), 1e-12)
    return matrix / scale[:, None], -constant / scale


def solve_out_of_plane(
    lines: Float64[np.ndarray, "tracks 4 3"],
    rotations: Float64[np.ndarray, "4 3 3"],
    translations: Float64[np.ndarray, "4 3"],
) -> Float64[np.ndarray, "3"] | None:
    """Least-squares (t_y2, t_y3, t_y4) with t_y1 = 0, or None where the tracks do not determine them.

    `lines` are unit normals in the gravity-aligned camera frames; the y of `translations` is ignored. Raises InputError for
    fewer than three tracks.
    """
    if len(lines) < MINIMAL_TRACKS:
        raise InputError(f"translations along gravity need {MINIMAL_TRACKS} four-view tracks, got {len(lines)}")
    matrix, right = determinant_rows(lines, rotations, translations)
    solution, _, rank, _ = np.linalg.lstsq(matrix, right, rcond=1e-9)
    return solution if rank == 3 else None

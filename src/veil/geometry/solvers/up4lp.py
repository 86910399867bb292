"""The pose of a camera from four lines through the projections of known points, and known gravity, for compiled loops.

Solutions are written into arrays that the caller owns. Tests compare them with the defining equation.
"""

from __future__ import annotations

import math

import numpy as np

from veil.compiled import compiled
from veil.geometry.solvers.vectors import dot, turn_to_y

MAX_POSES = 2


@compiled
def upright_line_poses(lines, points, down_cam, down_world, rotations, translations):
    """Number of poses with lines_i (R points_i + t) = 0 and R down_world = down_cam (docs/theory/words.md, Eq. 17-18).

    The poses (cam_from_world), with all points in front of the camera, are written to the front of `rotations` (2, 3, 3) and
    `translations` (2, 3). `lines` (4, 3) are in the normalized plane, of any scale; `points` (4, 3) are in the world;
    `down_cam` (3,) and `down_world` (3,) are unit vectors.

    R = B Y(angle) A with A, B that turn `down` of world and camera to the y-axis: linear in (cos, sin, t), and without t one
    equation a cos + b sin + c = 0 is left.
    """
    a, b = np.empty((3, 3)), np.empty((3, 3))
    turn_to_y(down_world, a)
    turn_to_y(down_cam, b)
    upright_lines, upright_points = np.empty((4, 3)), np.empty((4, 3))
    for i in range(4):
        upright_lines[i] = b @ lines[i]
        upright_points[i] = a @ points[i]
    turns, count = np.empty((MAX_POSES, 5)), 0
    for k in range(upright_line_turns(upright_lines, upright_points, np.empty((4, 6)), turns)):
        cos, sin = turns[k, 0], turns[k, 1]
        y = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]])
        rotation = b.T @ y @ a
        shift = b.T @ turns[k, 2:]
        ahead = True
        for i in range(4):
            ahead = ahead and dot(rotation[2], points[i]) + shift[2] > 0
        if ahead:
            rotations[count] = rotation
            translations[count] = shift
            count += 1
    return count


@compiled
def upright_line_turns(lines, points, design, turns):
    """Number of turns about gravity with lines_i (Y points_i + t) = 0, as (cos, sin, t) in rows of `turns` (2, 5).

    `lines` (4, 3) and `points` (4, 3) are in frames where down is the y-axis; points may lie behind the camera. `design` (4, 6)
    is overwritten. Y(x, y, z) = (x cos + z sin, y, z cos - x sin) (docs/theory/words.md, Eq. 17-18).
    """
    for i in range(4):
        x, n = points[i], lines[i]
        for j in range(3):
            design[i, j] = n[j]
        design[i, 3] = n[0] * x[0] + n[2] * x[2]
        design[i, 4] = n[0] * x[2] - n[2] * x[0]
        design[i, 5] = n[1] * x[1]
    if not _eliminate(design):
        return 0
    ca, cb, cc = design[3, 3], design[3, 4], design[3, 5]
    radius = math.sqrt(ca * ca + cb * cb)
    if radius < 1e-12 or abs(cc) > radius:
        return 0
    # The angle between (cos, sin) and (ca, cb) has the cosine -cc / radius.
    near, beside = -cc / (radius * radius), math.sqrt(max(0.0, radius * radius - cc * cc)) / (radius * radius)
    for k in range(MAX_POSES):
        sign = 2.0 * k - 1.0
        cos, sin = near * ca - sign * beside * cb, near * cb + sign * beside * ca
        turns[k, 0], turns[k, 1] = cos, sin
        for j in range(2, -1, -1):
            value = design[j, 3] * cos + design[j, 4] * sin + design[j, 5]
            for i in range(j + 1, 3):
                value += design[j, i] * turns[k, 2 + i]
            turns[k, 2 + j] = -value / design[j, j]
    return MAX_POSES


@compiled
def _eliminate(design):
    """Eliminate the first three columns of `design` (4, 6) in place, with row exchange; False if they are dependent."""
    for j in range(3):
        best = j
        for i in range(j + 1, 4):
            if abs(design[i, j]) > abs(design[best, j]):
                best = i
        # Lines along gravity have no y here, but their float32 coefficients leave some 1e-7 of it.
        if abs(design[best, j]) < 1e-6:
            return False
        for k in range(6):
            design[j, k], design[best, k] = design[best, k], design[j, k]
        for i in range(j + 1, 4):
            factor = design[i, j] / design[j, j]
            for k in range(6):
                design[i, k] -= factor * design[j, k]
    return True

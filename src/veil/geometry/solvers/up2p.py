"""The pose of a camera or a rig with known gravity from two points and their rays, for compiled loops.

Kukelova, Bujnak and Pajdla 2010 ("Closed-form solutions to the minimal absolute pose problems with known vertical direction")
solve the same problem for the tangent of half the heading. Tests compare the poses with a scan over all headings, with
PoseLib's P3P and with the defining equations. In a rig the rays begin at two places (docs/theory/sequences.md, Eq. 4-5).

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import math

import numpy as np

from veil.compiled import compiled
from veil.geometry.solvers.vectors import turn_to_y

MAX_POSES = 2
# Two rays whose sines above the horizon are both below this, or points whose horizontal distance is below this share of their
# distance, leave distances or heading open but for noise.
LEAST_SINE = 1e-9


@compiled
def upright_point_distances(first, second, x, y, distances):
    """Number of pairs of distances s_1, s_2 > 0 with s_2 u_2 - s_1 u_1 = Y (y - x) for some turn Y about the y-axis.

    Pairs are written to the front of `distances` (2, 2). `first` and `second` (3,) are the unit rays u_1, u_2 of the points `x`
    and `y` (3,), in frames of camera and world where gravity is the y-axis (docs/theory/words_upright.md, Eq. 1-3).
    """
    return upright_rig_distances(first, second, x, y, (0.0, 0.0, 0.0), distances)


@compiled
def upright_rig_distances(first, second, x, y, apart, distances):
    """Number of pairs of distances s_1, s_2 > 0 with s_2 u_2 - s_1 u_1 + c = Y (y - x) for some turn Y about the y-axis.

    `apart` (3,) is c, from where the ray u_1 begins to where u_2 does, in the upright frame of the rig and units of the world;
    the other arguments are those of `upright_point_distances` (docs/theory/sequences.md, Eq. 4-5).
    """
    height = y[1] - x[1]
    flat = (y[0] - x[0]) ** 2 + (y[2] - x[2]) ** 2
    sines = first[1] * first[1] + second[1] * second[1]
    if not sines > LEAST_SINE * LEAST_SINE or not flat > (LEAST_SINE * height) ** 2:
        return 0
    height = height - apart[1]
    # All (s_1, s_2) with the right height: a start, and steps k along (u_2y, u_1y).
    start_1, start_2 = -height * first[1] / sines, height * second[1] / sines
    a0 = start_2 * second[0] - start_1 * first[0] + apart[0]
    a2 = start_2 * second[2] - start_1 * first[2] + apart[2]
    b0, b2 = first[1] * second[0] - second[1] * first[0], first[1] * second[2] - second[1] * first[2]
    # |a + k b|^2 = flat
    square, half, rest = b0 * b0 + b2 * b2, a0 * b0 + a2 * b2, a0 * a0 + a2 * a2 - flat
    inside = half * half - square * rest
    if not square > LEAST_SINE * LEAST_SINE * sines or not inside >= 0:
        return 0
    count, root = 0, math.sqrt(inside)
    for sign in (-1.0, 1.0):
        k = (sign * root - half) / square
        s_1, s_2 = start_1 + k * second[1], start_2 + k * first[1]
        if s_1 > 0 and s_2 > 0:
            distances[count, 0], distances[count, 1] = s_1, s_2
            count += 1
            if root == 0.0:
                break
    return count


@compiled
def upright_turn(first, second, x, y, s_1, s_2, turn):
    """Write to `turn` (5,) the cosine and sine of Y and the t with s_i u_i = Y x_i + t; arguments as `upright_point_distances`.

    Y (x, y, z) = (x cos + z sin, y, z cos - x sin).
    """
    upright_rig_turn(first, second, x, y, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), s_1, s_2, turn)


@compiled
def upright_rig_turn(first, second, x, y, begin, apart, s_1, s_2, turn):
    """Write to `turn` (5,) the cosine and sine of Y and the t with c_i + s_i u_i = Y x_i + t, as `upright_turn` has them.

    The first ray begins at c_1 = `begin` (3,), the second at `begin` + `apart` (docs/theory/sequences.md, Eq. 5).
    """
    v0, v2 = s_2 * second[0] - s_1 * first[0] + apart[0], s_2 * second[2] - s_1 * first[2] + apart[2]
    d0, d2 = y[0] - x[0], y[2] - x[2]
    length = math.sqrt((v0 * v0 + v2 * v2) * (d0 * d0 + d2 * d2))
    cos, sin = (v0 * d0 + v2 * d2) / length, (v0 * d2 - v2 * d0) / length
    turn[0], turn[1] = cos, sin
    turn[2] = begin[0] + s_1 * first[0] - (cos * x[0] + sin * x[2])
    turn[3] = begin[1] + s_1 * first[1] - x[1]
    turn[4] = begin[2] + s_1 * first[2] - (cos * x[2] - sin * x[0])


@compiled
def upright_point_poses(rays, points, down_cam, down_world, rotations, translations):
    """Number of poses with s_i rays_i = R points_i + t, s_i > 0, and R down_world = down_cam.

    The poses (cam_from_world) are written to the front of `rotations` (2, 3, 3) and `translations` (2, 3). Rows of `rays`
    (2, 3) are unit vectors in the camera, rows of `points` (2, 3) are in the world; `down_cam` and `down_world` (3,) are unit
    vectors (docs/theory/words_upright.md, Eq. 1-4).
    """
    a, b = np.empty((3, 3)), np.empty((3, 3))
    turn_to_y(down_world, a)
    turn_to_y(down_cam, b)
    first, second, x, y = b @ rays[0], b @ rays[1], a @ points[0], a @ points[1]
    distances, turn = np.empty((MAX_POSES, 2)), np.empty(5)
    count = upright_point_distances(first, second, x, y, distances)
    for k in range(count):
        upright_turn(first, second, x, y, distances[k, 0], distances[k, 1], turn)
        heading = np.array([[turn[0], 0.0, turn[1]], [0.0, 1.0, 0.0], [-turn[1], 0.0, turn[0]]])
        rotations[k] = b.T @ heading @ a
        translations[k] = b.T @ turn[2:]
    return count


@compiled
def upright_rig_poses(centers, rays, points, down_rig, down_world, rotations, translations):
    """Number of poses with centers_i + s_i rays_i = R points_i + t, s_i > 0, and R down_world = down_rig (gP2P).

    The poses (rig_from_world) are written to the front of `rotations` (2, 3, 3) and `translations` (2, 3). Rows of `centers`
    (2, 3), where the rays begin, are in the rig and in units of the world; the other arguments are those of
    `upright_point_poses` (docs/theory/sequences.md, Eq. 4-5).
    """
    a, b = np.empty((3, 3)), np.empty((3, 3))
    turn_to_y(down_world, a)
    turn_to_y(down_rig, b)
    first, second, x, y = b @ rays[0], b @ rays[1], a @ points[0], a @ points[1]
    start, apart = b @ centers[0], b @ (centers[1] - centers[0])
    distances, turn = np.empty((MAX_POSES, 2)), np.empty(5)
    count = upright_rig_distances(first, second, x, y, apart, distances)
    for k in range(count):
        upright_rig_turn(first, second, x, y, start, apart, distances[k, 0], distances[k, 1], turn)
        cos, sin = turn[0], turn[1]
        heading = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]])
        rotations[k] = b.T @ heading @ a
        translations[k] = b.T @ turn[2:]
    return count

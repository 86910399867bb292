"""The inner loops of bundle adjustment from lines, compiled by numba: Jacobians, reduced camera system, point steps, cost.

The formulas are docs/theory/lines.md, Eq. 12-22. Rotations and translations are cam_from_world, in the map's unit of length;
lines, residuals and losses are in pixels. A loop serves the points `begin` to `end`, so that threads can share the work.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.compiled import compiled

MIN_DEPTH = 1e-9
# How often the step of a point that would end behind a camera is halved before the point stays where it is.
HALVINGS = 10
# Columns of a row of the Jacobian: derivative by camera, derivative by point, residual.
CAMERA, POINT, RESIDUAL = 0, 6, 9
ROW = 10


class Cameras(NamedTuple):
    """Poses of all cameras (cam_from_world)."""

    rotations: Float64[np.ndarray, "cameras 3 3"]
    translations: Float64[np.ndarray, "cameras 3"]


class Observations(NamedTuple):
    """Lines that cameras see of points, sorted by point: those of point j are rows `starts[j]` to `starts[j + 1]`.

    `lines[k]` = K^T l_pix with l_pix of unit normal, seen by camera `camera_of[k]`.
    """

    lines: Float64[np.ndarray, "observations 3"]
    camera_of: Int64[np.ndarray, "observations"]
    starts: Int64[np.ndarray, "points+1"]


class Jacobian(NamedTuple):
    """The linearized problem, one row an observation (Eq. 17): blocks of the normal equations are products of rows.

    A row holds, times the root of the observation's robust weight, the derivatives by camera (turn, then translation) and by
    point, and the residual. `free_camera` is the camera's index among the free ones, -1 for a constant camera; `held` marks
    constant points; `starts` delimits the rows of each point.
    """

    rows: Float64[np.ndarray, "observations 10"]
    starts: Int64[np.ndarray, "points+1"]
    free_camera: Int64[np.ndarray, "observations"]
    held: Bool[np.ndarray, "points"]


@compiled
def residual(rotation, translation, x, line):
    """Signed distance (pixels) of point `x` (3,) from a line (3,) in one camera (Eq. 12); infinite behind the camera."""
    y0 = rotation[0, 0] * x[0] + rotation[0, 1] * x[1] + rotation[0, 2] * x[2] + translation[0]
    y1 = rotation[1, 0] * x[0] + rotation[1, 1] * x[1] + rotation[1, 2] * x[2] + translation[1]
    y2 = rotation[2, 0] * x[0] + rotation[2, 1] * x[1] + rotation[2, 2] * x[2] + translation[2]
    return (line[0] * y0 + line[1] * y1 + line[2] * y2) / y2 if y2 > MIN_DEPTH else np.inf


@compiled
def residuals(cameras, points, lines, camera_of, point_of):
    """Residuals (observations,) in pixels of points (points, 3); observation k is of point `point_of[k]` (Eq. 12)."""
    rotations, translations = cameras.rotations, cameras.translations
    out = np.empty(len(lines))
    for k in range(len(lines)):
        i = camera_of[k]
        out[k] = residual(rotations[i], translations[i], points[point_of[k]], lines[k])
    return out


@compiled
def point_cost(cameras, x, observations, loss, j):
    """Robust cost (px^2) of the observations of point j at `x` (3,), Eq. 13; infinite if `x` is behind one of its cameras.

    `loss` is the scale of the Cauchy loss in pixels; infinity means least squares.
    """
    rotations, translations = cameras.rotations, cameras.translations
    lines, camera_of, starts = observations.lines, observations.camera_of, observations.starts
    total = 0.0
    for k in range(starts[j], starts[j + 1]):
        i = camera_of[k]
        r = residual(rotations[i], translations[i], x, lines[k])
        if not math.isfinite(r):
            return np.inf
        total += r * r if math.isinf(loss) else loss * loss * math.log1p((r / loss) ** 2)
    return 0.5 * total


@compiled
def cost(cameras, points, fallback, observations, loss, begin, end):
    """Robust cost (px^2) of the points `begin` to `end` (Eq. 13).

    A point behind a camera is first moved back, in place, from `points` (points, 3) toward its place in `fallback` (points, 3).
    """
    total = 0.0
    for j in range(begin, end):
        value = point_cost(cameras, points[j], observations, loss, j)
        if math.isinf(value):
            kept = point_cost(cameras, fallback[j], observations, loss, j)
            for _ in range(HALVINGS):
                points[j] = 0.5 * (points[j] + fallback[j])
                value = point_cost(cameras, points[j], observations, loss, j)
                if value <= kept:
                    break
            if not value <= kept:
                points[j], value = fallback[j], kept
        total += value
    return total


@compiled
def fill_rows(cameras, points, observations, loss, rows, begin, end):
    """Write the Jacobian's rows (observations, 10) of the points `begin` to `end` at the given state (Eq. 14-17)."""
    rotations, translations = cameras.rotations, cameras.translations
    lines, camera_of, starts = observations.lines, observations.camera_of, observations.starts
    rx, g = np.empty(3), np.empty(3)
    for j in range(begin, end):
        x = points[j]
        for k in range(starts[j], starts[j + 1]):
            rotation, translation, line, row = rotations[camera_of[k]], translations[camera_of[k]], lines[k], rows[k]
            dot = 0.0
            for a in range(3):
                rx[a] = rotation[a, 0] * x[0] + rotation[a, 1] * x[1] + rotation[a, 2] * x[2]
                dot += line[a] * (rx[a] + translation[a])
            scale = 1.0 / (rx[2] + translation[2])
            r = dot * scale
            root = 1.0 / math.sqrt(1.0 + (r / loss) ** 2)
            scale *= root
            g[0], g[1], g[2] = line[0] * scale, line[1] * scale, (line[2] - r) * scale
            row[0] = rx[1] * g[2] - rx[2] * g[1]
            row[1] = rx[2] * g[0] - rx[0] * g[2]
            row[2] = rx[0] * g[1] - rx[1] * g[0]
            for a in range(3):
                row[3 + a] = g[a]
                row[POINT + a] = rotation[0, a] * g[0] + rotation[1, a] * g[1] + rotation[2, a] * g[2]
            row[RESIDUAL] = root * r


@compiled
def shared_points(free_camera, starts, held, cameras):
    """Mask (cameras, cameras), i >= h, of free cameras that see a common point that is not held; true on the diagonal."""
    shared = np.eye(cameras) > 0
    for j in range(len(starts) - 1):
        if held[j]:
            continue
        for k in range(starts[j], starts[j + 1]):
            for m in range(starts[j], k):
                i, h = free_camera[k], free_camera[m]
                if i >= 0 and h >= 0:
                    shared[max(i, h), min(i, h)] = True
    return shared


@compiled
def damped_factor(rows, first, last, damping, factors, j):
    """Write the factor L of point j to `factors[j]`: L L^T = V + damping diag V, V the sum of b b^T over its rows (Eq. 18).

    L is stored as (00, 10, 11, 20, 21, 22), its diagonal inverted; a small floor holds weak directions.
    """
    v00, v10, v11, v20, v21, v22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(first, last):
        a, b, c = rows[k, POINT], rows[k, POINT + 1], rows[k, POINT + 2]
        v00 += a * a
        v10 += b * a
        v11 += b * b
        v20 += c * a
        v21 += c * b
        v22 += c * c
    floor = 1e-12 * max(v00 + v11 + v22, 1e-12)
    more = 1.0 + damping
    d0 = 1.0 / math.sqrt(v00 * more + floor)
    l10, l20 = v10 * d0, v20 * d0
    d1 = 1.0 / math.sqrt(max(v11 * more + floor - l10 * l10, floor))
    l21 = (v21 - l20 * l10) * d1
    d2 = 1.0 / math.sqrt(max(v22 * more + floor - l20 * l20 - l21 * l21, floor))
    factors[j, 0], factors[j, 1], factors[j, 2] = d0, l10, d1
    factors[j, 3], factors[j, 4], factors[j, 5] = l20, l21, d2


@compiled
def forward(factors, j, a, b, c):
    """The vector L^-1 (a, b, c) with the factor L of point j from `factors` (points, 6)."""
    x = a * factors[j, 0]
    y = (b - factors[j, 1] * x) * factors[j, 2]
    return x, y, (c - factors[j, 3] * x - factors[j, 4] * y) * factors[j, 5]


@compiled
def backward(factors, j, a, b, c):
    """The vector L^-T (a, b, c) with the factor L of point j from `factors` (points, 6)."""
    z = c * factors[j, 5]
    y = (b - factors[j, 4] * z) * factors[j, 2]
    return (a - factors[j, 1] * y - factors[j, 3] * z) * factors[j, 0], y, z


@compiled
def point_gradient(rows, first, last):
    """Gradient of the cost by a point: the sum of b e over its rows `first` to `last` (Eq. 17 and 21)."""
    x, y, z = 0.0, 0.0, 0.0
    for k in range(first, last):
        r = rows[k, RESIDUAL]
        x += rows[k, POINT] * r
        y += rows[k, POINT + 1] * r
        z += rows[k, POINT + 2] * r
    return x, y, z


@compiled
def subtract_outer(blocks, slot, scale, rows, left, right):
    """Subtract scale * outer(a_left, a_right) from `blocks[slot]` (6, 6), with a the camera's part of a row (Eq. 19)."""
    for a in range(6):
        scaled = scale * rows[left, a]
        for b in range(6):
            blocks[slot, a, b] -= scaled * rows[right, b]


@compiled
def reduce(jacobian, slots, pairs, damping, factors, begin, end):
    """Share of the reduced camera system that the points `begin` to `end` contribute (Eq. 18-20).

    Returns the blocks (pairs, 6, 6), not damped, that of free cameras i >= h at `slots[i, h]`; the right side (cameras, 6); and
    the undamped diagonal (cameras, 6). The points' factors are written to `factors` (points, 6).
    """
    rows, starts, camera, held = jacobian.rows, jacobian.starts, jacobian.free_camera, jacobian.held
    cameras, longest = len(slots), 0
    for j in range(begin, end):
        longest = max(longest, starts[j + 1] - starts[j])
    blocks, right, diagonal = np.zeros((pairs, 6, 6)), np.zeros((cameras, 6)), np.zeros((cameras, 6))
    p = np.zeros((longest, 3))
    for j in range(begin, end):
        first, last = starts[j], starts[j + 1]
        z0, z1, z2 = 0.0, 0.0, 0.0
        if held[j]:
            p[: last - first] = 0.0
        else:
            damped_factor(rows, first, last, damping, factors, j)
            g0, g1, g2 = point_gradient(rows, first, last)
            z0, z1, z2 = forward(factors, j, g0, g1, g2)
        for k in range(first, last):
            i, n = camera[k], k - first
            if i < 0:
                continue
            if not held[j]:
                p[n, 0], p[n, 1], p[n, 2] = forward(factors, j, rows[k, POINT], rows[k, POINT + 1], rows[k, POINT + 2])
            p0, p1, p2 = p[n, 0], p[n, 1], p[n, 2]
            pull = rows[k, RESIDUAL] - (p0 * z0 + p1 * z1 + p2 * z2)
            for a in range(6):
                right[i, a] -= rows[k, a] * pull
                diagonal[i, a] += rows[k, a] * rows[k, a]
            subtract_outer(blocks, slots[i, i], p0 * p0 + p1 * p1 + p2 * p2 - 1.0, rows, k, k)
            if held[j]:
                continue
            for m in range(first, k):
                h, n = camera[m], m - first
                if h < 0:
                    continue
                scale = p0 * p[n, 0] + p1 * p[n, 1] + p2 * p[n, 2]
                if i >= h:
                    subtract_outer(blocks, slots[i, h], scale, rows, k, m)
                if h >= i:
                    subtract_outer(blocks, slots[h, i], scale, rows, m, k)
    return blocks, right, diagonal


@compiled
def point_steps(jacobian, factors, camera_step, out, begin, end):
    """Predicted decrease (px^2) of the cost of the points `begin` to `end`, after back-substitution (Eq. 21-22).

    `camera_step` (cameras, 6) is the step of the free cameras; steps of points are written to `out` (points, 3).
    """
    rows, starts, camera, held = jacobian.rows, jacobian.starts, jacobian.free_camera, jacobian.held
    decrease = 0.0
    for j in range(begin, end):
        first, last = starts[j], starts[j + 1]
        x, y, z = 0.0, 0.0, 0.0
        for k in range(first, last):
            change = rows[k, RESIDUAL]
            if camera[k] >= 0:
                for a in range(6):
                    change += rows[k, a] * camera_step[camera[k], a]
            x += rows[k, POINT] * change
            y += rows[k, POINT + 1] * change
            z += rows[k, POINT + 2] * change
        if held[j]:
            x, y, z = 0.0, 0.0, 0.0
        else:
            x, y, z = backward(factors, j, *forward(factors, j, x, y, z))
        out[j, 0], out[j, 1], out[j, 2] = -x, -y, -z
        for k in range(first, last):
            change = -(rows[k, POINT] * x + rows[k, POINT + 1] * y + rows[k, POINT + 2] * z)
            if camera[k] >= 0:
                for a in range(6):
                    change += rows[k, a] * camera_step[camera[k], a]
            decrease -= change * (rows[k, RESIDUAL] + 0.5 * change)
    return decrease


@compiled
def moved_cameras(rotations, translations, free, step):
    """Rotations and translations of all cameras after a step: R <- exp(omega) R by Rodrigues' formula, and t <- t + dt.

    `step` (free, 6) holds (omega, dt), omega in radians, for each camera that `free` (free,) lists; others stay as they are.
    """
    rotations, translations, cross = rotations.copy(), translations.copy(), np.zeros((3, 3))
    for n in range(len(free)):
        x, y, z = step[n, 0], step[n, 1], step[n, 2]
        angle = math.sqrt(x * x + y * y + z * z)
        first = math.sin(angle) / angle if angle > 0 else 1.0
        second = 2 * (math.sin(0.5 * angle) / angle) ** 2 if angle > 0 else 0.5
        cross[0, 1], cross[0, 2], cross[1, 0], cross[1, 2], cross[2, 0], cross[2, 1] = -z, y, z, -x, -y, x
        once = cross @ rotations[free[n]]
        rotations[free[n]] += first * once + second * (cross @ once)
        translations[free[n]] += step[n, 3:]
    return rotations, translations

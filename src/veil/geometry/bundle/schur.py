"""The inner loops of bundle adjustment from lines, compiled by numba: Jacobians, reduced camera system, point steps, cost.

Shapes and meaning are those of `veil.geometry.bundle.adjustment`. Each loop serves the points `begin` to `end`, so that threads
can share the work; `starts` delimits each point's observations, `camera` is the index among the free cameras (-1 for constant
ones), `held` marks constant points, and `rows` holds, for each observation and times the root of its robust weight, the
derivatives by camera (6) and point (3) and the residual. A row is all there is to an observation: its blocks are products of
rows.
"""

from __future__ import annotations

import math

import numpy as np

from veil.compiled import compiled

MIN_DEPTH = 1e-9
# How often the step of a point that would end behind a camera is halved before the point stays where it is.
HALVINGS = 10
# Rows of an observation: derivative by camera, derivative by point, residual.
CAMERA, POINT, RESIDUAL = 0, 6, 9
ROW = 10


@compiled
def residual(rotation, translation, x, line):  # type: ignore[no-untyped-def]
    """Eq. 12; infinite behind the camera."""
    y0 = rotation[0, 0] * x[0] + rotation[0, 1] * x[1] + rotation[0, 2] * x[2] + translation[0]
    y1 = rotation[1, 0] * x[0] + rotation[1, 1] * x[1] + rotation[1, 2] * x[2] + translation[1]
    y2 = rotation[2, 0] * x[0] + rotation[2, 1] * x[1] + rotation[2, 2] * x[2] + translation[2]
    return (line[0] * y0 + line[1] * y1 + line[2] * y2) / y2 if y2 > MIN_DEPTH else np.inf


@compiled
def residuals(rotations, translations, points, lines, camera_of, point_of):  # type: ignore[no-untyped-def]
    out = np.empty(len(lines))
    for k in range(len(lines)):
        i = camera_of[k]
        out[k] = residual(rotations[i], translations[i], points[point_of[k]], lines[k])
    return out


@compiled
def point_cost(rotations, translations, x, lines, camera_of, loss, first, last):  # type: ignore[no-untyped-def]
    """Eq. 13 over the observations of one point; infinite if one of them is behind its camera."""
    total = 0.0
    for k in range(first, last):
        i = camera_of[k]
        r = residual(rotations[i], translations[i], x, lines[k])
        if not math.isfinite(r):
            return np.inf
        total += r * r if math.isinf(loss) else loss * loss * math.log1p((r / loss) ** 2)
    return 0.5 * total


@compiled
def cost(rotations, translations, points, fallback, lines, camera_of, starts, loss, begin, end):  # type: ignore[no-untyped-def]
    """Sum over the points; one that is behind a camera is first moved back toward `fallback`, in place."""
    total = 0.0
    for j in range(begin, end):
        first, last = starts[j], starts[j + 1]
        value = point_cost(rotations, translations, points[j], lines, camera_of, loss, first, last)
        if math.isinf(value):
            kept = point_cost(rotations, translations, fallback[j], lines, camera_of, loss, first, last)
            for _ in range(HALVINGS):
                points[j] = 0.5 * (points[j] + fallback[j])
                value = point_cost(rotations, translations, points[j], lines, camera_of, loss, first, last)
                if value <= kept:
                    break
            if not value <= kept:
                points[j], value = fallback[j], kept
        total += value
    return total


@compiled
def fill_rows(rotations, translations, points, lines, camera_of, starts, loss, rows, begin, end):  # type: ignore[no-untyped-def]
    """Eq. 14-17."""
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
def shared_points(camera, starts, held, cameras):  # type: ignore[no-untyped-def]
    """Which pairs of free cameras (first >= second) see a common point that is not held, and each camera with itself."""
    shared = np.eye(cameras) > 0
    for j in range(len(starts) - 1):
        if held[j]:
            continue
        for k in range(starts[j], starts[j + 1]):
            for m in range(starts[j], k):
                i, h = camera[k], camera[m]
                if i >= 0 and h >= 0:
                    shared[max(i, h), min(i, h)] = True
    return shared


@compiled
def damped_factor(rows, first, last, damping, factors, j):  # type: ignore[no-untyped-def]
    """L with L L^T = V + damping diag V as (00, 10, 11, 20, 21, 22), diagonal inverted; a small floor holds weak directions."""
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
def forward(factors, j, a, b, c):  # type: ignore[no-untyped-def]
    """L^-1 (a, b, c)."""
    x = a * factors[j, 0]
    y = (b - factors[j, 1] * x) * factors[j, 2]
    return x, y, (c - factors[j, 3] * x - factors[j, 4] * y) * factors[j, 5]


@compiled
def backward(factors, j, a, b, c):  # type: ignore[no-untyped-def]
    """L^-T (a, b, c)."""
    z = c * factors[j, 5]
    y = (b - factors[j, 4] * z) * factors[j, 2]
    return (a - factors[j, 1] * y - factors[j, 3] * z) * factors[j, 0], y, z


@compiled
def point_gradient(rows, first, last):  # type: ignore[no-untyped-def]
    x, y, z = 0.0, 0.0, 0.0
    for k in range(first, last):
        r = rows[k, RESIDUAL]
        x += rows[k, POINT] * r
        y += rows[k, POINT + 1] * r
        z += rows[k, POINT + 2] * r
    return x, y, z


@compiled
def subtract_outer(blocks, slot, scale, rows, left, right):  # type: ignore[no-untyped-def]
    """blocks[slot] -= scale * outer(rows[left], rows[right]) over the camera's part of the rows."""
    for a in range(6):
        scaled = scale * rows[left, a]
        for b in range(6):
            blocks[slot, a, b] -= scaled * rows[right, b]


@compiled
def reduce(rows, starts, camera, held, slots, pairs, damping, factors, begin, end):  # type: ignore[no-untyped-def]
    """This range's share of the reduced camera system: blocks, right side and undamped diagonal (Eq. 18-20)."""
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
def point_steps(rows, starts, camera, held, factors, camera_step, out, begin, end):  # type: ignore[no-untyped-def]
    """Back-substitution into `out`; returns by how much the linear model of these points' cost decreases (Eq. 21-22)."""
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
def moved_cameras(rotations, translations, free, step):  # type: ignore[no-untyped-def]
    """R <- exp(omega) R by Rodrigues' formula and t <- t + dt; `step` holds (omega, dt) of each camera that `free` lists."""
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

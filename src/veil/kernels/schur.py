"""The inner loops of bundle adjustment from lines, compiled by numba: residuals, normal blocks, Schur complement.

Shapes and meaning are those of `veil.kernels.bundle`; `camera` is the index among the free cameras, -1 for constant ones, and
`starts` delimits each point's observations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

MIN_DEPTH = 1e-9


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled on first use and kept on disk; below whatever type checks a test run puts around the function."""
    return numba.njit(cache=True)(inspect.unwrap(function))


@compiled
def residuals(rotations, translations, points, lines, camera_of, point_of):  # type: ignore[no-untyped-def]
    out = np.empty(len(lines))
    for k in range(len(lines)):
        rotation, x = rotations[camera_of[k]], points[point_of[k]]
        translation, line = translations[camera_of[k]], lines[k]
        dot, depth = 0.0, 0.0
        for a in range(3):
            value = translation[a]
            for b in range(3):
                value += rotation[a, b] * x[b]
            dot += line[a] * value
            if a == 2:
                depth = value
        out[k] = dot / depth if depth > MIN_DEPTH else np.inf
    return out


@compiled
def normal_blocks(rotations, translations, points, lines, camera_of, point_of, free, cameras, loss):  # type: ignore[no-untyped-def]
    u = np.zeros((cameras, 6, 6))
    v = np.zeros((len(points), 3, 3))
    w = np.zeros((len(lines), 6, 3))
    camera_gradient = np.zeros((cameras, 6))
    point_gradient = np.zeros((len(points), 3))
    jc, jp, rx, g = np.empty(6), np.empty(3), np.empty(3), np.empty(3)
    for k in range(len(lines)):
        rotation, x = rotations[camera_of[k]], points[point_of[k]]
        dot = 0.0
        for a in range(3):
            rx[a] = rotation[a, 0] * x[0] + rotation[a, 1] * x[1] + rotation[a, 2] * x[2]
            dot += lines[k, a] * (rx[a] + translations[camera_of[k], a])
        depth = rx[2] + translations[camera_of[k], 2]
        r = dot / depth
        weight = 1.0 / (1.0 + (r / loss) ** 2)
        for a in range(3):
            g[a] = lines[k, a] / depth
        g[2] -= r / depth
        for a in range(3):
            jp[a] = rotation[0, a] * g[0] + rotation[1, a] * g[1] + rotation[2, a] * g[2]
            jc[3 + a] = g[a]
        jc[0] = rx[1] * g[2] - rx[2] * g[1]
        jc[1] = rx[2] * g[0] - rx[0] * g[2]
        jc[2] = rx[0] * g[1] - rx[1] * g[0]
        j, i = point_of[k], free[camera_of[k]]
        for a in range(3):
            point_gradient[j, a] += weight * r * jp[a]
            for b in range(3):
                v[j, a, b] += weight * jp[a] * jp[b]
        if i >= 0:
            for a in range(6):
                camera_gradient[i, a] += weight * r * jc[a]
                for b in range(6):
                    u[i, a, b] += weight * jc[a] * jc[b]
                for b in range(3):
                    w[k, a, b] = weight * jc[a] * jp[b]
    return u, v, w, camera_gradient, point_gradient


@compiled
def coupled_right(w, inverse, point_gradient, point_of, camera, cameras):  # type: ignore[no-untyped-def]
    out = np.zeros((cameras, 6))
    for k in range(len(w)):
        if camera[k] < 0:
            continue
        j = point_of[k]
        for a in range(6):
            total = 0.0
            for b in range(3):
                inner = 0.0
                for c in range(3):
                    inner += inverse[j, b, c] * point_gradient[j, c]
                total += w[k, a, b] * inner
            out[camera[k], a] += total
    return out


@compiled
def dense_schur(u, w, inverse, starts, camera):  # type: ignore[no-untyped-def]
    """U - sum over points of W V^-1 W^T; only the lower triangle is filled."""
    cameras = len(u)
    reduced = np.zeros((6 * cameras, 6 * cameras))
    for i in range(cameras):
        reduced[6 * i : 6 * i + 6, 6 * i : 6 * i + 6] = u[i]
    y = np.empty((6, 3))
    for j in range(len(inverse)):
        for k in range(starts[j], starts[j + 1]):
            if camera[k] < 0:
                continue
            for a in range(6):
                for b in range(3):
                    y[a, b] = w[k, a, 0] * inverse[j, 0, b] + w[k, a, 1] * inverse[j, 1, b] + w[k, a, 2] * inverse[j, 2, b]
            row = 6 * camera[k]
            for other in range(starts[j], starts[j + 1]):
                if camera[other] < 0 or camera[other] > camera[k]:
                    continue
                column = 6 * camera[other]
                for a in range(6):
                    for b in range(6):
                        reduced[row + a, column + b] -= (
                            y[a, 0] * w[other, b, 0] + y[a, 1] * w[other, b, 1] + y[a, 2] * w[other, b, 2]
                        )
    return reduced


@compiled
def sparse_schur(u, w, inverse, starts, camera):  # type: ignore[no-untyped-def]
    """The same sum as a list of (row, column, block), duplicates not yet added up."""
    total = len(u)
    for j in range(len(inverse)):
        seen = 0
        for k in range(starts[j], starts[j + 1]):
            seen += camera[k] >= 0
        total += seen * seen
    rows, columns, blocks = np.empty(total, np.int64), np.empty(total, np.int64), np.empty((total, 6, 6))
    place = len(u)
    for i in range(len(u)):
        rows[i], columns[i], blocks[i] = i, i, u[i]
    for j in range(len(inverse)):
        for k in range(starts[j], starts[j + 1]):
            if camera[k] < 0:
                continue
            y = w[k] @ inverse[j]
            for other in range(starts[j], starts[j + 1]):
                if camera[other] >= 0:
                    rows[place], columns[place] = camera[k], camera[other]
                    blocks[place] = -y @ w[other].T
                    place += 1
    return rows, columns, blocks


@compiled
def back_substitute(w, inverse, point_gradient, starts, camera, camera_step):  # type: ignore[no-untyped-def]
    """Point steps -V^-1 (gradient + W^T camera_step)."""
    out = np.empty((len(inverse), 3))
    right = np.empty(3)
    for j in range(len(inverse)):
        for b in range(3):
            right[b] = point_gradient[j, b]
        for k in range(starts[j], starts[j + 1]):
            if camera[k] < 0:
                continue
            for b in range(3):
                for a in range(6):
                    right[b] += w[k, a, b] * camera_step[camera[k], a]
        for a in range(3):
            out[j, a] = -(inverse[j, a, 0] * right[0] + inverse[j, a, 1] * right[1] + inverse[j, a, 2] * right[2])
    return out

"""Products of vectors (3,) for compiled loops, where NumPy's would allocate."""

from __future__ import annotations

import math

import numpy as np

from veil.compiled import compiled


@compiled
def dot(a, b):
    """Inner product of vectors a (3,) and b (3,)."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@compiled
def cross(a, b, out):
    """Write the cross product of a (3,) and b (3,) to `out` (3,), which must be neither of them."""
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]


@compiled
def normalize(a):
    """Scale a (3,) to unit length in place; the zero vector stays zero."""
    length = math.sqrt(dot(a, a))
    for j in range(3):
        a[j] /= max(length, 1e-300)


@compiled
def squared_distance(a, b):
    """Squared Euclidean distance of points a (3,) and b (3,)."""
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2


@compiled
def turn_to_y(down, out):
    """Write to `out` (3, 3) a rotation whose second row is the unit vector `down` (3,)."""
    side = np.zeros(3)
    side[0 if abs(down[0]) < 0.7 else 2] = 1.0
    out[1] = down
    cross(down, side, out[2])
    normalize(out[2])
    cross(out[1], out[2], out[0])

"""Products of vectors of three numbers, for compiled loops, where NumPy's would allocate."""

from __future__ import annotations

import math

from veil.compiled import compiled


@compiled
def dot(a, b):  # type: ignore[no-untyped-def]
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@compiled
def cross(a, b, out):  # type: ignore[no-untyped-def]
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]


@compiled
def normalize(a):  # type: ignore[no-untyped-def]
    length = math.sqrt(dot(a, a))
    for j in range(3):
        a[j] /= max(length, 1e-300)


@compiled
def squared_distance(a, b):  # type: ignore[no-untyped-def]
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2

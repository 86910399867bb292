"""Refinement of a pose in all six degrees of freedom by where it shows points; compiled by numba (words_upright.md#refinement).

A (1+1) evolution strategy (Rechenberg 1973; Beyer and Schwefel 2002, Sec. 2.2): one random step, kept if the score does not
fall, with a step size that follows the share of kept steps. The table has many local maxima and no useful gradient far away.
"""

from __future__ import annotations

import math

import numpy as np

from veil.compiled import compiled
from veil.geometry.robust.upright_search import table_sum, uniform, word_sum

# Ratio of steps about the points to those about the camera: the former move projections less.
ABOUT_POINTS = 4.0
# The step size grows by this where a step is kept, and falls by its fourth root elsewhere: steady at one in five.
GROWTH = 1.5


@compiled
def _normal(state):
    """A standard normal number (Box and Muller 1958)."""
    return math.sqrt(-2 * math.log(1 - uniform(state))) * math.cos(2 * math.pi * uniform(state))


@compiled
def _turned(x, y, z, out):
    """Write the rotation (3, 3) by the vector (x, y, z) in radians (Rodrigues)."""
    angle = math.sqrt(x * x + y * y + z * z)
    a = 1.0 if angle < 1e-12 else math.sin(angle) / angle
    b = 0.5 if angle < 1e-6 else (1 - math.cos(angle)) / (angle * angle)
    out[0, 0], out[0, 1], out[0, 2] = 1 - b * (y * y + z * z), b * x * y - a * z, b * x * z + a * y
    out[1, 0], out[1, 1], out[1, 2] = b * x * y + a * z, 1 - b * (x * x + z * z), b * y * z - a * x
    out[2, 0], out[2, 1], out[2, 2] = b * x * z - a * y, b * y * z + a * x, 1 - b * (x * x + y * y)


@compiled
def refine_by_steps(tested, sampled, first, last, shown, middle, rotation, shift, size, steps, seed):
    """Score after `steps` steps from the pose `rotation` (3, 3), `shift` (3,), upright world to camera, changed in place.

    The score is the sum of the table over the points `shown` and of the words of the candidates `first` to `last`. `middle`
    (3,) is the center of the points, `size` the first step in radians. Steps turn the camera about itself and about the middle,
    and move it towards the middle or away from it.
    """
    state = np.array([seed], dtype=np.uint64)
    best = table_sum(tested, sampled.points, shown, 0, len(shown), rotation, shift)
    best += word_sum(tested, sampled, first, last, rotation, shift)
    about_camera, about_points = np.empty((3, 3)), np.empty((3, 3))
    for _ in range(steps):
        wide = ABOUT_POINTS * size
        _turned(size * _normal(state), size * _normal(state), size * _normal(state), about_camera)
        _turned(wide * _normal(state), wide * _normal(state), wide * _normal(state), about_points)
        zoom = math.exp(size * _normal(state))
        new_rotation = about_camera @ rotation @ about_points
        new_shift = about_camera @ (zoom * (rotation @ middle + shift)) - new_rotation @ middle
        score = table_sum(tested, sampled.points, shown, 0, len(shown), new_rotation, new_shift)
        score += word_sum(tested, sampled, first, last, new_rotation, new_shift)
        if score >= best:
            best = score
            rotation[:], shift[:] = new_rotation, new_shift
            size *= GROWTH
        else:
            size *= GROWTH**-0.25
    return best

"""Support of the vertical edges of a photograph for a direction of gravity from elsewhere, such as a sensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from veil.geometry.gravity import Gravity
from veil.geometry.vanishing_point import SAMPLE, VerticalOptions, candidate_rows, distinct_lines, vertical_problem


@dataclass(frozen=True, kw_only=True)
class Support:
    """Support of segments for a given direction: the number of distinct lines that agree, and its log10 NFA.

    The number of false alarms is that of one direction, so without the pairs of docs/theory/gravity.md, Eq. 10.
    """

    lines: int
    log10_nfa: float


def support_of(
    segments: Float64[np.ndarray, "segments 2 2"], pixel: float, gravity: Gravity, options: VerticalOptions | None = None
) -> Support:
    """How much vertical edges support `gravity`, known to within its standard deviation.

    `segments` are both ends of segments in the normalized plane, and `pixel` is the size of a pixel in that plane, as for
    `vertical_from_segments`. Nothing supports a direction beyond the range of tilts (docs/theory/gravity.md, Eq. 4).
    """
    from scipy.stats import binom

    options = options or VerticalOptions()
    rows = candidate_rows(segments, pixel, options)
    if len(rows) <= SAMPLE:
        return Support(lines=0, log10_nfa=0.0)
    problem = vertical_problem(segments[rows], pixel, options)
    if (np.abs(gravity.direction[[0, 2]]) > options.limits * gravity.direction[1]).any():
        return Support(lines=0, log10_nfa=0.0)
    # The given direction strays as well: about as far as a segment of half length h turns by h sigma.
    spread = math.radians(gravity.sigma_deg or 0.0)
    wide = replace(problem, sigma=np.hypot(problem.sigma, problem.half * spread))
    shown = distinct_lines(segments[rows], pixel)
    lines = int(((wide.residuals(gravity.direction) <= options.max_error) & shown).sum())
    angles = np.arcsin(np.minimum(1.0, options.max_error * wide.sigma / wide.half))[shown]
    mean = float(np.minimum(1.0, angles / math.radians(options.max_roll_deg)).mean())
    # Without the pairs that `veil.geometry.vanishing_point` counts: this direction was not chosen among any.
    log10_nfa = float(binom.logsf(lines - 1, int(shown.sum()), mean)) / math.log(10)
    return Support(lines=lines, log10_nfa=log10_nfa)

"""Comparison of a sensor's gravity with the vertical edges of the same photograph: which of both is wrong.

The rules are those of gravity.md#sensor-against-edges. One of them is how much vertical edges support a direction of gravity
from elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

import numpy as np
from jaxtyping import Float64

from veil.geometry.gravity import SENSOR_SIGMA_DEG, Gravity
from veil.geometry.gravity_consensus import apart_deg, contradiction_limit
from veil.geometry.vanishing_point import SAMPLE, Vertical, VerticalOptions, candidate_rows, distinct_lines, vertical_problem
from veil.one_line import one_line


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


Verdict = Literal["agree", "sensor wrong", "edges wrong", "cannot be told"]
# Expected share of honest pairs that are called contradictory.
FALSE_ALARMS = 1e-3
# People hold cameras level to within this angle, or the photograph is turned.
USUAL_ROLL_DEG = 15.0
# Edges overrule a sensor with twice the exponent, and twice the lines, that an answer from edges needs. Bundles that were not
# vertical did reach this (gravity.md#measured), but on floors and tables, which are recognized by their 90 degrees.
STRONG_LOG10_NFA, STRONG_LINES = -20.0, 12
# Largest log10 of the number of false alarms (NFA) with which edges support a direction that was given.
SUPPORT_LOG10_NFA = -3.0


class CheckedJson(TypedDict):
    """The verdict on a sensor's gravity and vertical edges."""

    verdict: Verdict
    apart_deg: float
    limit_deg: float
    why: str


@dataclass(frozen=True, kw_only=True)
class GravityCheck:
    """Comparison of a sensor's gravity with the vertical edges of a photograph.

    - `verdict`: "agree", "edges wrong", "sensor wrong" or "cannot be told".
    - `apart_deg`, `limit_deg`: their angle, and the angle beyond which they disagree, in degrees.
    - `why`: the reason of the verdict.
    """

    verdict: Verdict
    apart_deg: float
    limit_deg: float
    why: str

    __repr__ = one_line

    def as_json(self) -> CheckedJson:
        """The check as the stable record of docs/reference/json.md."""
        return {
            "verdict": self.verdict,
            "apart_deg": self.apart_deg,
            "limit_deg": self.limit_deg,
            "why": self.why,
        }


def cross_checked(sensor: Gravity, edges: Vertical, support: Support) -> GravityCheck:
    """Verdict on whether `sensor` and `edges` agree, and if not, which of them is wrong, as far as this can be decided.

    `support` is how much the photograph's other segments support the sensor's direction. The edges are wrong if those segments
    point where the sensor does, or if the edges would be horizontal in the sensor's world, as those of floors and tables are.
    Otherwise the sensor is wrong if the edges' evidence is twice what an answer needs, or if only the sensor would have the
    camera rolled.
    """
    sigmas = sensor.sigma_deg or SENSOR_SIGMA_DEG, edges.gravity.sigma_deg or SENSOR_SIGMA_DEG
    apart = float(apart_deg(sensor.direction, edges.gravity.direction))
    limit = contradiction_limit(1, FALSE_ALARMS) * math.hypot(*sigmas)
    if apart <= limit:
        return GravityCheck(verdict="agree", apart_deg=apart, limit_deg=limit, why="they agree")
    verdict, why = _which(sensor, edges, support, apart, limit)
    return GravityCheck(verdict=verdict, apart_deg=apart, limit_deg=limit, why=why)


def _which(sensor: Gravity, edges: Vertical, support: Support, apart: float, limit: float) -> tuple[Verdict, str]:
    """Verdict on a sensor and edges that contradict each other, and the reason; angles are in degrees."""
    rolled = roll_deg(sensor) > USUAL_ROLL_DEG, roll_deg(edges.gravity) > USUAL_ROLL_DEG
    if support.log10_nfa <= SUPPORT_LOG10_NFA and not (rolled[0] and not rolled[1]):
        return "edges wrong", f"{support.lines} other edges point where the sensor does"
    if abs(apart - 90) <= limit and not rolled[0]:
        return "edges wrong", "what they follow is horizontal by the sensor, as the lines of floors and tables are"
    if rolled[1] and not rolled[0]:
        return "cannot be told", "the edges would have the camera rolled, and nothing else speaks for the sensor"
    if edges.log10_nfa <= STRONG_LOG10_NFA and edges.lines >= STRONG_LINES:
        return "sensor wrong", f"{edges.lines} edges agree on another vertical, and none to speak of on the sensor's"
    if rolled[0] and not rolled[1]:
        return "sensor wrong", f"it would have the camera rolled by {roll_deg(sensor):.0f} degrees, the edges would not"
    return "cannot be told", f"{edges.lines} edges on another vertical are too few to overrule a sensor"


def roll_deg(gravity: Gravity) -> float:
    """Angle in degrees by which the camera is turned about its optical axis, without sign."""
    x, y, _ = gravity.direction
    return abs(math.degrees(math.atan2(x, y)))

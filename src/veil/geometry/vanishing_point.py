"""Gravity from straight edges: the vanishing direction that near-vertical segments share, unless clutter explains it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, RangeError, require_positive
from veil.geometry.gravity import Gravity, NoGravity
from veil.geometry.robust.ransac import RansacOptions, ransac

SAMPLE = 2  # two lines meet in one vanishing point


@dataclass(frozen=True, kw_only=True)
class VerticalOptions:
    """Settings of the search for a vertical vanishing point; gravity.md#from-vertical-edges explains the numbers.

    Down may be tilted by `max_roll_deg` in the image plane and by `max_pitch_deg` towards the optical axis (Eq. 4). Pixels are
    the detector's. Segments shorter than `min_length_px` do not count. The end of a segment strays by `end_sigma_px`, an edge
    in the world from the vertical by `plumb_sigma_deg`; segments within `max_error` standard deviations agree. `focal_spread`
    is the relative standard deviation of the focal length. Refused are answers that are uncertain by more than `max_sigma_deg`,
    have fewer than `min_lines` distinct lines or a number of false alarms (NFA) above 10^`max_log10_nfa`, or leave a rival
    direction with `rival_share` of the lines. Raises RangeError for values out of range.
    """

    max_roll_deg: float = 45.0
    max_pitch_deg: float = 60.0
    min_length_px: float = 25.0
    end_sigma_px: float = 0.7
    plumb_sigma_deg: float = 0.3
    max_error: float = 2.5
    focal_spread: float = 0.0
    min_lines: int = 6
    max_log10_nfa: float = -10.0
    max_sigma_deg: float = 3.0
    rival_share: float = 0.6
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_roll_deg", "max_pitch_deg"):
            if not 0 < getattr(self, name) < 90:
                raise RangeError(f"{name} must lie between 0 and 90 degrees, got {getattr(self, name)!r}")
        require_positive(self, "min_length_px", "end_sigma_px", "plumb_sigma_deg", "max_error", "max_sigma_deg", "rival_share")
        if not 0 <= self.focal_spread < 1:
            raise RangeError(f"focal_spread is a relative error in [0, 1), got {self.focal_spread!r}")
        if not self.min_lines > SAMPLE:
            raise RangeError(f"min_lines must be more than the {SAMPLE} lines of a sample, got {self.min_lines!r}")
        if math.isnan(self.max_log10_nfa):
            raise RangeError("max_log10_nfa must be a number; 0 accepts one agreement by chance")

    @property
    def limits(self) -> Float64[np.ndarray, "2"]:
        """Ratios |x| / y and |z| / y of the most tilted directions (Eq. 4)."""
        return np.tan(np.deg2rad([self.max_roll_deg, self.max_pitch_deg]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Vertical:
    """Gravity from vertical edges, with the evidence for it.

    `rows` are the segments that agree, `lines` is the number of distinct lines among them, `log10_nfa` the log10 of the number
    of false alarms (Eq. 10).
    """

    gravity: Gravity
    rows: Int64[np.ndarray, "inliers"]
    lines: int
    log10_nfa: float


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalProblem:
    """Estimator of the direction of down from segments (a, b) in the normalized plane, for `ransac`.

    `midpoints` are (x, y, 1), `normals` a x b / 2, `sigma` standard deviations of an end's distance, `half` half lengths, and
    `limits` the range of tilts (Eq. 4). A residual is the distance of a segment's ends from the line through its midpoint and
    the vanishing point, in multiples of `sigma` (docs/theory/gravity.md, Eq. 5 and 6).
    """

    midpoints: Float64[np.ndarray, "segments 3"]
    normals: Float64[np.ndarray, "segments 3"]
    sigma: Float64[np.ndarray, "segments"]
    half: Float64[np.ndarray, "segments"]
    limits: Float64[np.ndarray, "2"]

    def sample(self, random: np.random.Generator) -> Int64[np.ndarray, "2"]:
        """Rows of two distinct segments, drawn with a probability proportional to half length over standard deviation."""
        return random.choice(len(self.half), SAMPLE, replace=False, p=self._chances)

    def models(self, rows: Int64[np.ndarray, "2"]) -> list[Float64[np.ndarray, "3"]]:
        """The direction that the lines of both segments meet in, or none where it is outside the range of tilts."""
        (a, b, c), (x, y, z) = self.normals[rows].tolist()
        direction = _down(np.array([b * z - c * y, c * x - a * z, a * y - b * x]))  # much faster than NumPy's for one product
        return [] if direction is None or not self._allows(direction) else [direction]

    def residuals(self, direction: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "segments"]:
        """Distances of all segments' ends from the lines to the vanishing point, in standard deviations (Eq. 6)."""
        return np.abs(self.normals @ direction) * self._weights(direction)

    def refine(self, direction: Float64[np.ndarray, "3"], inliers: Bool[np.ndarray, "segments"]) -> np.ndarray | None:
        """Direction of least squares over the inliers, the denominators of Eq. 6 renewed at each of five steps.

        None where the inliers are too few or the direction leaves the range of tilts.
        """
        if inliers.sum() <= SAMPLE:
            return None
        for _ in range(5):
            down = _down(np.linalg.eigh(self.information(direction, inliers))[1][:, 0])
            if down is None or not self._allows(down):
                return None
            direction = down
        return direction

    def information(self, direction: Float64[np.ndarray, "3"], inliers: Bool[np.ndarray, "segments"]) -> np.ndarray:
        """The matrix (3, 3) of Eq. 7, whose quadratic form is the sum of the inliers' squared residuals."""
        rows = self.normals[inliers] * self._weights(direction)[inliers, None]
        return rows.T @ rows

    @cached_property
    def _chances(self) -> np.ndarray:
        weight = self.half / self.sigma
        return weight / weight.sum()

    def _weights(self, direction: np.ndarray) -> np.ndarray:
        """Inverse denominators of Eq. 6, one for each segment."""
        x, y, z = self.midpoints.T
        a, b, c = direction
        reach = np.sqrt((y * c - z * b) ** 2 + (z * a - x * c) ** 2)  # of the first two coordinates of the cross product
        return 1.0 / np.maximum(reach * self.sigma, 1e-12)

    def _allows(self, direction: np.ndarray) -> bool:
        """Whether a direction lies inside the pyramid of tilts (Eq. 4)."""
        return bool((np.abs(direction[[0, 2]]) <= self.limits * direction[1]).all())


def vertical_from_segments(
    segments: Float64[np.ndarray, "segments 2 2"], pixel: float, options: VerticalOptions | None = None
) -> Vertical | NoGravity:
    """Gravity in the camera frame from both ends of segments in the normalized (undistorted) plane, or why there is none.

    `pixel` is the size of one of the detector's pixels in that plane. Segments with NaN are left out.
    Raises InputError if `pixel` is not positive.
    """
    options = options or VerticalOptions()
    if not 0 < pixel < math.inf:
        raise InputError(f"the size of a pixel must be positive and finite, got {pixel!r}; it is 1 / focal length")
    rows = candidate_rows(segments, pixel, options)
    best = _agreement(segments[rows], pixel, options)
    if best is None:
        return _weak(f"none of the {len(rows)} segments that could be vertical meet in a direction that is down")
    if best.lines < options.min_lines or best.log10_nfa > options.max_log10_nfa:
        return _weak(
            f"{best.lines} of {best.all_lines} lines agree on a vertical, which clutter also gives "
            f"(log10 of expected chance agreements {best.log10_nfa:.1f})"
        )
    sigma_deg = math.hypot(best.sigma_deg, _focal_deg(best.direction, options))  # Eq. 8
    if not best.sigma_deg <= options.max_sigma_deg:
        return _weak(f"the vertical edges leave {best.sigma_deg:.1f} degrees open")
    if not sigma_deg <= options.max_sigma_deg:
        return NoGravity(
            reason=f"the uncertain focal length leaves {sigma_deg:.1f} degrees open; calibrate, and give the camera"
        )
    rival = _agreement(segments[rows[~best.inliers]], pixel, options)
    if rival is not None and rival.rivals(best, options):
        return _weak(f"{best.lines} lines agree on one vertical and {rival.lines} on another")
    return Vertical(
        gravity=Gravity(direction=best.direction, sigma_deg=sigma_deg),
        rows=rows[best.inliers],
        lines=best.lines,
        log10_nfa=best.log10_nfa,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Agreement:
    """The direction that most of some segments agree on, with its evidence."""

    direction: np.ndarray
    inliers: np.ndarray
    lines: int
    all_lines: int
    log10_nfa: float
    sigma_deg: float

    def rivals(self, best: _Agreement, options: VerticalOptions) -> bool:
        """Whether this direction passes the limit of the NFA too, has nearly as many lines as `best`, and differs from it."""
        apart = math.degrees(math.acos(min(1.0, float(self.direction @ best.direction))))
        strong = self.log10_nfa <= options.max_log10_nfa and self.lines >= options.rival_share * best.lines
        return strong and apart > 3 * math.hypot(self.sigma_deg, best.sigma_deg)


def _agreement(segments: np.ndarray, pixel: float, options: VerticalOptions) -> _Agreement | None:
    """The direction that most segments agree on, or None where no two of them meet in the range of tilts."""
    if len(segments) <= SAMPLE:
        return None
    problem = vertical_problem(segments, pixel, options)
    loop = RansacOptions(max_error=options.max_error, max_iterations=3000, seed=options.seed)
    consensus = ransac(problem, SAMPLE, loop)
    if consensus is None:
        return None
    shown = distinct_lines(segments, pixel)
    lines = int((consensus.inliers & shown).sum())
    return _Agreement(
        direction=consensus.model,
        inliers=consensus.inliers,
        lines=lines,
        all_lines=int(shown.sum()),
        log10_nfa=_log10_nfa(lines, problem, shown, options),
        sigma_deg=_sigma_deg(problem, consensus.model, consensus.inliers, lines, options),
    )


def _weak(what: str) -> NoGravity:
    """The answer for edges that are too weak, with what may help."""
    return NoGravity(reason=f"{what}; take gravity from a sensor, or photograph more of a building")


def _down(direction: np.ndarray) -> np.ndarray | None:
    """The direction as a unit vector with positive y, or None for zero (from equal lines) and horizontal directions."""
    length = np.linalg.norm(direction)
    if not length > 1e-12 or abs(direction[1]) < 1e-9 * length:
        return None
    return direction / (length * np.sign(direction[1]))


def _lifted(segments: np.ndarray) -> np.ndarray:
    """Ends of segments as homogeneous vectors (segments, 2, 3)."""
    return np.concatenate([segments, np.ones((*segments.shape[:2], 1))], axis=2)


def candidate_rows(segments: np.ndarray, pixel: float, options: VerticalOptions) -> np.ndarray:
    """Rows of the segments that are long enough and can be vertical: their plane meets the pyramid of Eq. 4."""
    x, z = options.limits
    edges = np.array([[x, 1, z], [x, 1, -z], [-x, 1, z], [-x, 1, -z]])  # of the pyramid
    ends = _lifted(segments)
    sides = np.cross(ends[:, 0], ends[:, 1]) @ edges.T
    length = np.linalg.norm(segments[:, 1] - segments[:, 0], axis=1)
    meets = (sides.min(axis=1) <= 0) & (sides.max(axis=1) >= 0)  # False for NaN
    return np.flatnonzero(meets & (length >= options.min_length_px * pixel))


def vertical_problem(segments: np.ndarray, pixel: float, options: VerticalOptions) -> VerticalProblem:
    """The estimation problem of segments (segments, 2, 2) in the normalized plane; `pixel` is a pixel's size there."""
    ends = _lifted(segments)
    half = 0.5 * np.linalg.norm(segments[:, 1] - segments[:, 0], axis=1)
    sigma = np.hypot(options.end_sigma_px * pixel / math.sqrt(2), half * math.radians(options.plumb_sigma_deg))  # Eq. 5
    return VerticalProblem(
        midpoints=ends.mean(axis=1),
        normals=0.5 * np.cross(ends[:, 0], ends[:, 1]),
        sigma=sigma,
        half=half,
        limits=options.limits,
    )


def distinct_lines(segments: np.ndarray, pixel: float) -> np.ndarray:
    """Mask of the longest segment of each line: pieces of one edge within two pixels of its line are no further evidence."""
    ends = _lifted(segments)
    lines = np.cross(ends[:, 0], ends[:, 1])
    lines /= np.linalg.norm(lines[:, :2], axis=1, keepdims=True)
    free = np.ones(len(segments), dtype=bool)
    shown = np.zeros(len(segments), dtype=bool)
    for row in np.argsort(-np.linalg.norm(segments[:, 1] - segments[:, 0], axis=1), kind="stable"):
        if free[row]:
            shown[row] = True
            free &= (np.abs(ends @ lines[row]) > 2 * pixel).any(axis=1)
    return shown


def _log10_nfa(lines: int, problem: VerticalProblem, shown: np.ndarray, options: VerticalOptions) -> float:
    """log10 of the number of false alarms (Eq. 9 and 10) of a direction that `lines` of the distinct lines `shown` agree on.

    It is the expected number of pairs of lines with whose direction as many others agree by chance.
    """
    from scipy.stats import binom

    angles = np.arcsin(np.minimum(1.0, options.max_error * problem.sigma / problem.half))[shown]
    mean = float(np.minimum(1.0, angles / math.radians(options.max_roll_deg)).mean())
    others = int(shown.sum()) - SAMPLE
    pairs = math.log10(max(1, math.comb(others + SAMPLE, SAMPLE)))
    if lines - SAMPLE - 1 < mean * others:
        return pairs
    return pairs + float(binom.logsf(lines - SAMPLE - 1, others, mean)) / math.log(10)


def _sigma_deg(
    problem: VerticalProblem, direction: np.ndarray, inliers: np.ndarray, lines: int, options: VerticalOptions
) -> float:
    """Standard deviation in degrees about the worse axis for a known focal length: the first two terms of Eq. 8."""
    count = int(inliers.sum())
    if lines <= SAMPLE:
        return math.inf
    tangent = np.linalg.svd(direction[None])[2][1:]
    information = tangent @ problem.information(direction, inliers) @ tangent.T
    scale = max(1.0, float((problem.residuals(direction)[inliers] ** 2).sum()) / (count - SAMPLE))
    weakest = float(np.linalg.eigvalsh(information)[0])
    if not weakest > 0:
        return math.inf
    spread = math.sqrt(scale * count / lines / weakest)
    return math.hypot(math.degrees(spread), options.plumb_sigma_deg)


def _focal_deg(direction: np.ndarray, options: VerticalOptions) -> float:
    """Standard deviation of the pitch in degrees from that of the focal length: the last term of Eq. 8."""
    pitch = math.asin(min(1.0, abs(float(direction[2]))))
    return math.degrees(0.5 * math.sin(2 * pitch) * options.focal_spread)

"""What a pose must show: errors and number of its inliers, how few chance poses are as good, and how well it is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from veil.errors import RangeError


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Thresholds of a pose. Raises RangeError for values that would accept chance, or nothing.

    `max_error_px` is the inlier threshold of points, `line_error_px` that of lines: a distance to a line underestimates that to
    the hidden keypoint (docs/theory/localization.md). A pose needs `min_inliers` keypoints on different points *and* fewer than
    10^`max_log10_nfa` expected chance poses as good as it, and its inliers must leave its turn uncertain by no more than
    `max_turn_deg`, one standard deviation.
    """

    max_error_px: float = 8.0
    line_error_px: float = 4.0
    min_inliers: int = 15
    max_log10_nfa: float = -6.0
    max_turn_deg: float = 0.6

    def __post_init__(self) -> None:
        for name in ("max_error_px", "line_error_px"):
            if not 0 < getattr(self, name) < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {getattr(self, name)!r}")
        if self.min_inliers < 6:
            raise RangeError(f"min_inliers needs at least 6: fewer agree by chance; got {self.min_inliers!r}")
        if not self.max_log10_nfa <= 0:
            raise RangeError(f"max_log10_nfa must be at most 0, got {self.max_log10_nfa!r}")
        if not self.max_turn_deg > 0:
            raise RangeError(f"max_turn_deg must be positive (inf: any), got {self.max_turn_deg!r}")

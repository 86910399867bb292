"""Thresholds that a pose must meet: errors and number of its inliers, its number of false alarms, and its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

from veil.errors import RangeError, require_positive


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Thresholds of an accepted pose. Raises RangeError for values that would accept poses by chance, or none.

    `max_error_px` is the inlier threshold of points, `line_error_px` that of lines: a distance to a line underestimates that to
    the hidden keypoint (docs/theory/localization.md). A pose needs `min_inliers` keypoints on different points *and* a number
    of false alarms (NFA) of at most 10^`max_log10_nfa`, and its inliers must leave its turn uncertain by no more than
    `max_turn_deg` degrees, one standard deviation. Keypoints need six orders of magnitude more evidence (`PLACE_MARGIN` in
    `places/poses/evidence.py`).
    """

    max_error_px: float = 8.0
    line_error_px: float = 4.0
    min_inliers: int = 15
    max_log10_nfa: float = -6.0
    max_turn_deg: float = 0.6

    def __post_init__(self) -> None:
        require_positive(self, "max_error_px", "line_error_px")
        if self.min_inliers < 6:
            raise RangeError(f"min_inliers needs at least 6: fewer agree by chance; got {self.min_inliers!r}")
        if not self.max_log10_nfa <= 0:
            raise RangeError(f"max_log10_nfa must be at most 0, got {self.max_log10_nfa!r}")
        if not self.max_turn_deg > 0:
            raise RangeError(f"max_turn_deg must be positive (inf: any), got {self.max_turn_deg!r}")

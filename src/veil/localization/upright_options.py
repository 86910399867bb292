"""Options of the search with gravity for words at keypoints."""

from __future__ import annotations

from dataclasses import dataclass

from veil.errors import RangeError, require_positive
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True)
class UprightOptions:
    """Options of the search for the pose of words at keypoints where gravity is known (docs/theory/words_upright.md).

    - `samples`: pairs of candidates that are drawn, of all images of the map together: fewer images get more each.
    - `nearest`, `farthest`: least and largest distance of a sample's points to the camera, beside their distance to the mapped
      image; `max_turn_deg` is the largest angle between the directions from which both see them. SIFT matches no further.
    - `kept`, `refined`, `compared`: how many distinct poses the search keeps, how many of them are refined by the tables, and
      how many of these by their matches.
    - `search_px`, `refine_px`: standard deviations of the tables of keypoints that the search and the steps of the refinement
      use, in pixels; `words_px` is that of the words in the search. Gravity off by 0.5 degrees moves projections by some 10 px.
    - `match_px`: largest distance of a keypoint to the point that it shows.
    - `reach`: half of the samples' candidates join any keypoint with any point that a mapped image shows within this distance
      of it (normalized image plane; 0.12 is 7 degrees), whatever their words; 0: all share words.

    Raises RangeError for values outside their range.
    """

    samples: int = 1_000_000
    nearest: float = 0.4
    farthest: float = 2.5
    max_turn_deg: float = 53.0
    kept: int = 200
    refined: int = 50
    compared: int = 5
    search_px: float = 6.0
    words_px: float = 12.0
    refine_px: tuple[float, ...] = (10.0, 5.0, 2.5)
    match_px: float = 3.0
    reach: float = 0.12

    __repr__ = one_line

    def __post_init__(self) -> None:
        require_positive(self, "search_px", "words_px", "match_px")
        if not 0 < self.nearest <= 1 <= self.farthest:
            raise RangeError(f"distances must satisfy 0 < nearest <= 1 <= farthest, got {self.nearest!r} and {self.farthest!r}")
        if not 0 < self.max_turn_deg <= 180:
            raise RangeError(f"max_turn_deg must lie in (0, 180], got {self.max_turn_deg!r}")
        if not 1 <= self.compared <= self.refined <= self.kept:
            raise RangeError("numbers of poses must satisfy 1 <= compared <= refined <= kept")
        if not 1 <= self.samples < 1 << 39:
            raise RangeError(f"samples must lie in [1, 2^39), got {self.samples!r}")
        if not 0 <= self.reach < float("inf"):
            raise RangeError(f"reach must be >= 0 and finite, got {self.reach!r}")
        if not self.refine_px or not all(0 < value < float("inf") for value in self.refine_px):
            raise RangeError(f"refine_px needs positive widths, got {self.refine_px!r}")

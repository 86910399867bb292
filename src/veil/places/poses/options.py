"""Options of localization: what a pose must show, and how it is searched for, by what a query sends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from veil.errors import RangeError, require_positive
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.grouped import GroupedOptions
from veil.matching import MatchOptions
from veil.one_line import one_line

# Numbers of images that are matched one after the other, where the map's index ranks them.
RETRIEVED = (10, 40, 160)
# Number of images that may show the like elsewhere, with which a pose from such images is compared at a time.
COMPARED = 10


@dataclass(frozen=True, kw_only=True)
class LocalizeOptions(Acceptance, MatchOptions):
    """Options of queries that are matched by distance: what a pose must show, and how it is searched for.

    - `max_error_px`: inlier threshold of keypoints, in pixels of the query.
    - `line_error_px`: inlier threshold of lines, in pixels; a distance to a line underestimates that to the hidden keypoint.
    - `min_inliers`: least number of inliers on different points.
    - `max_log10_nfa`: largest accepted log10 of the number of chance poses that are as good (docs/theory/localization.md).
    - `max_turn_deg`: largest accepted standard deviation of the rotation, in degrees.
    - `max_ratio`: a match is kept if nearest / second nearest distance is at most this in both directions; None keeps all
      mutual nearest neighbors.
    - `backend`, `threads`: implementation of the distances, and number of threads for one pair of images.
    - `retrieved`: numbers of images that are matched one after the other until there is a pose, where the images are ranked.
    - `compared`: number of images that look like the query for other reasons than what a pose shows, where the images are
      ranked; the pose is compared with what they give, as they may show the like elsewhere, and with as many more while they
      do. 0: there is no comparison.
    - `workers`: number of map images that are matched at a time.
    - `seed`: of RANSAC.

    Raises RangeError for thresholds that would accept chance, or nothing, and for numbers of images that do not grow.
    """

    retrieved: tuple[int, ...] = RETRIEVED
    compared: int = COMPARED
    workers: int = 2
    seed: int = 0

    __repr__ = one_line

    def __post_init__(self) -> None:
        Acceptance.__post_init__(self)
        MatchOptions.__post_init__(self)
        if not self.retrieved or any(b <= a for a, b in pairwise((0, *self.retrieved))):
            raise RangeError(f"retrieved takes numbers of images that grow, such as 10 40 160, got {self.retrieved!r}")
        if self.compared < 0:
            raise RangeError(f"compared must not be negative, got {self.compared!r}")


@dataclass(frozen=True, kw_only=True)
class UprightOptions:
    """Options of the search for the pose of words at keypoints where gravity is known (docs/theory/words_upright.md).

    - `samples`: pairs of candidates that are drawn, of all images of the map together: fewer images get more each. If they show
      no pose that is beyond chance, `longer` times as many are drawn in all; 1: the search ends with the first.
    - `nearest`, `farthest`: least and largest distance of a sample's points to the camera, beside their distance to the mapped
      image; `max_turn_deg` is the largest angle between the directions from which both see them. SIFT matches no further.
    - `kept`, `refined`, `compared`: how many distinct poses the search keeps, how many of them are refined by the tables, and
      how many of these by their matches.
    - `search_px`, `refine_px`: standard deviations of the tables of keypoints that the search and the steps of the refinement
      use, in pixels; `words_px` is that of the words in the search. Gravity off by 0.5 degrees moves projections by some 10 px.
    - `match_px`: largest distance of a keypoint to the point that it shows.
    - `margin`: orders of magnitude of the evidence that are not counted, as a part of a print or of the place gives wrong poses
      as many (words_upright.md#evidence).
    - `reach`: half of the samples' candidates join any keypoint with any point that a mapped image shows within this distance
      of it (normalized image plane; 0.12 is 7 degrees), whatever their words; 0: all share words.

    Raises RangeError for values outside their range.
    """

    samples: int = 1_000_000
    longer: int = 4
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
    margin: float = 34.0
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
        if self.longer < 1 or not 1 <= self.samples * self.longer < 1 << 39:
            raise RangeError(f"samples and longer times as many must lie in [1, 2^39), got {self.samples!r}, {self.longer!r}")
        if not 0 <= self.reach < float("inf"):
            raise RangeError(f"reach must be >= 0 and finite, got {self.reach!r}")
        if not 0 <= self.margin < float("inf"):
            raise RangeError(f"margin must be >= 0 and finite, got {self.margin!r}")
        if not self.refine_px or not all(0 < value < float("inf") for value in self.refine_px):
            raise RangeError(f"refine_px needs positive widths, got {self.refine_px!r}")

    @property
    def at_once(self) -> UprightOptions:
        """The same with all samples in one search."""
        return replace(self, samples=self.samples * self.longer, longer=1)


@dataclass(frozen=True, kw_only=True)
class WordOptions(Acceptance, GroupedOptions):
    """Options of queries in words: what a pose must show, and how it is searched for (docs/theory/words.md).

    - `max_error_px`, `line_error_px`, `min_inliers`, `max_log10_nfa`, `max_turn_deg`: as in `LocalizeOptions`.
    - `retrieved`: number of map images, those most similar to the query's words, whose points are candidates.
    - `compared`: number of map images elsewhere, those most similar to the query's words, that a pose is compared with at a
      time, as they may show the like; 0: there is no comparison.
    - `gravity_sigma_deg`: standard deviation of gravity in query and map together, in degrees, for words with lines.
    - `confidence`: the search ends when with this probability one sample has held inliers only.
    - `min_iterations`, `max_iterations`: least and largest number of samples.
    - `max_seconds`: processor time of the search, of all threads together; None: no limit.
    - `seed`: of the samples.
    - `upright`: the search where words come with keypoints and gravity (docs/theory/words_upright.md).
    - `threads`: threads of the search; the answer does not depend on their number.

    Raises RangeError for values outside their range.
    """

    retrieved: int = 20
    compared: int = 20
    gravity_sigma_deg: float = 0.5
    upright: UprightOptions = field(default_factory=UprightOptions)
    threads: int = 2

    __repr__ = one_line

    def __post_init__(self) -> None:
        Acceptance.__post_init__(self)
        GroupedOptions.__post_init__(self)
        if not 0 <= self.gravity_sigma_deg < 45:
            raise RangeError(f"gravity_sigma_deg must lie in [0, 45), got {self.gravity_sigma_deg!r}")
        if self.compared < 0:
            raise RangeError(f"compared must not be negative, got {self.compared!r}")
        if self.retrieved < 1 or self.threads < 1:
            raise RangeError(f"retrieved and threads must be at least 1, got {self.retrieved!r} and {self.threads!r}")


@dataclass(frozen=True, kw_only=True)
class PositionOptions(Acceptance):
    """Options of the localization of positions alone.

    - `max_error_px`, `line_error_px`, `min_inliers`, `max_log10_nfa`, `max_turn_deg`: as in `LocalizeOptions`.
    - `upright`: the search (docs/theory/words_upright.md). It draws 20 million samples, and a keypoint may show a point that a
      near image shows within a reach of 0.25 of it (14 degrees from the middle of the picture).
    - `max_seconds`: processor time of the search; None: no limit.
    - `seed`: of the samples.

    Raises RangeError for values outside their range.
    """

    upright: UprightOptions = field(default_factory=lambda: UprightOptions(samples=20_000_000, longer=1, reach=0.25))
    max_seconds: float | None = None
    seed: int = 0

    __repr__ = one_line

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.upright.reach:
            raise RangeError("positions alone need a reach above 0: there are no words that could join them with points")

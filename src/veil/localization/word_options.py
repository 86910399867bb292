"""Options of queries in words."""

from __future__ import annotations

from dataclasses import dataclass, field

from veil.errors import RangeError
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.grouped import GroupedOptions
from veil.localization.upright_options import UprightOptions
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True)
class WordOptions(Acceptance):
    """Options of queries in words: what a pose must show, and how it is searched for (docs/theory/words.md).

    - `max_error_px`, `line_error_px`, `min_inliers`, `max_log10_nfa`, `max_turn_deg`: as in `LocalizeOptions`.
    - `retrieved`: number of map images, those most similar to the query's words, whose points are candidates.
    - `compared`: number of map images elsewhere, those most similar to the query's words, that a pose is compared with at a
      time, as they may show the like; 0: there is no comparison.
    - `gravity_sigma_deg`: standard deviation of gravity in query and map together, in degrees, for words with lines.
    - `search`: number of samples, confidence, time limit (seconds of the processor) and seed of the search.
    - `upright`: the search where words come with keypoints and gravity (docs/theory/words_upright.md).
    - `threads`: threads of the search; the answer does not depend on their number.

    Raises RangeError for values outside their range.
    """

    retrieved: int = 20
    compared: int = 20
    gravity_sigma_deg: float = 0.5
    search: GroupedOptions = field(default_factory=GroupedOptions)
    upright: UprightOptions = field(default_factory=UprightOptions)
    threads: int = 2

    __repr__ = one_line

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gravity_sigma_deg < 45:
            raise RangeError(f"gravity_sigma_deg must lie in [0, 45), got {self.gravity_sigma_deg!r}")
        if self.compared < 0:
            raise RangeError(f"compared must not be negative, got {self.compared!r}")
        if self.retrieved < 1 or self.threads < 1:
            raise RangeError(f"retrieved and threads must be at least 1, got {self.retrieved!r} and {self.threads!r}")

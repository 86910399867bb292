"""Answers to held-out photographs beside those of the whole raw map: how many, how exact, how many astray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from veil.audit.statistics import clopper_pearson

# A pose that is turned by more than this is astray, whatever its position.
ASTRAY_DEG = 5.0
# Scene and photograph.
Key = tuple[str, str]


@runtime_checkable
class HeldOut(Protocol):
    """Truth about an answer to a held-out photograph: errors in the reference's units and degrees, None without."""

    @property
    def scene(self) -> str: ...
    @property
    def accepted(self) -> bool: ...
    @property
    def position_error(self) -> float | None: ...
    @property
    def rotation_error_deg(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class AgainstRaw:
    """Answers of one way to localize, beside those of the whole raw map to the same photographs.

    - `queries`: photographs. `raw_localized`: those that the raw map localizes; `localized`: those of them that this way
      localizes, too, whose share lies in `low`..`high` with 95 % confidence.
    - `gained`: photographs that this way localizes and the raw map does not.
    - `error_ratio`: median error of position over that of the raw map, of the photographs that both localize. Of several
      scenes, errors count in units of the scene's raw median.
    - `median_error`, `raw_median_error`: of position in units of the reference; None for several scenes.
    - `astray`: poses that are turned by more than 5 degrees, beside `raw_astray`.
    """

    queries: int
    raw_localized: int
    localized: int
    low: float
    high: float
    gained: int
    error_ratio: float | None
    median_error: float | None
    raw_median_error: float | None
    astray: int
    raw_astray: int

    def as_json(self) -> dict:
        """The stable keys of docs/reference/json.md."""
        return {
            "queries": self.queries,
            "raw_localized": self.raw_localized,
            "localized": self.localized,
            "low": self.low,
            "high": self.high,
            "gained": self.gained,
            "error_ratio": self.error_ratio,
            "median_error": self.median_error,
            "raw_median_error": self.raw_median_error,
            "astray": self.astray,
            "raw_astray": self.raw_astray,
        }


def against_raw(own: Mapping[Key, HeldOut], raw: Mapping[Key, HeldOut], scenes: Sequence[str]) -> AgainstRaw:
    """The answers `own` beside those of the raw map, all to the same photographs of some scenes."""
    by_raw = [key for key, item in raw.items() if item.accepted]
    both = [key for key in by_raw if own[key].accepted]
    low, high = clopper_pearson(len(both), len(by_raw), confidence=0.95) if by_raw else (0.0, 1.0)
    unit = {name: _median([item.position_error for item in raw.values() if item.scene == name]) or 1.0 for name in scenes}
    error, raw_error = (
        _median([(answers[key].position_error or 0.0) / unit[key[0]] for key in both]) for answers in (own, raw)
    )
    scale = unit[scenes[0]] if len(scenes) == 1 else None
    return AgainstRaw(
        queries=len(own),
        raw_localized=len(by_raw),
        localized=len(both),
        low=low,
        high=high,
        gained=sum(item.accepted and not raw[key].accepted for key, item in own.items()),
        error_ratio=error / raw_error if error is not None and raw_error else None,
        median_error=error * scale if error is not None and scale else None,
        raw_median_error=raw_error * scale if raw_error is not None and scale else None,
        astray=_astray(own),
        raw_astray=_astray(raw),
    )


def _astray(answers: Mapping[Key, HeldOut]) -> int:
    return sum((item.rotation_error_deg or 0) > ASTRAY_DEG for item in answers.values())


def _median(values: Sequence[float | None]) -> float | None:
    """The median of the numbers among some values; None without any."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None

"""Records of how sure maps of positions and of lines are: numbers for and against them, and when they are refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Share of a pair's matches that a map must explain to explain the pair.
EXPLAINED = 0.5
# A map is refused below this share of explained matches, above this share of contradicting pairs, or above this uncertainty (as
# a share of the extent).
MIN_MATCHES, MAX_CONTRADICTING, MAX_UNCERTAINTY = 0.7, 0.35, 0.02
# A map is refused if the median angle between the rotations of its pairs and its own is larger: its cameras look elsewhere.
MAX_ROTATION_DEG = 10.0
# Fewer common points than this between two parts fix no scale between them that chance could not have given.
MIN_NECK = 20
# Readings of gravity disagree if they are off by more degrees than this; at least this share must agree.
GRAVITY_DEG, MIN_GRAVITY = 15.0, 0.5
# Lines beyond the number of unknowns that a map must have; a wrong map is bent to fit few more lines than it has unknowns.
MIN_CHECKS = 30
MIN_CLOSE = 0.5


@dataclass(frozen=True, kw_only=True)
class MapCheck:
    """Numbers that speak for and against a map of positions (docs/theory/mapping.md says how each of them is made).

    `pairs` verified pairs of its images, of which it explains `explained_pairs`; `contradicting_pairs` of the others are
    confirmed by a cycle of rotations. `explained_matches` is the share of all their matches. `rotation_deg` is the median angle
    between the rotation of a pair by itself and in the map. `neck` is the number of common points that hold its most loosely
    joined parts together; `uncertainty` the median standard deviation of camera centers as a share of their extent;
    `step_ratio` the longest way from a camera to its nearest one over the median. `gravity_deg` is the median angle between
    readings of gravity and their middle in the map, `gravity_agreeing` the share within 15 degrees. None stands for a number
    that is not known. `left_out` says why images are not in the map, by name. `removed` counts images that were taken out of
    the map since: what is said of pairs, rotations and gravity is then of the map before.
    """

    pairs: int
    explained_pairs: int
    contradicting_pairs: int
    explained_matches: float
    neck: int | None
    uncertainty: float | None
    step_ratio: float | None
    rotation_deg: float | None = None
    gravity_deg: float | None = None
    gravity_agreeing: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    removed: int = 0

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> MapCheck:
        """Check from its JSON record, the inverse of `as_json`. Raises ValueError or TypeError for another record."""
        try:
            found = MapCheck(
                pairs=record["pairs"],
                explained_pairs=record["explained_pairs"],
                contradicting_pairs=record["contradicting_pairs"],
                explained_matches=record["explained_matches"],
                neck=record["neck"],
                uncertainty=record["uncertainty"],
                step_ratio=record["step_ratio"],
                rotation_deg=record.get("rotation_deg"),
                gravity_deg=record.get("gravity_deg"),
                gravity_agreeing=record.get("gravity_agreeing"),
                left_out=record.get("left_out", {}),
                removed=record.get("removed", 0),
            )
        except KeyError as error:
            raise ValueError(f"it lacks {error}") from None
        if unknown := record.keys() - found.as_json().keys() - {"removed"}:
            raise ValueError(f"a check has no {', '.join(sorted(unknown))}")
        return found

    def as_json(self) -> dict[str, Any]:
        """JSON record of the check, as docs/reference/json.md describes it; it has `removed` only where images were."""
        record = {
            "pairs": self.pairs,
            "explained_pairs": self.explained_pairs,
            "contradicting_pairs": self.contradicting_pairs,
            "explained_matches": self.explained_matches,
            "neck": self.neck,
            "uncertainty": self.uncertainty,
            "step_ratio": self.step_ratio,
            "rotation_deg": self.rotation_deg,
            "gravity_deg": self.gravity_deg,
            "gravity_agreeing": self.gravity_agreeing,
            "left_out": dict(self.left_out),
        }
        return record | ({"removed": self.removed} if self.removed else {})

    def described(self) -> str:
        """Summary of the check in one line, for people."""
        parts = [
            f"explains {self.explained_pairs} of {self.pairs} verified pairs and {self.explained_matches:.1%} of their matches"
        ]
        if self.uncertainty is not None:
            moved = f"by {self.uncertainty:.2%} of their extent" if math.isfinite(self.uncertainty) else "anywhere"
            parts.append(f"noise moves its cameras {moved}")
        if self.neck is not None:
            parts.append(f"at least {self.neck} points hold any two parts together")
        if self.rotation_deg is not None:
            parts.append(f"pairs turn by {self.rotation_deg:.2f} deg from it")
        if self.gravity_deg is not None and self.gravity_agreeing is not None:
            parts.append(f"gravity agrees to {self.gravity_deg:.1f} deg in {self.gravity_agreeing:.0%} of its readings")
        if self.step_ratio is not None:
            parts.append(f"its longest step is {self.step_ratio:.1f} times the median")
        if self.removed:
            parts.append(f"{self.removed} images were removed since, and its pairs are those of the map before")
        return "; ".join(parts)

    @property
    def doubts(self) -> list[str]:
        """Reasons to refuse the map, as sentences; empty if nothing speaks against it."""
        found = []
        if self.pairs == 0:
            found.append("no pair of images is verified within it")
        elif self.contradicting_pairs > MAX_CONTRADICTING * self.pairs or not self.explained_matches >= MIN_MATCHES:
            found.append(
                f"it contradicts its own pairs: it explains {self.explained_pairs} of {self.pairs} and "
                f"{self.explained_matches:.0%} of their matches, and {self.contradicting_pairs} others confirm each other"
            )
        if self.rotation_deg is not None and self.rotation_deg > MAX_ROTATION_DEG:
            found.append(f"its pairs turn by {self.rotation_deg:.0f} degrees from it")
        if self.neck is not None and self.neck < MIN_NECK:
            found.append(f"two parts of it hang together by {self.neck} common points")
        if self.uncertainty is not None and not self.uncertainty <= MAX_UNCERTAINTY:
            moved = f"by {self.uncertainty:.1%} of their extent" if math.isfinite(self.uncertainty) else "anywhere"
            found.append(f"noise alone moves its cameras {moved}")
        if self.gravity_agreeing is not None and self.gravity_agreeing < MIN_GRAVITY:
            found.append(f"{1 - self.gravity_agreeing:.0%} of the readings of gravity contradict it")
        return found


@dataclass(frozen=True, kw_only=True)
class LineMapCheck:
    """Numbers that speak for and against a map from lines (docs/theory/mapping.md, How sure a map is).

    `checks` counts the lines beyond those that any cameras and points would fit; `close` is the share of agreeing lines within
    a quarter of `LineMapOptions.point_error_px`; `explained_tracks` is the share of tracks over four or more of the map's
    images that have a point. `uncertainty` is the median standard deviation of camera centers as a share of their extent.
    `gravity_deg` is the median angle between readings of gravity and their mean in the map, `gravity_agreeing` the share within
    15 degrees. None stands for a number that is not known. `left_out` says why images are not in the map, by name.
    """

    checks: int
    close: float
    explained_tracks: float
    uncertainty: float | None
    gravity_deg: float | None
    gravity_agreeing: float | None
    left_out: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON record of the check, as docs/reference/json.md describes it."""
        return {
            "checks": self.checks,
            "close": self.close,
            "explained_tracks": self.explained_tracks,
            "uncertainty": self.uncertainty,
            "gravity_deg": self.gravity_deg,
            "gravity_agreeing": self.gravity_agreeing,
            "left_out": dict(self.left_out),
        }

    def described(self) -> str:
        """Summary of the check in one line, for people."""
        parts = [
            f"{self.checks} lines check it, {self.close:.0%} of all agree closely, {self.explained_tracks:.0%} of long tracks"
        ]
        if self.uncertainty is not None:
            parts.append(f"noise moves its cameras by {self.uncertainty:.2%} of their extent")
        if self.gravity_deg is not None and self.gravity_agreeing is not None:
            parts.append(f"gravity agrees to {self.gravity_deg:.1f} deg in {self.gravity_agreeing:.0%} of its readings")
        return "; ".join(parts)

    @property
    def doubts(self) -> list[str]:
        """Reasons to refuse the map, as sentences; empty if nothing speaks against it."""
        found = []
        if self.checks < MIN_CHECKS:
            found.append(f"only {self.checks} lines check it, fewer than {MIN_CHECKS}")
        if self.close < MIN_CLOSE:
            found.append(f"only {self.close:.0%} of its lines agree closely, as in a map that is bent")
        if self.uncertainty is not None and not self.uncertainty <= MAX_UNCERTAINTY:
            found.append(f"noise alone moves its cameras by {self.uncertainty:.1%} of their extent")
        if self.gravity_agreeing is not None and self.gravity_agreeing < MIN_GRAVITY:
            found.append(f"{1 - self.gravity_agreeing:.0%} of the readings of gravity contradict it")
        return found

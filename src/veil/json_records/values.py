"""Values that records for JSON share, and limits of them that a type cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypedDict


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a value beside its type, and a note on it, for JSON schemas. None: no such limit."""

    minimum: int | float | None = None
    above: int | float | None = None
    maximum: int | float | None = None
    pattern: str | None = None
    fewest_characters: int | None = None
    most_characters: int | None = None
    format: str | None = None
    fewest_items: int | None = None
    most_items: int | None = None
    description: str | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """A schema that is written by hand, by its place among the schemas."""

    file: str
    name: str


Digest = Annotated[str, Limits(pattern="^[0-9a-f]{64}$")]
Vector = Annotated[list[float], Limits(fewest_items=3, most_items=3)]
Matrix = Annotated[list[Vector], Limits(fewest_items=3, most_items=3)]
_SixNumbers = Annotated[list[float], Limits(fewest_items=6, most_items=6)]
# Of (rotation in radians, translation in units of the map).
PoseCovariance = Annotated[list[_SixNumbers], Limits(fewest_items=6, most_items=6)]
# By name of an image or file, why it was left out.
Reasons = Mapping[str, str]


class SolvedCameraJson(TypedDict):
    """The intrinsics that a pose was solved with, and the relative standard deviation of their focal length."""

    model: str
    width_px: int
    height_px: int
    params: list[float]
    focal_deviation: float


class PoseJson(TypedDict):
    """A camera from the world."""

    rotation: Matrix
    translation: Vector

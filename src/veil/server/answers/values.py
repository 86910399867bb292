"""Values that records of the service share, and limits of them that a type cannot say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from veil.errors import Action

# Largest integer that every reader of JSON takes for what it is.
_MOST = 1 << 53


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


Count = Annotated[int, Limits(minimum=0)]
Seconds = Annotated[float, Limits(description="seconds since 1970")]
Share = Annotated[float, Limits(minimum=0, maximum=1)]
MapId = Annotated[str, Limits(pattern="^m[0-9a-f]{16}$")]
ContributionId = Annotated[str, Limits(pattern="^c[0-9a-f]{16}$")]
JobId = Annotated[str, Limits(pattern="^j[0-9a-f]{16}$")]
TokenId = Annotated[str, Limits(pattern="^t[0-9a-f]{16}$")]
Digest = Annotated[str, Limits(pattern="^[0-9a-f]{64}$")]
Vector = Annotated[list[float], Limits(fewest_items=3, most_items=3)]
Matrix = Annotated[list[Vector], Limits(fewest_items=3, most_items=3)]
Printable = Annotated[
    str,
    Limits(most_characters=200, pattern="\\S", format="printable", description="printable characters, not blanks alone"),
]
Quantity = Annotated[int, Limits(minimum=0, maximum=_MOST)]
Scopes = list[Literal["localize", "contribute", "admin"]]


class RemedyJson(TypedDict):
    """Something that helps (`veil.errors.Remedy`)."""

    action: Action
    object: str
    value: str


RemediesJson = list[RemedyJson]

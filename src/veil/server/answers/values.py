"""Values that records of the service share."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from veil.errors import Action
from veil.json_records.values import Limits

# Largest integer that every reader of JSON takes for what it is.
_MOST = 1 << 53


Count = Annotated[int, Limits(minimum=0)]
Seconds = Annotated[float, Limits(description="seconds since 1970")]
Share = Annotated[float, Limits(minimum=0, maximum=1)]
MapId = Annotated[str, Limits(pattern="^m[0-9a-f]{16}$")]
ContributionId = Annotated[str, Limits(pattern="^c[0-9a-f]{16}$")]
JobId = Annotated[str, Limits(pattern="^j[0-9a-f]{16}$")]
TokenId = Annotated[str, Limits(pattern="^t[0-9a-f]{16}$")]
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

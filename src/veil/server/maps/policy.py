"""Policy of a map: raw data is refused, messages are accepted by form, profile, epsilon and size, and answers are guarded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any

from veil.errors import InputError, RangeError, Remedy, WireError
from veil.forms import Subsets, Subspaces
from veil.ldp.rounding import inward, outward
from veil.wire.codec import message_length
from veil.wire.head import HEAD_BYTES, MAGIC, Head, read_head
from veil.wire.message import LineUpload, Message
from veil.wire.names import require_known

# What the bodies of other files begin with, for a refusal that names them.
_SIGNATURES = {
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG": "a PNG image",
    b"RIFF": "an image or a recording",
    b"GIF8": "a GIF image",
    b"\x89HDF": "an HDF5 file, as raw features are kept",
    b"PK\x03\x04": "an archive, as NumPy writes arrays",
    b"\x93NUMPY": "a NumPy array",
    b"SQLite": "a database, as COLMAP keeps features",
    b"%PDF": "a PDF document",
}
_FTYP = b"ftyp"  # of HEIC, AVIF and MP4, four bytes in
# A millennium of days, and no epsilon is near it.
_MOST = 365_250
_WHOLE = ("max_features", "max_bytes", "max_contributions_of_token")
FORMS = ("subspaces", "words")
PROFILES = ("hardened", "any")


def whole(value: Any) -> Any:
    """The value; as an integer if it is a float without a fraction, as JSON tells no 2.0 from 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Refused(InputError):
    """A message that a map's policy does not accept; nothing of it was kept."""


class NotAMessage(Refused):
    """A body that is no veil message at all: raw data, or anything else."""


@dataclass(frozen=True, kw_only=True)
class MapPolicy:
    """Messages that a map accepts, the time that it keeps them, and the answers that it tells.

    - `forms`: of "subspaces" and "words".
    - `least_profile`: of subspaces, "hardened", or "any".
    - `max_epsilon`: largest epsilon of a feature in words; None: any finite one.
    - `lines_only`: whether positions must be hidden in lines.
    - `max_features`, `max_bytes`: of one message.
    - `max_contributions_of_token`, `max_share_of_token`: what one token may give of a map, as a number and as a share (of ten
      contributions at least); None: no limit.
    - `keep_days`: a contribution is deleted after so long; None: it is kept until its owner deletes it.
    - `largest_object`: size of the largest thing, as a share of the map's extent, on which alone no answer of a private map
      rests (`veil.places.localization.AnswerGuard`); None: any answer is told. A public map tells all.

    Raises RangeError for values outside their range.
    """

    forms: tuple[str, ...] = FORMS
    least_profile: str = "hardened"
    max_epsilon: float | int | None = None
    lines_only: bool = False
    max_features: int = 4096
    max_bytes: int = 16 << 20
    max_contributions_of_token: int | None = None
    max_share_of_token: float | int | None = None
    keep_days: float | int | None = None
    largest_object: float | int | None = 0.15

    def __post_init__(self) -> None:
        kinds = {"forms": tuple, "least_profile": str, "lines_only": bool, "max_features": int, "max_bytes": int}
        for name, kind in kinds.items():
            if type(getattr(self, name)) is not kind:
                raise RangeError(f"{name} must be of type {kind.__name__}, got {getattr(self, name)!r}")
        if type(self.max_contributions_of_token) not in (int, NoneType):
            raise RangeError(f"max_contributions_of_token must be a whole number, got {self.max_contributions_of_token!r}")
        if type(self.max_share_of_token) not in (int, float, NoneType):
            raise RangeError(f"max_share_of_token must be a number, got {self.max_share_of_token!r}")
        if not self.forms or set(self.forms) - set(FORMS):
            raise RangeError(f"forms must be some of {', '.join(FORMS)}, got {', '.join(self.forms) or 'none'}")
        if self.least_profile not in PROFILES:
            raise RangeError(f"least_profile must be one of {', '.join(PROFILES)}, got {self.least_profile!r}")
        if not (1 <= self.max_features <= 1 << 17 and HEAD_BYTES < self.max_bytes <= 1 << 28):
            raise RangeError("max_features must be 1 to 131,072 and max_bytes at most 256 MiB")
        most, share = self.max_contributions_of_token, self.max_share_of_token
        if most is not None and not (type(most) is int and 0 <= most <= 1 << 53):
            raise RangeError(f"max_contributions_of_token must be 0 to 2^53, got {most!r}; leave it out for no limit")
        if share is not None and not (type(share) in (int, float) and 0 < share <= 1):
            raise RangeError(f"max_share_of_token must lie in (0, 1], got {share!r}; leave it out for no limit")
        largest = self.largest_object
        if largest is not None and not (type(largest) in (int, float) and 0 < largest <= 1):
            raise RangeError(f"largest_object must lie in (0, 1], got {largest!r}; give null to tell any answer")
        for name in ("max_epsilon", "keep_days"):
            value = getattr(self, name)
            if value is not None and not (type(value) in (int, float) and 0 <= value <= _MOST):
                raise RangeError(f"{name} must be a number from 0 to {_MOST:,}, got {value!r}; leave it out for no limit")

    @staticmethod
    def of(values: Mapping[str, Any]) -> MapPolicy:
        """The policy with these values of its fields. Raises InputError for names that no field has, or of another type."""
        require_known("field of a policy", values, {field.name for field in fields(MapPolicy)})
        try:
            given = {name: whole(value) if name in _WHOLE else value for name, value in values.items()}
            if isinstance(given.get("forms"), list):
                given["forms"] = tuple(str(form) for form in given["forms"])
            return MapPolicy(**given)
        except TypeError as error:
            raise InputError(f"a value of the policy is of another type: {error}") from None

    def as_json(self) -> dict[str, Any]:
        """The policy as JSON values; `MapPolicy.of` reads them."""
        return {
            "forms": list(self.forms),
            "least_profile": self.least_profile,
            "max_epsilon": self.max_epsilon,
            "lines_only": self.lines_only,
            "max_features": self.max_features,
            "max_bytes": self.max_bytes,
            "max_contributions_of_token": self.max_contributions_of_token,
            "max_share_of_token": self.max_share_of_token,
            "keep_days": self.keep_days,
            "largest_object": self.largest_object,
        }

    def require_head(self, prefix: bytes) -> Head:
        """The header of a message of which `prefix` is the beginning.

        Raises NotAMessage for data of another kind, Refused for messages whose header says that they are not accepted.
        """
        require_message(prefix)
        try:
            head = read_head(prefix)
            length = message_length(head)
        except WireError as error:
            raise Refused(error.cause, facts=error.facts, remedy=error.remedy) from None
        if head.features > self.max_features:
            raise Refused(f"the message has {head.features} features; this map accepts {self.max_features}: send fewer")
        if length > self.max_bytes:
            raise Refused(f"the message has {length} bytes; this map accepts {self.max_bytes}: send fewer features")
        form = "words" if head.has_words else "subspaces"
        if form not in self.forms:
            raise Refused(f"the message holds {form}; this map accepts {' and '.join(self.forms)}")
        if self.lines_only and not head.has_lines:
            raise Refused(
                "the message holds positions; this map accepts lines alone", remedy=Remedy("give", "Protection.lines")
            )
        return head

    def require_content(self, message: Message) -> None:
        """Raise Refused for a decoded message whose profile or epsilon is not accepted."""
        form = message.form
        if self.lines_only and not isinstance(message, LineUpload):
            raise Refused(
                "the message holds positions; this map accepts lines alone", remedy=Remedy("give", "Protection.lines")
            )
        if isinstance(form, Subspaces) and self.least_profile == "hardened" and form.profile != "hardened":
            raise Refused(f"the message was made with the profile {form.profile!r}; this map accepts hardened ones")
        if isinstance(form, Subsets):
            limit = math.inf if self.max_epsilon is None else self.max_epsilon
            if math.isinf(form.mechanism.epsilon) or form.mechanism.epsilon > limit:
                accepted = "finite epsilons" if math.isinf(limit) else f"an epsilon of {inward(limit, 6)} at most"
                raise Refused(
                    f"the epsilon of each feature in words is {outward(form.mechanism.epsilon, 6)}; this map accepts {accepted}"
                )


def require_message(prefix: bytes) -> None:
    """Raise NotAMessage unless `prefix` begins as a message does; what it is instead is named where that is known."""
    if prefix[:4] == MAGIC and len(prefix) >= HEAD_BYTES:
        return
    kind = next((name for start, name in _SIGNATURES.items() if prefix.startswith(start)), None)
    if prefix[4:8] == _FTYP:
        kind = "an image or a film"
    if kind is not None:
        raise NotAMessage(f"the body is {kind}, and raw data is never accepted", remedy=Remedy("make", "messages"))
    raise NotAMessage("the body is no veil message", remedy=Remedy("make", "messages"))

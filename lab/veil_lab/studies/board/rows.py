"""Records of the board: the options of the study, a scene with its rows, and the parts of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from veil_lab.studies.localization.answer_counts import AnswerCounts

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Reason why a part of a row holds no number."""

    reason: str

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {"not_run": self.reason}


@dataclass(frozen=True, kw_only=True)
class MapCounts:
    """A map of what was sent: number of images `registered`, beside `by_raw` that raw features register.

    `median_error` and `largest_error` are distances of its camera centers from the reference's after similarity alignment, as
    shares of the extent of the reference's cameras; None for fewer than three images in both. `seconds` are of the processor.
    """

    registered: int
    by_raw: int
    median_error: float | None
    largest_error: float | None
    seconds: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "registered": self.registered,
            "by_raw": self.by_raw,
            "median_error": self.median_error,
            "largest_error": self.largest_error,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class RecoveredShare:
    """Share of attacked descriptors that the best `attack` estimates within 0.2 of their length.

    `features` of `photographs` were attacked, each with at most `uploads` uploads, the attacked one among them. `named` is the
    largest share of words that an attack names right, None where no words are sent. A right word gives the descriptor to
    the size of its cell, which is mostly more than 0.2.
    """

    attack: str
    share: float
    features: int
    photographs: int
    uploads: int
    named: float | None = None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "share": self.share,
            "features": self.features,
            "photographs": self.photographs,
            "uploads": self.uploads,
            "named": self.named,
        }


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """One form of one scene.

    - `built`: the map of what is sent; `answers`: those of queries on the public map.
    - `one`, `five`, `near`: recovered descriptors with one upload, with those of the nearest photographs, with near repeats.
    - `upload_bytes`: mean size of a query's message; `query_seconds`: median processor seconds of a query
      on the server, without the first, which compiles.
    """

    form: str
    built: MapCounts | NotRun
    answers: AnswerCounts | NotRun
    one: RecoveredShare | NotRun
    five: RecoveredShare | NotRun
    near: RecoveredShare | NotRun
    upload_bytes: float | None = None
    query_seconds: float | None = None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "form": self.form,
            "map": self.built.as_json(),
            "answers": self.answers.as_json(),
            "one_upload": self.one.as_json(),
            "five_uploads": self.five.as_json(),
            "near_repeats": self.near.as_json(),
            "upload_bytes": self.upload_bytes,
            "query_seconds": self.query_seconds,
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> BoardRow:
        """The row of its record. Raises KeyError or TypeError for anything else."""
        return BoardRow(
            form=content["form"],
            built=_part(content["map"], MapCounts),
            answers=_part(content["answers"], AnswerCounts),
            one=_part(content["one_upload"], RecoveredShare),
            five=_part(content["five_uploads"], RecoveredShare),
            near=_part(content["near_repeats"], RecoveredShare),
            upload_bytes=content["upload_bytes"],
            query_seconds=content["query_seconds"],
        )


def _part(content: Mapping[str, Any], kind: Callable[..., Part]) -> Part | NotRun:
    """A part of a row, from its record."""
    return NotRun(reason=content["not_run"]) if "not_run" in content else kind(**content)


@dataclass(frozen=True, kw_only=True)
class BoardScene:
    """Facts of a scene and its rows, or the `reason` why it has none.

    - `photographs`: number that were taken, of which `mapped` are map images and `queries` are asked. Those of `unjudged`
      would be queries, but have no reference pose.
    - `has_reference`: whether the folder has reference cameras; else the raw map of all photographs is the reference.
    - `has_gravity`: whether gravity is known for each photograph.
    """

    scene: str
    photographs: int = 0
    mapped: int = 0
    queries: int = 0
    unjudged: int = 0
    has_reference: bool = False
    has_gravity: bool = False
    reason: str = ""
    rows: Sequence[BoardRow] = ()

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "scene": self.scene,
            "photographs": self.photographs,
            "mapped": self.mapped,
            "queries": self.queries,
            "unjudged": self.unjudged,
            "has_reference": self.has_reference,
            "has_gravity": self.has_gravity,
            "reason": self.reason,
            "rows": [row.as_json() for row in self.rows],
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> BoardScene:
        """The scene of its record. Raises KeyError or TypeError for anything else."""
        return BoardScene(**{**content, "rows": [BoardRow.from_json(row) for row in content["rows"]]})


@dataclass(frozen=True, kw_only=True)
class BoardOptions:
    """Options of the study: every `queries_every`-th photograph is a query, `features` of an attacked one are attacked.

    `seed` draws releases and attacked features; it has no say in which photographs are queries.
    """

    queries_every: int = 4
    features: int = 100
    seed: int = 0

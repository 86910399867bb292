"""Open-set identification: which threshold keeps strangers out of a gallery of so many templates, and what it costs.

In the words of ISO/IEC 19795-1:2021: an identification of somebody who is not enrolled that returns a candidate is a false
positive, and their share is the FPIR; one of an enrolled person that does not return that person first and below the threshold
is a false negative (FNIR at rank 1). A threshold that accepts one stranger in a hundred comparisons accepts one in five among
twenty templates, so it has to fall with the size of the gallery (docs/theory/faces.md, "One among many").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veil.errors import InputError

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
# Sizes that get a threshold; between two of them the larger one's holds.
STEPS = (1, 1.5, 2, 3, 5, 7)


@dataclass(frozen=True, kw_only=True)
class GallerySize:
    """One size of a gallery: its threshold, and what this does, with 95 % intervals; FNIR is None where nobody came twice.

    `fpir_bound` is what FPIR stays below, at 97.5 %, even if a few strangers nobody has seen are near to everybody.
    """

    templates: int
    threshold: float
    fpir: float
    fpir_low: float
    fpir_high: float
    fpir_bound: float
    fnir: float | None = None
    fnir_low: float | None = None
    fnir_high: float | None = None

    def as_json(self) -> dict[str, object]:
        """As it is stored and printed (docs/reference/json.md)."""
        return {
            "templates": self.templates,
            "threshold": self.threshold,
            "fpir": self.fpir,
            "fpir_low": self.fpir_low,
            "fpir_high": self.fpir_high,
            "fpir_bound": self.fpir_bound,
            "fnir": self.fnir,
            "fnir_low": self.fnir_low,
            "fnir_high": self.fnir_high,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> GallerySize:
        """The inverse of `as_json`. Raises LookupError for a record that lacks a key."""
        return GallerySize(
            templates=record["templates"],
            threshold=record["threshold"],
            fpir=record["fpir"],
            fpir_low=record["fpir_low"],
            fpir_high=record["fpir_high"],
            fpir_bound=record["fpir_bound"],
            fnir=record.get("fnir"),
            fnir_low=record.get("fnir_low"),
            fnir_high=record.get("fnir_high"),
        )


@dataclass(frozen=True, kw_only=True)
class OpenSet:
    """Thresholds by size of the gallery for one FPIR that was asked for: the upper end of its interval stays below that.

    `people` were strangers to each other, `mated` of them came twice. Without sizes, `people` are too few for any.
    """

    asked: float
    people: int
    mated: int
    sizes: tuple[GallerySize, ...] = ()

    @property
    def largest(self) -> int:
        """The largest gallery that these people can speak for; 0 if none."""
        return self.sizes[-1].templates if self.sizes else 0

    def at(self, templates: int) -> GallerySize:
        """What holds for a gallery of so many templates: that of the next size which was fitted.

        Raises InputError where the people were too few for it, which says how many would do.
        """
        found = next((size for size in self.sizes if size.templates >= templates), None)
        if found is None:
            need = people_needed(templates, self.asked)
            reach = f"at most {self.largest:,} templates" if self.largest else "no gallery"
            raise InputError(
                f"the calibration by {self.people:,} people speaks for {reach} at an FPIR of {self.asked:.2%}, and there are "
                f"{templates:,}: calibrate with the faces of about {need:,} people, or ask for a larger --fpir"
            )
        return found

    def as_record(self) -> dict[str, Any]:
        """As it is stored and printed (docs/reference/json.md)."""
        return {
            "fpir": self.asked,
            "confidence": CONFIDENCE,
            "people": self.people,
            "mated": self.mated,
            "sizes": [size.as_json() for size in self.sizes],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> OpenSet:
        """The inverse of `as_record`."""
        sizes = tuple(GallerySize.from_json(size) for size in record["sizes"])
        return OpenSet(asked=record["fpir"], people=record["people"], mated=record["mated"], sizes=sizes)


def people_needed(templates: int, fpir: float) -> int:
    """About how many people a calibration needs for a gallery of so many templates, each a stranger to all the others.

    So many that, were a share FPIR of strangers near to everybody, one would be among them at 97.5 % (the rule of three); and
    that 30 different ones are too near some of 30 templates at the threshold: P people make P^2 comparisons, of which about
    FPIR / templates are. Part of the FPIR goes to the interval, and errors gather at a few people: 200 were enough for LFW.
    """
    return max(math.ceil(strangers_needed(fpir)), math.ceil(math.sqrt(200 * templates / fpir)))


def largest_gallery(people: int, fpir: float) -> int:
    """No gallery larger than this is tried: it would want 30 errors of fewer comparisons; 0 if people are too few for any."""
    return math.floor(people**2 * fpir / 30) if people >= strangers_needed(fpir) else 0


def gallery_sizes(largest: int, wanted: Sequence[int] = ()) -> list[int]:
    """1, 2, 3, 5, 7, 10, 20, ... up to `largest`, that itself, and those `wanted` that do not exceed it; ascending."""
    steps = {int(step * 10**power) for power in range(len(str(max(1, largest)))) for step in STEPS}
    return sorted(size for size in {*steps, *wanted, largest} if 1 <= size <= largest)


def strangers_needed(fpir: float) -> float:
    """How many strangers of whom none is accepted show that no more than `fpir` are: 3.7 / FPIR or so."""
    return math.log(TAIL) / math.log1p(-fpir)

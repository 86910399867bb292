"""Open-set identification: thresholds that keep strangers out of galleries of a size, and the misses that they cost.

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

from veil.errors import InputError, Remedy

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
# Leading digits of the sizes that get a threshold; between two sizes the threshold of the larger one holds.
STEPS = (1, 1.5, 2, 3, 5, 7)


@dataclass(frozen=True, kw_only=True)
class GallerySize:
    """The threshold for galleries of one size (`templates`), with its error shares and their 95 % intervals.

    `fpir_bound` is a bound that FPIR stays below, at 97.5 %, even if a few strangers nobody has seen are near to everybody.
    FNIR is None where nobody came twice.
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
        """The record that is stored and printed (docs/reference/json.md)."""
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
        """The size of a record that `as_json` made. Raises LookupError for a record that lacks a key."""
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
    """Thresholds of identification by size of the gallery, for one FPIR that was asked for.

    - `asked`: the FPIR; the upper end of its interval stays below it at each threshold.
    - `people`: number of people in the calibration, each a stranger to the others.
    - `mated`: number of people with two pictures.
    - `sizes`: ascending sizes with their thresholds; empty if the people are too few for any.
    """

    asked: float
    people: int
    mated: int
    sizes: tuple[GallerySize, ...] = ()

    @property
    def largest(self) -> int:
        """Size of the largest gallery that the calibration covers; 0 if none."""
        return self.sizes[-1].templates if self.sizes else 0

    def at(self, templates: int) -> GallerySize:
        """The threshold for a gallery of a number of templates: that of the next larger size which was fitted.

        Raises InputError, which says how many people are needed, where the calibration had too few.
        """
        larger = next((size for size in self.sizes if size.templates >= templates), None)
        if larger is None:
            need = people_needed(templates, self.asked)
            reach = f"at most {self.largest:,} templates" if self.largest else "no gallery"
            raise InputError(
                f"the calibration by {self.people:,} people speaks for {reach} at an FPIR of {self.asked:.2%}, and there are "
                f"{templates:,}, for which it takes the faces of about {need:,} people",
                facts={"people": self.people, "needed": need, "fpir": self.asked},
                remedy=Remedy("raise", "OpenSet.asked"),
            )
        return larger

    def as_record(self) -> dict[str, Any]:
        """The record that is stored and printed (docs/reference/json.md)."""
        return {
            "fpir": self.asked,
            "confidence": CONFIDENCE,
            "people": self.people,
            "mated": self.mated,
            "sizes": [size.as_json() for size in self.sizes],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> OpenSet:
        """The thresholds of a record that `as_record` made. Raises LookupError for a record that lacks a key."""
        sizes = tuple(GallerySize.from_json(size) for size in record["sizes"])
        return OpenSet(asked=record["fpir"], people=record["people"], mated=record["mated"], sizes=sizes)


def people_needed(templates: int, fpir: float) -> int:
    """Approximate number of people, all strangers to each other, that a calibration needs for a gallery.

    Enough that, were a share `fpir` of strangers near to everybody, one would be among them at 97.5 % (the rule of three); and
    that 30 different people are too near some of 30 templates at the threshold: P people make P^2 comparisons, of which about a
    share `fpir` / `templates` are too near. Part of the FPIR goes to the interval, and errors gather at a few people: a factor
    of 200 was enough for LFW.
    """
    return max(math.ceil(strangers_needed(fpir)), math.ceil(math.sqrt(200 * templates / fpir)))


def largest_gallery(people: int, fpir: float) -> int:
    """Size of the largest gallery to try, 0 for too few people; a larger one would need 30 errors of fewer comparisons."""
    return math.floor(people**2 * fpir / 30) if people >= strangers_needed(fpir) else 0


def gallery_sizes(largest: int, wanted: Sequence[int] = ()) -> list[int]:
    """Sizes that get a threshold, ascending: 1, 2, 3, 5, 7, 10, 15, 20, ... below `largest`, itself, and `wanted` up to it."""
    steps = {int(step * 10**power) for power in range(len(str(max(1, largest)))) for step in STEPS}
    return sorted(size for size in {*steps, *wanted, largest} if 1 <= size <= largest)


def strangers_needed(fpir: float) -> float:
    """Number of strangers that show, if none of them is accepted, that at most a share `fpir` is: about 3.7 / `fpir`."""
    return math.log(TAIL) / math.log1p(-fpir)

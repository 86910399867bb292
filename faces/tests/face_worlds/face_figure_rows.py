"""Planted rows of every study of faces, from which its figure is drawn: as many curves and as long names as studies have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veil_faces.report.protocols import draw_attributes, draw_identification, draw_protection, draw_verification
from veil_faces.studies.attributes import AttributeRow
from veil_faces.studies.identification import IdentificationRow
from veil_faces.studies.unlinkability import ProtectionRow, ProtectionStudy
from veil_faces.studies.verification import VerificationRow
from worlds import generator

DIMS = (2, 4, 8, 16)


RANDOM = generator("figures")


def _attributes(path: Path) -> None:
    forms = ("random", "hybrid", "adversarial", "hybrid+", "hybrid+, others only")
    rows = []
    for attribute in ("gender", "age group"):
        shared: dict[str, Any] = {"attribute": attribute, "victims": 100, "baseline": 0.55}
        rows.append(AttributeRow(form="raw", m=0, right=93, low=0.88, high=0.97, **shared))
        for number, form in enumerate(forms):
            for m in DIMS:
                right = 92 - 4 * number - m
                low, high = right / 100 - 0.06, right / 100 + 0.05
                rows.append(AttributeRow(form=form, m=m, right=right, low=low, high=high, **shared))
    draw_attributes(path, rows)


def _verification(path: Path) -> None:
    same = np.arange(200) % 2 == 0

    def row(lifting: str, m: int, distance: Any, accuracy: float) -> VerificationRow:
        return VerificationRow(
            lifting=lifting,
            m=m,
            distance=distance,
            accuracy=accuracy,
            deviation=0.01,
            low=accuracy - 0.02,
            high=min(1.0, accuracy + 0.02),
            equal_error=1 - accuracy,
            false_accepts={},
            threshold=1.0,
            identified=None,
            distances=RANDOM.normal(1.0 - 0.6 * accuracy * same, 0.2),
        )

    rows = [row("raw", 0, "point", 0.98)]
    for number, lifting in enumerate(("random", "hybrid", "adversarial", "hybrid+")):
        rows += [row(lifting, m, distance, 0.97 - 0.03 * number - 0.01 * m) for m in DIMS for distance in ("p2s", "s2s")]
    draw_verification(path, rows, same)


def _identification(path: Path) -> None:
    rows = [
        IdentificationRow(
            templates=size,
            strangers=500,
            threshold=0.5,
            fpir=0.008,
            fpir_low=0.004,
            fpir_high=0.015,
            exceeded=0.1,
            fnir=0.1 + 0.05 * number,
            single_threshold=0.6,
            single_fpir=min(1.0, 0.01 * size),
            single_fpir_low=min(0.9, 0.008 * size),
            single_fpir_high=min(1.0, 0.012 * size),
            single_fnir=0.08,
        )
        for number, size in enumerate((1, 3, 10, 30, 100, 300, 1000))
    ]
    draw_identification(path, rows, 0.01)


def _protection(path: Path) -> None:
    rows = [
        ProtectionRow(
            lifting=lifting,
            m=m,
            keyed=keyed,
            linkability=0.1 if keyed else 0.9 - 0.03 * m,
            by_chance=0.12,
            same_photograph=1.0,
            by_length=0.2,
            linked_error=0.3,
            estimate="nearest",
            reversed=0.05 if keyed else 0.95 - 0.02 * m,
            low=0.0,
            high=1.0,
        )
        for lifting in ("random", "hybrid", "adversarial")
        for keyed in (False, True)
        for m in DIMS
    ]
    draw_protection(
        path, ProtectionStudy(rows=rows, threshold=1.0, accepted_raw=0.97, accepted_strangers=0.01, accepted_mean=0.02)
    )


FIGURES: Mapping[str, Callable[[Path], None]] = {
    "attributes": _attributes,
    "verification": _verification,
    "identification": _identification,
    "protection": _protection,
}

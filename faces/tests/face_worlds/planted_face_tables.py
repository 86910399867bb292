"""Every table about faces, filled with planted results that are as long as results get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veil.report.tables import Table
from veil_faces.cli import calibrate, enrollment
from veil_faces.cli.evaluate import (
    attributes,
    faces,
    identification,
    linkage,
)
from veil_faces.identification import GallerySize
from veil_faces.studies.attributes import AttributeRow
from veil_faces.studies.identification import IdentificationRow
from veil_faces.studies.linkage import LinkageRow, StoreSizeRow, SystemQuality
from veil_faces.studies.linked_people import LinkedPeople
from veil_faces.studies.regeneration import RegenerationRow
from veil_faces.studies.repeated_probes import HistoryRow
from veil_faces.studies.unlinkability import ProtectionRow
from veil_faces.studies.verification import FALSE_REJECTS, VerificationRow
from worlds.planted_tables import LONG, planted


def shares(keys: Any) -> dict:
    return dict.fromkeys(keys, 0.9987)


def face_tables() -> dict[str, Callable[[], Table]]:
    """Tables of faces."""
    verified = planted(VerificationRow, false_accepts=shares(map(str, FALSE_REJECTS)))
    few = {"threshold": None, "fpir": None, "fpir_low": None, "fpir_high": None, "exceeded": None, "fnir": None}
    linked = [planted(LinkageRow, attacker=name, linked=planted(LinkedPeople)) for name in linkage.ATTACKERS]
    return {
        "verification_table": lambda: faces.verification_table([verified]),
        "protection_table": lambda: faces.protection_table([planted(ProtectionRow)]),
        "history_table": lambda: faces.history_table([planted(HistoryRow)]),
        "identification_table": lambda: identification.identification_table(
            [planted(IdentificationRow), planted(IdentificationRow, **few)]
        ),
        "linkage_table": lambda: linkage.linkage_table(linked),
        "unlinkability_table": lambda: linkage.unlinkability_table(linked),
        "quality_table": lambda: linkage.quality_table([planted(SystemQuality)]),
        "store_size_table": lambda: linkage.store_size_table(
            [planted(StoreSizeRow, linked=linked[0].linked), planted(StoreSizeRow, linked=None)]
        ),
        "regeneration_table": lambda: linkage.regeneration_table(
            [planted(RegenerationRow), planted(RegenerationRow, first_accepted=None)]
        ),
        "attribute_table": lambda: attributes.attribute_table([planted(AttributeRow)]),
        "size_table": lambda: calibrate.size_table([planted(GallerySize)], {123_456}),
        "template_table": lambda: enrollment.template_table([(LONG, "Ada Lovelace", "12", "revoked")]),
    }


TABLES = face_tables()
"""The function that makes each table, by its name, preceded by its module if two functions share the name."""

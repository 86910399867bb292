"""Records of faces: those of commands that need dlib or hundreds of people, made by hand."""

from __future__ import annotations

from veil_faces.identification import GallerySize
from veil_faces.studies.attributes import AttributeRow
from veil_faces.studies.identification import IdentificationRow
from worlds.schemas import validate


def test_a_size_of_a_gallery_is_read_as_it_was_written() -> None:
    size = GallerySize(templates=7, threshold=0.5, fpir=0.01, fpir_low=0.0, fpir_high=0.02, fpir_bound=0.03, fnir=0.1)
    assert GallerySize.from_json(size.as_json()) == size


def test_inferred_attributes_are_described() -> None:
    row = AttributeRow(attribute="age", form="raw", m=0, right=3, victims=4, low=0.2, high=0.9, baseline=0.5).as_json()
    assert row["accuracy"] == 0.75
    validate("evaluate-attributes", {"photographs": 9, "faces": 8, "rows": [row]})


def test_identification_is_described_for_few_people_and_many() -> None:
    single = {"single_threshold": 0.5, "single_fpir": 0.1, "single_fpir_low": 0.0, "single_fpir_high": 0.2, "single_fnir": None}
    few = {"threshold": None, "fpir": None, "fpir_low": None, "fpir_high": None, "exceeded": None, "fnir": None}
    many = {"threshold": 0.4, "fpir": 0.01, "fpir_low": 0.0, "fpir_high": 0.1, "exceeded": 0.05, "fnir": 0.2}
    rows = [IdentificationRow(templates=3, strangers=50, **told, **single).as_json() for told in (few, many)]  # type: ignore[arg-type]
    assert [row["threshold"] for row in rows] == [None, 0.4]
    validate("evaluate-identification", {"fpir": 0.01, "splits": 20, "rows": rows})

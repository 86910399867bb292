"""The attribute study: planted clusters, where raw and random lifting must lose and balanced decoys must help, and faces."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.errors import InputError, RangeError
from veil.features import Features, unit_length
from veil.files.photographs.pictures import read_rgb
from veil_faces.collection import as_features
from veil_faces.extraction.faces import FACE_SPACE, describe_faces, load_face_network
from veil_faces.studies.attributes import AttributeRow, attribute_study, split_people
from worlds import generator
from worlds.power import require_share
from worlds.schemas import validate


def planted(count: int = 600) -> tuple[Features, list[str], list[str]]:
    """Face-like vectors with two attributes: one shapes the vector, the other is drawn at random."""
    random = generator("people")
    centers = unit_length(random.normal(size=(2, 128)))
    which = random.integers(0, 2, count)
    noise = random.normal(size=(count, 128)) / np.sqrt(128)
    vectors = unit_length(0.5 * centers[which] + noise).astype(np.float32)
    unrelated = random.integers(0, 2, count)
    return as_features(vectors, FACE_SPACE), ["xy"[value] for value in which], ["pq"[value] for value in unrelated]


def by_form(rows: list[AttributeRow], attribute: str) -> dict[tuple[str, int], AttributeRow]:
    return {(row.form, row.m): row for row in rows if row.attribute == attribute}


@pytest.mark.slow
def test_lifting_hides_what_decoys_share_and_random_directions_hide_nothing() -> None:
    features, shaped, unrelated = planted()
    rows = attribute_study(features, {"shaped": shaped, "unrelated": unrelated}, seed=0, dimensions=(2, 16))
    seen, null = by_form(rows, "shaped"), by_form(rows, "unrelated")
    assert len(rows) == 2 * (1 + 5 * 2)
    raw = seen["raw", 0]
    assert raw.accuracy > 0.9 and raw.low > raw.baseline
    assert seen["random", 16].accuracy > raw.accuracy - 0.05
    assert seen["adversarial", 16].accuracy < seen["adversarial", 2].accuracy < raw.accuracy - 0.05
    assert seen["adversarial", 16].accuracy < seen["hybrid", 16].accuracy + 0.05
    # Decoys of the other class only: the vote turns over, which tells an attacker as much who knows it.
    assert seen["hybrid+, others only", 16].accuracy < 0.4
    assert abs(seen["hybrid+", 16].accuracy - 0.5) < 0.5 - seen["hybrid+, others only", 16].accuracy
    for row in rows:
        assert row.low <= row.accuracy <= row.high and row.victims == 240
    # Null: what has nothing to do with the descriptor is inferred as often as by tossing a coin.
    for row in null.values():  # 240 victims see a quarter more or less
        require_share(round(240 * row.accuracy), 240, 0.5, sees=0.26)


def test_a_pool_that_cannot_balance_leaves_the_balanced_rows_out() -> None:
    """One person of a class among the decoys at most: no row of hybrid+ at m = 8, and the other rows are there."""
    features, shaped, _ = planted(60)
    rare = ["rare" if k < 3 else "common" for k in range(60)]
    rows = attribute_study(features, {"rare": rare, "shaped": shaped}, seed=0, dimensions=(8,))
    assert {row.form for row in rows if row.attribute == "rare"} == {"raw", "random", "hybrid", "adversarial"}
    assert {"hybrid+", "hybrid+, others only"} <= {row.form for row in rows if row.attribute == "shaped"}


def test_nobody_is_in_two_parts() -> None:
    parts = split_people(101, decoy_share=0.2, seed=3)
    together = np.concatenate([parts.decoys, parts.attacker, parts.victims])
    assert sorted(together.tolist()) == list(range(101))
    assert [len(parts.decoys), len(parts.attacker), len(parts.victims)] == [20, 40, 41]


def test_bad_input_is_refused() -> None:
    features, shaped, _ = planted(30)
    with pytest.raises(InputError, match="labels for"):
        attribute_study(features, {"shaped": shaped[:-1]}, seed=0)
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(RangeError, match="decoy_share"):
            attribute_study(features, {"shaped": shaped}, seed=0, decoy_share=share)
    with pytest.raises(InputError, match="too few"):
        split_people(4, decoy_share=0.2, seed=0)


def test_gender_is_read_from_raw_faces_and_less_from_lifted_ones(veil_data: Path) -> None:
    pytest.importorskip("dlib", reason="face descriptors need the extra veil-faces[networks]")
    if importlib.util.find_spec("face_recognition_models") is None:
        pytest.skip("face descriptors need the extra veil-faces[networks]")
    folder = veil_data / "faces" / "fairface"
    with (folder / "labels.csv").open() as file:
        people = list(csv.DictReader(file))[::13][:75]
    pictures = [read_rgb(folder / "images" / person["file"]) for person in people]
    vectors, refused = describe_faces(pictures, load_face_network(second_try=False))
    labels = {"gender": [person["gender"] for row, person in enumerate(people) if row not in refused]}
    faces = as_features(vectors, FACE_SPACE)
    rows = by_form(
        attribute_study(faces, labels, seed=0, dimensions=(12,), liftings=("adversarial",), decoy_share=0.3), "gender"
    )
    assert rows["raw", 0].accuracy > 0.65
    assert rows["adversarial", 12].accuracy < rows["raw", 0].accuracy


def test_the_command_infers_from_faces_and_names_what_is_missing(
    veil_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, labels = veil_data / "faces" / "fairface" / "images", tmp_path / "labels.csv"
    with (veil_data / "faces" / "fairface" / "labels.csv").open() as file:
        people = list(csv.reader(file))
    labels.write_text("\n".join(",".join(row) for row in [people[0], *people[1::45]]))
    run = ["evaluate", "attributes", str(folder), "--labels", str(labels), "--m", "4", "--attributes"]
    assert main([*run, "height"]) == 1
    assert "no column 'height'; it has file, age, gender, race" in capsys.readouterr().err
    if importlib.util.find_spec("dlib") is None:
        assert main([*run, "gender"]) == 1
        assert "veil-faces[networks]" in capsys.readouterr().err
        return
    figure, record = tmp_path / "a.png", tmp_path / "a.json"
    assert main([*run, "gender", "race", "--figure", str(figure), "--json", str(record)]) == 0
    content = json.loads(record.read_text())
    validate("evaluate-attributes", content)
    assert content["faces"] <= content["photographs"] == len(people[1::45])
    assert {(row["attribute"], row["form"], row["m"]) for row in content["rows"]} >= {
        ("gender", "raw", 0),
        ("race", "hybrid", 4),
    }
    assert "victims" in capsys.readouterr().out and figure.stat().st_size > 5_000

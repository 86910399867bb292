"""`veil inspect` of words: the account of what was released, and what lies outside of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from veil.cli import main
from veil.cli.privacy.inspect import upload_facts
from veil.files.maps.format import write_map
from veil.forms import Subsets
from veil.geometry.camera import GIVEN, GUESS, FocalPrior
from veil.ldp.mechanism import SubsetMechanism
from veil.wire import decode, encode
from worlds.documents import REFERENCE
from worlds.edges import scene
from worlds.schemas import validate
from worlds.word_uploads import DICTIONARY, subsets, word_line_upload, word_upload

JSON = (REFERENCE / "json.md").read_text()


def facts(form: Subsets, *, with_lines: bool = False) -> dict:
    upload = word_line_upload(form) if with_lines else word_upload(form)
    return dict(upload_facts(upload, len(encode(upload))))


def test_the_account_of_an_image() -> None:
    """Golden: epsilon 10 of 2,000 features is 3,710 exactly composed, 20,000 in sum (words.md#composition); the posterior is
    7.35 %; 50 features compose to 209.7998, rounded up.
    """
    account = facts(subsets(2000, 2, words=256_000, epsilon=10.0))
    assert account["what"] == "2000 features as 2 of 256000 words each"
    assert account["dictionary"] == DICTIONARY
    assert account["guarantee"].startswith("epsilon 10 for each feature")
    feature, thing, image = account["privacy loss"]
    assert feature == "one feature: epsilon 10"
    assert thing.startswith("an object of 50 features: epsilon 209.8 at delta 1e-06") and "; 500 (the plain sum" in thing
    assert image.startswith("the image, 2000 features: epsilon 3710 at delta 1e-06") and "; 20000 (the plain sum" in image
    assert "with probability 0.0735," in account["posterior"]


def test_how_well_the_focal_length_is_known_is_said() -> None:
    """Golden: the class of the message, or a guess."""
    upload = word_upload(subsets())
    told = {}
    for focal in (GIVEN, FocalPrior(origin="EXIF", deviation=0.03), FocalPrior(origin="EXIF", deviation=0.2), GUESS):
        sent = replace(upload, camera=replace(upload.camera, focal=focal))
        told[focal] = upload_facts(decode(encode(sent)), 1000)["focal length"]
    focal_px = f"{upload.camera.focal_px:.6g} px"
    rounded, guess = "(one standard deviation, rounded up)", "a guess, or known no better than to 10 %"
    expected = [f"{focal_px}, known to 1 % {rounded}", f"{focal_px}, known to 5 % {rounded}", *2 * [f"{focal_px}, {guess}"]]
    assert list(told.values()) == expected


def test_few_features_are_no_object_of_fifty() -> None:
    _, thing, image = facts(subsets(7, 1, epsilon=0.5))["privacy loss"]
    assert thing.startswith("an object of 7 features") and image.startswith("the image, 7 features")
    assert "; 3.5 (the plain sum" in image


@pytest.mark.parametrize("with_lines", [False, True])
def test_what_no_guarantee_covers_is_said(with_lines: bool) -> None:
    """Counts, positions, size and intrinsics, the cell of a word, and repeats are named; subspaces are not mentioned."""
    account = facts(subsets(), with_lines=with_lines)
    for item in ("number", "line through each" if with_lines else "positions", "image size", "intrinsics", "no guarantee"):
        assert item in account["sent in clear"], item
    outside = " ".join(account["not protected"])
    assert "within that cell" in outside and "spends epsilon once more" in outside
    assert "subspace" not in json.dumps(account)
    assert ("guarantee of the lines" in account) == with_lines


def test_infinite_epsilon_promises_nothing() -> None:
    account = facts(subsets(epsilon=math.inf))
    assert account["guarantee"].startswith("no proof of privacy") and "not privacy" in account["guarantee"]
    assert account["privacy loss"].startswith("unlimited: nothing is promised")
    assert "for certain" in account["posterior"]
    assert "delta" not in json.dumps(account)


def test_the_command_prints_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of messages and of maps; each key of the JSON is documented."""
    (tmp_path / "words.veil").write_bytes(encode(word_upload(subsets(60))))
    raw = scene(0)
    images = {name: replace(image, form=subsets(len(image.keypoints))) for name, image in raw.images.items()}
    write_map(tmp_path / "map", replace(raw, images=images))
    kept = sum(len(image.form) for image in images.values())
    for name, expected in (
        ("words.veil", "an object of 50 features"),
        ("map", f"its {kept} features were kept because their words match"),
    ):
        assert main(["inspect", str(tmp_path / name)]) == 0
        said = capsys.readouterr().out
        assert expected in said and f"dictionary: {DICTIONARY}" in said
        assert main(["inspect", str(tmp_path / name), "--json", "-"]) == 0
        record = json.loads(capsys.readouterr().out)
        validate("inspect", record)
        section = JSON.partition("\n## veil inspect\n")[2]
        for key, value in record.items():
            assert f"`{key}`" in section
            assert isinstance(value, str) or all(isinstance(item, str) for item in value)


def test_a_map_claims_no_epsilon_for_the_features_it_chose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of ten features a map keeps the one that sent w. If w is the true word of none, that is likelier than if it is of all by
    (q / p) ((1 - q) / (1 - p))^9: more than the epsilon of the one feature that was kept.
    """
    law = SubsetMechanism(dictionary_size=8, epsilon=2.0, m=1)
    p, q = float(law.truth), float(law.other)
    assert math.log(q / p) + 9 * math.log((1 - q) / (1 - p)) > law.epsilon
    raw = scene(0)
    images = {name: replace(image, form=subsets(len(image.keypoints))) for name, image in raw.images.items()}
    write_map(tmp_path / "map", replace(raw, images=images))
    assert main(["inspect", str(tmp_path / "map")]) == 0
    loss = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("privacy loss"))
    assert "epsilon" not in loss and "veil budget show" in loss


def test_one_image_without_privacy_leaves_none_to_the_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = scene(0)
    images = {
        name: replace(image, form=subsets(len(image.keypoints), epsilon=math.inf if index == 2 else 1.0))
        for index, (name, image) in enumerate(raw.images.items())
    }
    write_map(tmp_path / "map", replace(raw, images=images))
    assert main(["inspect", str(tmp_path / "map")]) == 0
    said = capsys.readouterr().out
    assert "guarantee: no proof of privacy" in said and "privacy loss: unlimited" in said

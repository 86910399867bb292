"""`veil map remove`: no byte of a contribution stays in any file of the map, and the receipt says what went."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil import __version__
from veil.cli import main
from veil.files.maps.folders import file_digests, write_models
from veil.files.maps.format import read_map, write_map
from veil.forms import Subspaces
from veil.matching.pairs import all_pairs
from veil.places.pairs.blocks import KIND, matched_in_blocks
from veil.places.pairs.images import form_digest
from veil.places.pairs.store import MatchStore
from veil.scene import MappedImage
from worlds.map_scenes import CHECK, KINDS, image_name, planted_map
from worlds.schemas import validate
from worlds.servers import everything
from worlds.traces import Traces, traces_of

GONE = image_name("02")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def betrayed(folder: Path, traces: Traces) -> set[str]:
    """The kinds of prints of a contribution that the files of a folder hold."""
    return set(traces.counts(everything(folder)))


def planted(folder: Path, kind: str) -> MappedImage:
    """Write a planted map with an index and a record that name the contribution; returns it as it is stored."""
    scene, _ = planted_map(f"bytes {kind}", kind, points=90 if kind == "lines" else 60)
    if scene.check is not None:
        scene = replace(scene, check=replace(CHECK, left_out={"other.jpg": f"{GONE} shows the same"}))
    write_map(folder, scene)
    index = folder / "vocabularies" / "0123456789abcdef"
    index.mkdir(parents=True)
    np.save(index / "data.npy", scene.images[GONE].keypoints)
    (index / "header.json").write_text(json.dumps({"image_names": list(scene.images)}))
    return read_map(folder).images[GONE]


STORED = {
    "public": {"stored vectors"},
    "subspaces": {"stored origin", "stored basis"},
    "words": {"stored words"},
    "lines": {"stored origin", "stored basis", "stored lines/coefficients"},
}


@pytest.mark.slow
@pytest.mark.planted
@pytest.mark.parametrize("kind", KINDS)
def test_no_byte_of_a_contribution_is_left(kind: str, tmp_path: Path) -> None:
    """Search of all files for planted bytes; before, and in a copy with what veil must not do, the same search finds them.

    Broken twin: HDF5's own deletion, which keeps the bytes, and COLMAP's files and the index as they were.
    """
    planted(tmp_path / "map", kind)
    traces = traces_of(tmp_path / "map", GONE)
    expected = STORED[kind] | {"name", "keypoints as f4", "keypoints as f8"} | ({"gravity as f8"} if kind == "lines" else set())
    assert betrayed(tmp_path / "map", traces) >= expected >= traces.stored and traces.missed(everything(tmp_path / "map")) == {}
    shutil.copytree(tmp_path / "map", tmp_path / "twin")
    with h5py.File(tmp_path / "twin" / "descriptors.h5", "a") as file:
        del file[GONE]
    shutil.rmtree(tmp_path / "twin" / "vocabularies")
    for path in (tmp_path / "twin" / "sparse").iterdir():
        path.unlink()
    assert betrayed(tmp_path / "twin", traces) & STORED[kind], "HDF5 erases by now: the twin shows nothing any more"
    arguments = ("map", "remove", tmp_path / "map", GONE)
    assert run(*arguments, "-o", tmp_path / "copy") == 0 and betrayed(tmp_path / "map", traces) >= expected
    assert run(*arguments) == 0
    for folder in ("map", "copy"):
        assert betrayed(tmp_path / folder, traces) == set()
        assert GONE not in read_map(tmp_path / folder).images
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "map", "twin"]


@pytest.mark.slow
def test_the_receipt_lists_what_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the map before and after, and hashes of its files. The receipt itself betrays nothing but the name."""
    image = planted(tmp_path / "map", "subspaces")
    before, digests = read_map(tmp_path / "map"), file_digests(tmp_path / "map")
    assert run("map", "remove", tmp_path / "map", GONE, GONE, "--receipt", tmp_path / "receipt.json") == 0
    after, text = read_map(tmp_path / "map"), (tmp_path / "receipt.json").read_text()
    receipt = json.loads(text)
    validate("map-remove", receipt)
    assert receipt["veil"] == __version__ and receipt["in_place"] is True
    assert receipt["removed"] == [{"name": GONE, "features": len(image.form)}] and receipt["left_out"] == {}
    assert receipt["points"] == len(before.points) - len(after.points) > 0
    count = before.observation_count - after.observation_count - len(image.form)
    assert receipt["features_of_others"] == count > 0
    left = {"images": 5, "points": len(after.points), "observations": after.observation_count}
    assert receipt["left"] == left and receipt["check"] == json.loads(json.dumps(after.check and after.check.as_json()))
    assert {row["file"]: row["before"] for row in receipt["files"] if row["before"]} == digests
    for row in receipt["files"]:
        path = tmp_path / "map" / row["file"]
        assert row["after"] == (hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None)
    assert receipt["dropped"] == ["vocabularies/0123456789abcdef"]
    form = image.form
    assert isinstance(form, Subspaces)
    assert not any(f"{abs(value):.6f}" in text for value in (*form.origin[0], *image.keypoints[0]))
    said = capsys.readouterr().out
    assert f"removed {GONE}: {len(form)} features" in said and "run `veil index` again" in said
    assert all(f"{row['file']}: sha256 {(row['before'] or '')[:12]}" in said for row in receipt["files"])


@pytest.mark.slow
def test_further_models_of_a_map_of_lines_are_searched_too(tmp_path: Path) -> None:
    """Planted: two models. An image of the second leaves it; one more, and the second is no map, so it goes and is named."""
    first, _ = planted_map("first model", "lines", points=50)
    second, _ = planted_map("second model", "lines", points=120, images=5, seen=1.0)
    second = replace(second, images={f"b {name}": replace(image, name=f"b {name}") for name, image in second.images.items()})
    write_models(tmp_path / "map", [first, second])
    gone = f"b {GONE}"
    traces = traces_of(tmp_path / "map" / "models" / "2", gone)
    assert run("map", "remove", tmp_path / "map", gone, "--receipt", tmp_path / "r.json") == 0
    assert betrayed(tmp_path / "map", traces) == set()
    assert len(read_map(tmp_path / "map" / "models" / "2").images) == 4
    assert run("map", "remove", tmp_path / "map", f"b {image_name('00')}", "--receipt", tmp_path / "r.json") == 0
    assert not (tmp_path / "map" / "models").exists() and len(read_map(tmp_path / "map").images) == 6
    receipt = json.loads((tmp_path / "r.json").read_text())
    assert set(receipt["left_out"]) == {f"b {image_name(key)}" for key in ("01", "03", "04")}
    assert "no map of 4 images" in receipt["left_out"][f"b {image_name('01')}"]


def test_what_cannot_be_removed_says_so_and_nothing_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted(tmp_path / "map", "public")
    (tmp_path / "remove").mkdir()
    before = file_digests(tmp_path / "map")
    others = [image_name(f"0{number}") for number in range(5)]
    cases: list[tuple[list[object], str]] = [
        (["map", "remove", tmp_path / "map", "contribution 2.jpg"], "no image 'contribution 2.jpg'; names like it are"),
        (["map", "remove", tmp_path / "map", *others], "nothing was removed: no map of 2 images"),
        (["map", "remove", tmp_path / "map", GONE, "-o", tmp_path / "map"], "is not empty"),
        (["map", "remove", tmp_path / "none", GONE], "is not a veil map"),
        (["map", "remove", tmp_path / "map", GONE, "--receipt", tmp_path / "map" / "r.json"], "must not lie in the map"),
        (["map", str(tmp_path / "remove"), "-o", tmp_path / "m"], "holds no .veil messages"),
    ]
    for arguments, words in cases:
        assert run(*arguments) == 1
        assert words in capsys.readouterr().err
        assert file_digests(tmp_path / "map") == before
    (tmp_path / "map" / "notes.txt").write_text(GONE)
    assert run("map", "remove", tmp_path / "map", GONE) == 1
    assert "holds notes.txt, which veil did not make" in capsys.readouterr().err
    (tmp_path / "map" / "notes.txt").unlink()
    (tmp_path / "map" / "sparse" / "images.bin").write_bytes(b"damaged")
    assert run("map", "remove", tmp_path / "map", GONE) == 1
    assert "restore it or build the map again" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map", "remove"]


def test_a_folder_called_remove_is_mapped_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """`veil map ./remove` reads the folder, `veil map remove` is the other command."""
    (tmp_path / "remove").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run("map", "./remove", "-o", "m") == 1
    assert "remove holds no .veil messages" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        run("map", "remove")
    assert ended.value.code == 2 and "usage: veil map remove" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.planted
def test_no_byte_of_its_matches_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Search of the kept matches for the image's name, its digest and the distances of its matches; those of others stay.

    Broken twin: without --matches the folder still holds all of them.
    """
    planted(tmp_path / "map", "subspaces")
    images = read_map(tmp_path / "map").images
    forms = {name: image.form for name, image in images.items()}
    store = MatchStore(tmp_path / "kept", KIND)
    by_pair = matched_in_blocks(forms, all_pairs(sorted(forms)), store, workers=1)
    digest = form_digest(forms[GONE]).encode()
    own = [row.tobytes() for pair, matches in by_pair.items() if GONE in pair for row in matches.distances[:4]]
    others = [row.tobytes() for pair, matches in by_pair.items() if GONE not in pair for row in matches.distances[:4]]
    own = [print_ for print_ in own if print_ not in set(others)]
    assert len(own) > 10

    def held(prints: list[bytes]) -> int:
        content = [path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()]
        return sum(any(print_ in data for data in content) for print_ in prints)

    assert held([GONE.encode(), digest]) == 2 and held(own) == len(own)
    assert run("map", "remove", tmp_path / "map", GONE, "-o", tmp_path / "twin") == 0
    assert held([GONE.encode(), digest]) == 2
    assert run("map", "remove", tmp_path / "map", GONE, "--matches", tmp_path / "kept", "--json", tmp_path / "r.json") == 0
    assert held([GONE.encode(), digest, *own]) == 0 and held(others) == len(others)
    assert f"kept matches of {len(forms) - 1} pairs" in capsys.readouterr().out
    receipt = json.loads((tmp_path / "r.json").read_text())
    assert receipt["kept_pairs"] == len(forms) - 1

"""`veil map` by chosen pairs: lists, sequences, retrieval, and matches that are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from veil.cli import main
from veil.features import Features
from veil.files.features import write_features
from veil.places.pairs.store import MAGIC, SUFFIX
from worlds import world
from worlds.line_worlds import features_of
from worlds.schemas import validate


@pytest.fixture(scope="module")
def features() -> dict[str, Features]:
    """Features of a planted world; a few descriptors differ, as no two photographs have equal features."""
    place = world("pairs", images=6, points=250)
    by_name = {}
    for number, (name, item) in enumerate(features_of(place, "pairs").items()):
        descriptors = item.descriptors.copy()
        descriptors[number, :8] = descriptors[number, 7::-1]
        by_name[f"{name}.jpg"] = replace(item, descriptors=descriptors)
    return by_name


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def written(path: Path, features: dict[str, Features], names: list[str]) -> Path:
    write_features(path, [(name, features[name]) for name in names])
    return path


@pytest.mark.slow
def test_kept_matches_are_used_again_and_go_with_their_images(
    features: dict[str, Features], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Second method: maps of kept matches, and of matches made anew, have the same points; blocks of images that are gone are
    gone, and those of the others are the same files or parts of them."""
    names = sorted(features)
    everything = written(tmp_path / "all.h5", features, names)
    fewer = written(tmp_path / "fewer.h5", features, names[:-1])
    records = []
    for index, (given, more) in enumerate(
        [(everything, ["--matches", tmp_path / "kept"]), (fewer, ["--matches", tmp_path / "kept"]), (fewer, [])]
    ):
        out = tmp_path / f"map{index}"
        assert run("map", given, "-o", out, "--json", tmp_path / "r.json", *more) == 0
        validate("map", record := json.loads((tmp_path / "r.json").read_text()))
        records.append(record)
        assert not out.with_name(out.name + ".unfinished").exists()
    assert "removed the matches of 1 images that are gone (5 pairs)" in capsys.readouterr().out
    assert [record["pairs"]["possible"] for record in records] == [15, 10, 10]
    assert records[1]["points"] == records[2]["points"] and records[1]["observations"] == records[2]["observations"]
    assert records[0]["models"] == [{"images": 6, "points": records[0]["points"]}]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["list", "sequential", "retrieval"])
def test_fewer_pairs_make_a_map(which: str, features: dict[str, Features], tmp_path: Path) -> None:
    """Planted world: neighbors are enough, and fewer pairs than all are matched."""
    names = sorted(features)
    given = written(tmp_path / "f.h5", features, names)
    listed = tmp_path / "pairs.txt"
    listed.write_text("".join(f"{a} {b}\n" for i, a in enumerate(names) for b in names[i + 1 : i + 4]))
    asked = listed if which == "list" else which
    count = [] if which == "list" else ["--pair-count", 2]
    assert run("map", given, "-o", tmp_path / "map", "--pairs", asked, *count, "--json", tmp_path / "r") == 0
    record = json.loads((tmp_path / "r").read_text())
    assert 0 < record["pairs"]["chosen"] < record["pairs"]["possible"] and record["registered"] == 6


def test_pairs_that_cannot_be_are_refused(
    features: dict[str, Features], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown images, no such list, a folder of something else, a block of another version: nothing is written or lost."""
    given = written(tmp_path / "f.h5", features, sorted(features)[:3])
    (tmp_path / "pairs.txt").write_text("00.jpg nobody.jpg\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("precious")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / f"x{SUFFIX}").write_bytes(MAGIC + (9).to_bytes(2, "little") + bytes(60))
    for options, said in (
        (["--pairs", tmp_path / "pairs.txt"], "nobody.jpg"),
        (["--pairs", "sometimes"], "no such file"),
        (["--matches", tmp_path / "other"], "other files"),
        (["--matches", tmp_path / "newer"], "version 9"),
    ):
        assert run("map", given, "-o", tmp_path / "map", *options) == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / "map").exists() and (tmp_path / "other" / "mine.txt").read_text() == "precious"
    assert (tmp_path / "newer" / f"x{SUFFIX}").exists()

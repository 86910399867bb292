"""`veil privatize` releases all images of a file, or none of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.cli.device import privatize
from veil.device.device import Device, releasing
from veil.device.protection import HideInSubspaces, Protection
from veil.errors import ReleaseRefused
from veil.features import Features
from veil.files.device.home import home
from veil.files.device.ledger import Ledger
from veil.files.features import write_features
from veil.mechanisms.selection import ChosenFeatures, Selection
from worlds import features, generator

NAMES = ("a.jpg", "b.jpg", "c.jpg")
IMAGES = [(name, features(generator(name), 40, name=name)) for name in NAMES]
PLAIN, FEWER = (Protection(descriptors=HideInSubspaces(selection=Selection(features=count))) for count in (None, 20))


def run(*words: object) -> int:
    return main(list(map(str, words)))


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("refused", NAMES)
def test_one_refused_image_stops_all(tmp_path: Path, refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Second method: the ledger and the folder themselves, whichever image was released otherwise before."""
    write_features(tmp_path / "one.h5", [(name, item) for name, item in IMAGES if name == refused])
    write_features(tmp_path / "all.h5", IMAGES)
    assert run("privatize", tmp_path / "one.h5", "-o", tmp_path / "up", "--for", "map", "--features", 20) == 0
    entries, messages = Ledger(home()).entries(), tree(tmp_path / "up")
    capsys.readouterr()
    for folder in ("up", "new"):
        assert (
            run("privatize", tmp_path / "all.h5", "-o", tmp_path / folder, "--for", "map", "--json", tmp_path / "r.json") == 1
        )
        told = capsys.readouterr().err
        assert refused in told and "no image was released, and nothing was written" in told
    assert Ledger(home()).entries() == entries and tree(tmp_path / "up") == messages
    assert not (tmp_path / "new").exists() and not (tmp_path / "r.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if "veil" in path.name and path.name.startswith(".")) == []
    assert run("privatize", tmp_path / "all.h5", "-o", tmp_path / "new", "--for", "map", "--allow-second-release") == 0
    assert len(tree(tmp_path / "new")) == 3 and len(Ledger(home()).entries()) == 4


@pytest.mark.parametrize("refused", [None, "b.jpg"])
def test_what_a_map_uses_is_released_together_too(
    tmp_path: Path, refused: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted choice in place of the device's own map, which holds two of three images."""
    chosen = {name: ChosenFeatures(rows=np.arange(0, 30, 3)) for name in NAMES[:2]}
    monkeypatch.setattr(privatize, "select_for_map", lambda photographs, sent, steps: chosen)
    write_features(tmp_path / "all.h5", IMAGES)
    if refused is not None:
        Device().release(dict(IMAGES)[refused], FEWER, name=refused)
    words = ("privatize", tmp_path / "all.h5", "-o", tmp_path / "up", "--for", "map", "--json", tmp_path / "r.json")
    assert run(*words) == (0 if refused is None else 1)
    if refused is not None:
        assert len(Ledger(home()).entries()) == 1 and not (tmp_path / "up").exists()
        return
    told = capsys.readouterr().out
    assert "what a map of these photographs uses" in told and "1 of 3 photographs are not in the device's own map" in told
    counts = {row["name"]: row["features"] for row in json.loads((tmp_path / "r.json").read_text())["releases"]}
    assert (counts["a.jpg"], counts["b.jpg"]) == (10, 10) and counts["c.jpg"] > 10


@pytest.mark.slow
def test_a_folder_may_grow(door: dict[str, Features], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second call repeats all messages of the first, and a map of all holds the new photograph, too."""
    photographs = list(door.items())[:6]
    for name, count in (("few", 5), ("more", 6)):
        write_features(tmp_path / f"{name}.h5", photographs[:count])
        assert run("privatize", tmp_path / f"{name}.h5", "-o", tmp_path / name, "--for", "map") == 0
    few, more = tree(tmp_path / "few"), tree(tmp_path / "more")
    assert len(few) == 5 and len(more) == 6 and few.items() <= more.items()
    assert run("map", tmp_path / "more", "-o", tmp_path / "map") == 0
    assert "6 of 6" in capsys.readouterr().out


def test_one_by_one_each_leaves_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only a map could choose is not asked for: two photographs, numbers, words, and what was asked one by one."""
    monkeypatch.setattr(privatize, "select_for_map", lambda *_, **__: pytest.fail("a map of the photographs was made"))
    write_features(tmp_path / "all.h5", IMAGES)
    write_features(tmp_path / "two.h5", IMAGES[:2])
    asked: list[tuple[str, ...]] = [
        ("two.h5", "--for", "map"),
        ("all.h5", "--obfuscate"),
        ("all.h5", "--for", "map", "--features", "20"),
    ]
    asked += [("all.h5", "--words", "bundled", "--epsilon", "5")]
    for number, (file, *words) in enumerate(asked):
        assert run("privatize", tmp_path / file, "-o", tmp_path / str(number), *words, "--allow-second-release") == 0


def test_releases_of_a_block_are_entered_together(tmp_path: Path) -> None:
    """Enumeration: an error enters none of them; a second release of one image within the block counts as one."""
    device = Device(tmp_path)
    with pytest.raises(RuntimeError), releasing(device) as make_release:
        make_release(IMAGES[0][1], PLAIN, "a.jpg")
        raise RuntimeError
    assert device.ledger.entries() == []
    with pytest.raises(ReleaseRefused), releasing(device) as make_release:
        make_release(IMAGES[0][1], PLAIN, "a.jpg")
        make_release(IMAGES[0][1], FEWER, "a.jpg")
    assert device.ledger.entries() == []
    with releasing(device, allow_second=True) as make_release:
        made = [make_release(IMAGES[0][1], protection, "a.jpg") for protection in (PLAIN, FEWER, PLAIN)]
    assert [entry.released_as for entry in device.ledger.entries()] == [item.released_as for item in made[:2]]
    assert made[0].released_as != made[1].released_as and made[2].released_as == made[0].released_as
    assert made[0].message == device.release(IMAGES[0][1], PLAIN, name="a.jpg").message

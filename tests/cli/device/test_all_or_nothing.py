"""`veil privatize` releases all images of a file, or none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from veil.cli import main
from veil.device.device import Device, releasing
from veil.device.protection import HideInSubspaces, Protection
from veil.errors import ReleaseRefused
from veil.files.device.home import home
from veil.files.device.ledger import Ledger
from veil.files.features import write_features
from veil.mechanisms.selection import Selection
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
    assert run("privatize", tmp_path / "one.h5", "-o", tmp_path / "up", "--features", 20) == 0
    entries, messages = Ledger(home()).entries(), tree(tmp_path / "up")
    capsys.readouterr()
    for folder in ("up", "new"):
        assert run("privatize", tmp_path / "all.h5", "-o", tmp_path / folder, "--json", tmp_path / "r.json") == 1
        told = capsys.readouterr().err
        assert refused in told and "no image was released, and nothing was written" in told
    assert Ledger(home()).entries() == entries and tree(tmp_path / "up") == messages
    assert not (tmp_path / "new").exists() and not (tmp_path / "r.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if "veil" in path.name and path.name.startswith(".")) == []
    assert run("privatize", tmp_path / "all.h5", "-o", tmp_path / "new", "--allow-second-release") == 0
    assert len(tree(tmp_path / "new")) == 3 and len(Ledger(home()).entries()) == 4


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

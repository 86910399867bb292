"""`veil audit TILES/`: what published tiles show, from a folder to a page, a record and lines for people."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.features import write_features
from veil.files.tiles import RECORDS, write_tiles
from veil.tiles.cutting import CutOptions, cut
from worlds.schemas import validate
from worlds.tile_streets import street


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiles of a planted street, and features of a photograph there and of one elsewhere."""
    folder = tmp_path_factory.mktemp("tile-audit")
    place = street("tile audit command", cameras=8)
    write_tiles(folder / "tiles", cut(place.scene, CutOptions(tile_bytes=40_000, axes=120, asked=2)))
    there, elsewhere = place.query(3.3)[0], street("tile audit command, elsewhere", cameras=3).query(1.0)[0]
    write_features(folder / "f.h5", [("there.jpg", there), ("elsewhere.jpg", elsewhere)])
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "there.jpg")
    return folder


def audited(work: Path, *choices: object) -> tuple[int, dict, str]:
    words = ["audit", work / "tiles", "-o", work / "a.html", "--json", work / "a.json", *choices]
    code = main([str(word) for word in words])
    record = json.loads((work / "a.json").read_text())
    validate("audit-tiles", record)
    return code, record, (work / "a.html").read_text()


@pytest.mark.slow
def test_photographs_stand_beside_what_the_tiles_show(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bundled network draws the planted place; the photograph of elsewhere is named, and gets no picture."""
    code, record, page = audited(work, "--images", work / "f.h5", work / "there.jpg")
    assert code == 0
    (view,) = record["views"]
    assert view["name"] == "there.jpg" and len(view["tiles"]) == 2 and view["seen"] > 100
    assert view["descriptors"]["matched"] > 100 and view["descriptors"]["within_0.4"] > 90
    assert [picture["source"] for picture in view["pictures"]] == ["tiles", "raw features"]
    assert all(picture["ssim"] is not None for picture in view["pictures"])
    assert list(record["no_pose"]) == ["elsewhere.jpg"]
    assert page.count("data:image/") == 4 and "http://" not in page and "https://" not in page
    printed = capsys.readouterr().out
    for text in (page, printed, record["statement"]):
        assert "public raw descriptors" in text
    assert "elsewhere.jpg: no pose" in printed and "ssim" in printed


@pytest.mark.slow
def test_without_photographs_the_fullest_tiles_are_shown(work: Path) -> None:
    code, record, page = audited(work, "--pictures", 1)
    assert code == 0 and len(record["views"]) == 1 and page.count("data:image/") == 2
    assert record["views"][0]["descriptors"] is None and "No photographs were given" in page
    assert audited(work, "--pictures", 0)[1]["views"] == []


@pytest.mark.slow
def test_a_photograph_itself_is_extracted(work: Path) -> None:
    """Noise shows nothing of the place, and is told to."""
    record = audited(work, "--images", work / "there.jpg")[1]
    assert record["views"] == [] and list(record["no_pose"]) == ["there.jpg"]


def test_options_for_uploads_are_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(work / "tiles"), "--fail-on", "structural>5%", "--secret-decoys"]) == 1
    assert "leave out --secret-decoys, --fail-on" in capsys.readouterr().err


@pytest.mark.slow
def test_damaged_tiles_are_refused(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiles").mkdir()
    for path in (work / "tiles").iterdir():
        data = bytearray(path.read_bytes())
        if path.name == RECORDS:
            data[100] ^= 1
        (tmp_path / "tiles" / path.name).write_bytes(bytes(data))
    assert main(["audit", str(tmp_path / "tiles"), "-o", str(tmp_path / "a.html")]) == 1
    assert "is not the one that the manifest names" in capsys.readouterr().err and not (tmp_path / "a.html").exists()

"""`veil map` of messages that hide their positions, from photographs to poses, and what it says when something is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.maps.checkpoints import Checkpoints
from veil.files.maps.format import read_map
from veil.files.photographs.examples import lund_door
from veil.geometry.similarity import align_poses, pose_error
from worlds.schemas import validate

NAMES = ("01", "02", "03", "04", "05", "06")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """Six photographs as messages with lines, gravity from their edges."""
    folder = tmp_path_factory.mktemp("lines")
    with pytest.MonkeyPatch.context() as patch, lund_door() as example:
        patch.setenv("VEIL_HOME", str(folder / "home"))
        (folder / "home").mkdir()
        # A secret of its own each time would make other lines, name messages otherwise, and leave out another photograph below.
        (folder / "home" / "secret").write_bytes(b"line maps".ljust(32, b"."))
        (folder / "home" / "secret").chmod(0o600)
        (folder / "photos").mkdir()
        for name in NAMES:
            shutil.copy(example.folder / f"DSC_00{name}.jpg", folder / "photos")
        camera = ",".join([example.camera.model, *map(str, example.camera.params)])
        assert run("gravity", folder / "photos", "-o", folder / "g.csv", "--from", "vanishing-point", "--camera", camera) == 0
        assert run("extract", folder / "photos", "-o", folder / "f.h5", "--camera", camera, "--max-features", "1200") == 0
        release = ["-o", folder / "up", "--for", "map", "--lines", "--gravity", folder / "g.csv", "--json", folder / "up.json"]
        assert run("privatize", folder / "f.h5", *release) == 0
        assert run("map", folder / "up", "-o", folder / "map", "--json", folder / "map.json") == 0
    return folder


@pytest.mark.slow
def test_photographs_are_mapped_from_lines_alone(work: Path) -> None:
    """Against the COLMAP reference of the example: all six, a thousandth of their extent, a tenth of a degree."""
    facts = json.loads((work / "map.json").read_text())
    validate("map", facts)
    assert facts["registered"] == facts["images"] == 6 and facts["lines"] is True
    assert not (work / "map.unfinished").exists()
    names = {row["file"]: row["name"] for row in json.loads((work / "up.json").read_text())["releases"]}
    scene = read_map(work / "map")
    with lund_door() as example:
        keys = sorted(scene.images)
        reference = [example.poses[names[f"{key}.veil"]] for key in keys]
        ours = [scene.images[key].cam_from_world for key in keys]
        alignment = align_poses(ours, reference)
        errors = np.array([pose_error(a, b, alignment) for a, b in zip(ours, reference, strict=True)])
        extent = np.linalg.norm(np.ptp([pose.center for pose in reference], axis=0))
    assert errors[:, 0].max() < 0.005 * extent
    assert errors[:, 1].max() < 0.2


@pytest.mark.slow
def test_locate_is_refused_for_lines(work: Path, tmp_path: Path, capsys) -> None:
    assert run("map", work / "up", "-o", tmp_path / "map", "--locate") != 0
    assert "--locate applies to images with positions" in capsys.readouterr().err
    assert not (tmp_path / "map").exists()


@pytest.mark.slow
def test_a_query_localizes_against_it(work: Path, capsys) -> None:
    query = next((work / "up").glob("*.veil"))
    assert run("localize", work / "map", query) == 0
    assert "camera center" in capsys.readouterr().out


@pytest.mark.slow
def test_images_are_added_to_a_map(work: Path, tmp_path: Path) -> None:
    """Five first, the sixth added: six images, and the first map is as it was."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    files = sorted((work / "up").glob("*.veil"))
    for file in files:
        shutil.copy(file, second if file == files[2] else first)
    assert run("map", first, "-o", tmp_path / "map1") == 0
    before = (tmp_path / "map1" / "descriptors.h5").read_bytes()
    assert run("map", second, "--add-to", tmp_path / "map1", "-o", tmp_path / "map2", "--json", tmp_path / "m.json") == 0
    assert json.loads((tmp_path / "m.json").read_text())["registered"] == 6
    assert (tmp_path / "map1" / "descriptors.h5").read_bytes() == before
    assert run("map", second, "--add-to", tmp_path / "map2", "-o", tmp_path / "map3") == 1
    assert not (tmp_path / "map3").exists()


@pytest.mark.slow
def test_what_cannot_be_mapped_says_so(work: Path, tmp_path: Path, capsys) -> None:
    """Three images; an unfinished run of other messages; a bad ratio; positions added to lines. Nothing is left behind."""
    three = tmp_path / "three"
    three.mkdir()
    for file in sorted((work / "up").glob("*.veil"))[:3]:
        shutil.copy(file, three)
    assert run("map", three, "-o", tmp_path / "m") == 1
    assert "at least four images" in capsys.readouterr().err
    Checkpoints(tmp_path / "n.unfinished", "another run")
    assert run("map", work / "up", "-o", tmp_path / "n") == 1
    assert "unfinished run of other messages" in capsys.readouterr().err
    assert run("map", work / "up", "-o", tmp_path / "o", "--ratio", "7") == 1
    assert "--ratio takes" in capsys.readouterr().err
    assert run("map", work / "up", "-o", tmp_path / "o", "--mapper", "global") == 1
    assert (
        "--mapper applies to images with positions, and not to messages that hide positions in lines" in capsys.readouterr().err
    )
    assert run("map", work / "f.h5", "--add-to", work / "map", "-o", tmp_path / "p") == 1
    assert "the map was made from lines" in capsys.readouterr().err
    assert not any((tmp_path / name).exists() for name in ("m", "n", "o", "p"))

"""`veil localize --sequence` and messages of sequences: a planted place, and what is refused by its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.codebooks import write_codebook
from veil.files.photographs.frame_motions import COLUMNS
from veil.geometry.rigid import Rigid
from veil.places.held_map import Map
from veil.wire import encode
from veil.wire.message import Upload
from veil.wire.sequence import Sequence, encode_sequence
from worlds import world
from worlds.word_worlds import dictionary_of, scene_of, with_down, words_of

PLACE = world("sequences on the command line", images=8, points=600)
HELD = ("02", "03", "04")
DOWN = np.array([0.0, 1.0, 0.0])
DICTIONARY = dictionary_of(PLACE, others=3000)


def motions() -> list[Rigid]:
    first = PLACE.poses[HELD[0]].inverse()
    return [PLACE.poses[name] @ first for name in HELD]


def frames() -> list[Upload]:
    return [
        Upload(
            camera=PLACE.camera,
            keypoints=PLACE.keypoints[name],
            form=replace(words_of(PLACE.form(name), DICTIONARY, epsilon=6.0, name=name), releasable=True),
            gravity=PLACE.poses[name].rotation @ DOWN,
        )
        for name in HELD
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map without the frames, their messages, their table of motions, and one message of all."""
    path = tmp_path_factory.mktemp("sequence")
    scene = with_down(scene_of(PLACE), DOWN)
    Map(scene=replace(scene, images={name: one for name, one in scene.images.items() if name not in HELD})).write(path / "map")
    write_codebook(path / "dictionary.npz", DICTIONARY)
    (path / "frames").mkdir()
    rows = [",".join(COLUMNS)]
    for name, frame, motion in zip(HELD, frames(), motions(), strict=True):
        (path / "frames" / f"f{name}.veil").write_bytes(encode(frame))
        rows.append(",".join([f"f{name}", *(repr(float(v)) for v in (*motion.rotation.ravel(), *motion.translation))]))
    (path / "poses.csv").write_text("\n".join(rows) + "\n")
    whole = Sequence(frames=tuple(frames()), cam_from_rig=tuple(motions()))
    (path / "whole.veil").write_bytes(encode_sequence(whole))
    return path


def run(folder: Path, *arguments: object) -> int:
    return main(["localize", str(folder / "map"), *map(str, arguments), "--dictionary", str(folder / "dictionary.npz")])


def require_truth(path: Path) -> None:
    rows = json.loads(path.read_text())["queries"]
    assert len(rows) == len(HELD)
    for row, name in zip(rows, HELD, strict=True):
        assert row["status"] == "localized"
        assert np.linalg.norm(np.array(row["camera_center"]) - PLACE.poses[name].center) < 0.02


@pytest.mark.slow
def test_frames_with_a_table_and_one_message_have_one_answer(folder: Path, tmp_path: Path) -> None:
    own = sorted((folder / "frames").glob("*.veil"))
    assert run(folder, *own, "--sequence", folder / "poses.csv", "--json", tmp_path / "table.json") == 0
    assert run(folder, folder / "whole.veil", "--json", tmp_path / "whole.json") == 0
    require_truth(tmp_path / "table.json")
    require_truth(tmp_path / "whole.json")
    poses = [json.loads((tmp_path / name).read_text())["queries"] for name in ("table.json", "whole.json")]
    assert [row["cam_from_world"] for row in poses[0]] == [row["cam_from_world"] for row in poses[1]]


def test_a_sequence_without_its_motions_or_with_both_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = sorted((folder / "frames").glob("*.veil"))
    few = folder / "few.csv"
    few.write_text("\n".join((folder / "poses.csv").read_text().splitlines()[:3]) + "\n")
    assert run(folder, *own, "--sequence", few) == 1
    assert "no motion of f04" in capsys.readouterr().err
    assert run(folder, folder / "whole.veil", "--sequence", folder / "poses.csv") == 1
    assert "holds the motions of its frames; leave out --sequence" in capsys.readouterr().err
    assert run(folder, folder / "whole.veil", "--motion-scale", "1e9") == 1
    assert "is the scale wrong" in capsys.readouterr().err

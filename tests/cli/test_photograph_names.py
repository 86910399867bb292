"""--names: photographs in place of their messages in what commands print, and tables by photograph that they read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.cli.common import by_message, named_facts, naming, photograph_of, printable, with_photographs
from veil.cli.server.pose_rows import report_poses
from veil.features import Features
from veil.files.features import write_features
from veil.files.photographs.names import read_names
from veil.geometry.rigid import Rigid
from worlds import features, generator
from worlds.releases import taken

ID, FRESH, OTHER = "9bdc780da89b76b6", "9bdc780da89b76b6-01234567", "00000000000000ff"
NAMES = {ID: "hall/a b.jpg", FRESH: "c.jpg"}


def run(*words: object) -> int:
    return main(list(map(str, words)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{ID}: no pose", "hall/a b.jpg: no pose"),
        (f"skipped {ID}.veil: it is words", "skipped hall/a b.jpg: it is words"),
        (f"('{ID}', {FRESH}) disagree.", "('hall/a b.jpg', c.jpg) disagree."),
        (f"{ID}.", "hall/a b.jpg."),
        (f"upload/{ID}.veil is damaged", f"upload/{ID}.veil is damaged"),
        (f"{ID}0 {ID}-0 0{ID} x.{ID} {ID}.jpg", f"{ID}0 {ID}-0 0{ID} x.{ID} {ID}.jpg"),
        (f"{OTHER} is not in the table", f"{OTHER} is not in the table"),
    ],
)
def test_messages_are_named_by_photograph(text: str, shown: str) -> None:
    """Whole names of messages alone are replaced: paths and longer words stay, and so does everything outside of the block."""
    assert with_photographs(text, NAMES) == shown
    with naming(NAMES):
        assert printable(text) == shown
    assert printable(text) == text


def test_tables_by_photograph_are_read() -> None:
    """Each message of a photograph gets its row; names that the table lacks stay as they are."""
    twice = {ID: "a.jpg", FRESH: "a.jpg", OTHER: "b.jpg"}
    rows = {"a.jpg": 1, "c.jpg": 2, OTHER: 3}
    with naming(twice):
        assert by_message(rows) == {ID: 1, FRESH: 1, "c.jpg": 2, OTHER: 3}
        assert named_facts([OTHER, "c.jpg"]) == {"photographs": {OTHER: "b.jpg"}}
        assert photograph_of(ID) == "a.jpg" and photograph_of("c.jpg") == "c.jpg"
    assert by_message(rows) == rows and named_facts([OTHER]) == {} and photograph_of(ID) == ID


def test_two_messages_of_one_photograph_keep_their_poses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three poses go in and three lines come out but for a name with blanks, which is told."""
    poses = {name: Rigid(np.eye(3), np.full(3, float(number))) for number, name in enumerate((ID, FRESH, OTHER, "00ff"))}
    with naming({ID: "a.jpg", FRESH: "a.jpg", OTHER: "b.jpg", "00ff": "x y.jpg"}):
        report_poses(None, tmp_path / "poses.txt", poses)
    lines = [line.split()[0] for line in (tmp_path / "poses.txt").read_text().splitlines()]
    told = capsys.readouterr()
    assert lines == [ID, FRESH, "b.jpg"] and "'x y.jpg' is not in" in told.err and "wrote 3 poses" in told.out


def test_privatize_writes_and_extends_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Second method: the record of the releases. A table among the messages is refused, before anything is released."""
    table, told = tmp_path / "names.csv", tmp_path / "told.json"
    expected: dict[str, str] = {}
    for name in ("a.jpg", "dir/b, c.jpg"):
        write_features(tmp_path / "f.h5", [(name, features(generator(name), 40, name=name))])
        assert (
            run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up", "--for", "map", "--write-names", table, "--json", told)
            == 0
        )
        (row,) = json.loads(told.read_text())["releases"]
        expected[row["file"].removesuffix(".veil")] = name
        assert read_names(table) == expected
    assert {path.stem for path in (tmp_path / "up").iterdir()} == set(expected)
    capsys.readouterr()
    assert (
        run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up2", "--for", "map", "--write-names", tmp_path / "up2" / "n.csv")
        == 1
    )
    assert "would leave with the messages" in capsys.readouterr().err and not (tmp_path / "up2").exists()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert (
        run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up2", "--for", "map", "--write-names", tmp_path / "other.csv")
        == 1
    )
    assert "has no column image" in capsys.readouterr().err and (tmp_path / "other.csv").read_text() == "a,b\n1,2\n"


def test_a_table_that_is_none_stops_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The remedy names the option that writes one."""
    (tmp_path / "names.csv").write_text("image,photograph\n")
    assert run("localize", tmp_path, tmp_path / "q.veil", "--names", tmp_path / "names.csv") == 1
    assert "veil privatize --write-names" in capsys.readouterr().err


@pytest.mark.slow
def test_answers_name_photographs(door: dict[str, Features], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A private map and its query: text, JSON and poses name the photographs, and gravity is read by photograph."""
    names = list(door)
    few = {name: taken(item, np.arange(500)) for name, item in door.items()}
    write_features(tmp_path / "all.h5", few.items())
    table = tmp_path / "names.csv"
    assert run("privatize", tmp_path / "all.h5", "-o", tmp_path / "up", "--for", "map", "--write-names", table) == 0
    by_name = {photograph: message for message, photograph in read_names(table).items()}
    query = (tmp_path / "up" / f"{by_name[names[-1]]}.veil").rename(tmp_path / f"{by_name[names[-1]]}.veil")
    told, poses = tmp_path / "told.json", tmp_path / "poses.txt"
    rows = ["image,x,y,z", *(f"{name},0,1,0" for name in names[:-1])]
    (tmp_path / "g.csv").write_text("\n".join(rows) + "\n")
    named = ("--names", table, "--json", told)
    assert run("map", tmp_path / "up", "-o", tmp_path / "map", "--gravity", tmp_path / "g.csv", *named) == 0
    record = json.loads(told.read_text())
    assert set(record["photographs"].values()) == set(names[:-1]) and record["gravity"]["readings"] >= 2
    capsys.readouterr()
    assert run("localize", tmp_path / "map", query, *named, "--write-poses", poses) == 0
    shown = capsys.readouterr().out
    row = json.loads(told.read_text())
    assert row["photographs"] == {query.stem: names[-1]} and row["queries"][0]["name"] == query.stem
    assert f"{names[-1]}: camera center" in shown and query.stem not in shown and "qw qx qy qz" in shown
    name, *numbers = poses.read_text().split()
    pose = row["queries"][0]["cam_from_world"]
    assert name == names[-1] and np.allclose([float(value) for value in numbers[4:]], pose["translation"], atol=1e-12)

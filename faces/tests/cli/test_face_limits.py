"""`veil faces` after too many failed attempts: refused with a cause, a time and a remedy, for a day or until it is unlocked."""

from __future__ import annotations

import json
import re
import time
from functools import partial
from pathlib import Path

import pytest

from face_worlds.crowd import crowd, pairs_of
from veil.cli import main
from veil_faces.files.face_store import FaceStore
from veil_faces.files.faces import write_faces
from worlds.schemas import validate

FACES = crowd("victims", 64, 3)
DECOYS = ("--decoys", "others.npz")
DAY_S = 86400.0


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def picture(number: int, which: int) -> tuple[str, str, str]:
    return "faces.npz", "--face-name", f"victims{number:03d}/victims{number:03d}_{which:04d}.jpg"


@pytest.fixture
def hall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a calibrated store that identifies, in which Alice is enrolled."""
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_faces(Path("faces.npz"), FACES)
    write_faces(Path("others.npz"), crowd("decoys", 80, 1))
    pairs = pairs_of(FACES, 40)
    lines = [f"{FACES.names[a]},{FACES.names[b]},{int(c)}" for a, b, c in zip(pairs.left, pairs.right, pairs.same, strict=True)]
    Path("pairs.csv").write_text("\n".join(["image_a,image_b,same", *lines]))
    assert run("faces", "create", "hall.store", *DECOYS, "--by", "p2s", "--m", 2, "--lifting", "random") == 0
    fitted = ("--face-pairs", "pairs.csv", "--fpir", 0.15)
    assert run("faces", "calibrate", "hall.store", "faces.npz", *DECOYS, *fitted) == 0
    assert run("faces", "enroll", "hall.store", *picture(3, 1), "--person", "alice", *DECOYS) == 0
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("action", ["verify", "identify"])
def test_failed_attempts_are_limited(
    action: str, hall: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the policy. Five fail, the sixth is refused, and so is Alice, until a day later or the owner unlocks."""
    named = ("--person", "alice") if action == "verify" else ()

    def asked(number: int) -> int:
        return run("faces", action, "hall.store", *picture(number, 2), *named, *DECOYS, "--json", "told.json")

    for _ in range(7):
        assert asked(3) == 0, "right answers are not limited"
    for _ in range(5):
        assert asked(12) == 3 and json.loads(Path("told.json").read_text())["reason"] == "distance"
    capsys.readouterr()
    for number in (12, 3):
        assert asked(number) == 3
        told = json.loads(Path("told.json").read_text())
        validate(f"faces-{action}", told)
        assert told["reason"] == "limit" and told["accepted"] is False and told.get("band") is None
        printed = capsys.readouterr().out
        assert re.search(r"too many failed attempts.*ask again at \d{4}-.*Z; .*`veil faces unlock`", printed)
        assert told["again"] in printed
    assert run("faces", "list", "hall.store", "--json", "told.json") == 0
    listed = json.loads(Path("told.json").read_text())
    validate("faces-list", listed)
    assert [item["person"] for item in listed["failed"]] == ["alice" if named else None] and listed["failures_a_day"] == 1
    now_s = time.time()
    with monkeypatch.context() as patch:
        later = partial(FaceStore, clock=lambda: now_s + DAY_S + 60)
        patch.setattr("veil_faces.cli.asked_store.FaceStore", later)
        assert asked(12) == 3 and json.loads(Path("told.json").read_text())["reason"] == "distance"
        assert asked(3) == 3 and json.loads(Path("told.json").read_text())["reason"] == "limit"
    assert run("faces", "unlock", "hall.store", *named, "--json", "told.json") == 0
    validate("faces-unlock", json.loads(Path("told.json").read_text()))
    assert asked(3) == 0


@pytest.mark.slow
def test_what_is_not_compared_does_not_count(hall: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person of another name, and one who is not enrolled for a purpose, are no questions about Alice."""
    for _ in range(7):
        for person, purpose in (("bob", "default"), ("alice", "roof")):
            named = ("--person", person, "--purpose", purpose, "--json", "told.json")
            assert run("faces", "verify", "hall.store", *picture(12, 2), *named, *DECOYS) == 3
            assert json.loads(Path("told.json").read_text())["reason"] == "no template"
    assert run("faces", "verify", "hall.store", *picture(3, 2), "--person", "alice", *DECOYS) == 0
    assert run("faces", "unlock", "hall.store", "--person", "alice") == 1
    assert "nothing to unlock" in capsys.readouterr().err


@pytest.mark.slow
def test_an_accepted_face_tells_no_band_and_no_other_candidate(hall: Path) -> None:
    """Bands within what is accepted would be questions that no limit of failures counts."""
    assert run("faces", "enroll", "hall.store", *picture(5, 1), "--person", "carol", *DECOYS) == 0
    assert run("faces", "identify", "hall.store", *picture(3, 2), *DECOYS, "--top", 2, "--json", "told.json") == 0
    told = json.loads(Path("told.json").read_text())
    assert told["candidates"] == [{"person": "alice", "band": None, "score": None, "accepted": True}]


@pytest.mark.slow
def test_a_store_has_the_limit_that_it_was_made_with(hall: Path) -> None:
    assert run("faces", "create", "gate.store", *DECOYS, "--failures", 4) == 0
    assert run("faces", "list", "gate.store", "--json", "told.json") == 0
    assert json.loads(Path("told.json").read_text())["failures_a_day"] == 4

"""Face stores under attack: what somebody changed in the file, put back, or renamed verifies nobody, and says so."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from face_worlds.crowd import crowd, pairs_of
from veil.cli import main
from veil_faces.files.faces import write_faces
from worlds.schemas import validate

FACES = crowd("victims", 24, 3)
DECOYS = ("--decoys", "others.npz")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a calibrated store in which Bob (person 3) and Mallory (person 4) are enrolled."""
    folder = tmp_path_factory.mktemp("made")
    write_faces(folder / "faces.npz", FACES)
    write_faces(folder / "others.npz", crowd("decoys", 80, 1))
    pairs = pairs_of(FACES, 20)
    lines = [f"{FACES.names[a]},{FACES.names[b]},{int(c)}" for a, b, c in zip(pairs.left, pairs.right, pairs.same, strict=True)]
    (folder / "pairs.csv").write_text("\n".join(["image_a,image_b,same", *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VEIL_HOME", str(folder / "home"))
        patch.chdir(folder)
        assert run("faces", "create", "door.store", *DECOYS) == 0
        assert run("faces", "calibrate", "door.store", "faces.npz", "--face-pairs", "pairs.csv", *DECOYS) == 0
        assert enroll("bob", 3) == 0 and enroll("mallory", 4) == 0
    return folder


@pytest.fixture
def door(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A copy of that folder, in which the client has seen its store."""
    folder = Path(shutil.copytree(made, tmp_path / "door"))
    monkeypatch.setenv("VEIL_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)
    assert run("faces", "list", "door.store") == 0
    capsys.readouterr()
    return folder


def picture(number: int, which: int) -> tuple[str, str, str]:
    return "faces.npz", "--face-name", f"victims{number:03d}/victims{number:03d}_{which:04d}.jpg"


def enroll(person: str, number: int, *, which: int = 1) -> int:
    return run("faces", "enroll", "door.store", *picture(number, which), "--person", person, *DECOYS)


def verify(person: str, number: int, *options: object) -> int:
    return run("faces", "verify", "door.store", *picture(number, 2), "--person", person, *DECOYS, *options)


def written(*statements: str) -> None:
    """Change a store as somebody does who can write the file and lacks the secret."""
    with closing(sqlite3.connect("door.store")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.slow
def test_the_honest_are_told_apart(door: Path) -> None:
    assert verify("bob", 3) == 0 and verify("mallory", 4) == 0 and verify("bob", 4) == 3


@pytest.mark.slow
def test_the_vectors_of_one_person_do_not_verify_another(door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mallory's vectors in Bob's row would open Bob's door to Mallory."""
    written(
        "UPDATE numbers SET (origin, basis) = (SELECT origin, basis FROM numbers WHERE person = 'mallory') WHERE person = 'bob'"
    )
    assert verify("bob", 4) == 1
    assert "template of 'bob'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE facts SET value = json_set(value, '$.distance', 9) WHERE key = 'threshold'",
        "UPDATE facts SET value = json_set(value, '$.by', 'p2s') WHERE key = 'setup'",
        "DELETE FROM facts WHERE key = 'threshold'",
        "INSERT INTO facts VALUES ('more', '1')",
        "UPDATE templates SET person = 'eve' WHERE person = 'mallory'",
        "UPDATE templates SET purpose = 'vault' WHERE person = 'bob'",
        "UPDATE templates SET version = 7 WHERE person = 'bob'",
        "UPDATE templates SET enrolled_at = 0 WHERE person = 'bob'",
        "DELETE FROM templates WHERE person = 'mallory'",
    ],
)
def test_nothing_else_can_be_changed_either(change: str, door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Threshold, setup, names, purposes, versions, times, and what is missing: the seal covers them all."""
    written(change)
    assert verify("bob", 4) == 1, "a threshold of 9 accepts anybody"
    assert "door.store: its seal does not fit" in capsys.readouterr().err
    assert enroll("carol", 5) == 1 and run("faces", "list", "door.store") == 1


@pytest.mark.slow
def test_an_older_copy_is_refused_and_accepted_on_command_only(door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A revoked template comes back with a copy of the whole file, whose seal is right: the client remembers the newer one."""
    shutil.copy("door.store", "older")
    assert run("faces", "revoke", "door.store", "--person", "bob") == 0
    shutil.copy("door.store", "newer")
    shutil.copy("older", "door.store")
    assert verify("bob", 3) == 1
    assert "older copy" in (told := capsys.readouterr().err) and "veil faces reseal door.store" in told
    assert run("faces", "reseal", "door.store", "--json", "told.json") == 0
    validate("faces-reseal", record := json.loads(Path("told.json").read_text()))
    assert [item["person"] for item in record["templates"]] == ["bob", "mallory"]
    assert verify("bob", 3) == 0, "its owner put it back"
    shutil.copy("newer", "door.store")
    assert verify("mallory", 4) == 1, "and the copies of before are other stores now"


@pytest.mark.slow
def test_a_revoked_template_cannot_be_put_back_into_its_row(door: Path) -> None:
    shutil.copy("door.store", "older")
    assert run("faces", "renew", "door.store", *picture(3, 3), "--person", "bob", *DECOYS) == 0
    assert verify("bob", 3) == 0
    written(
        "ATTACH DATABASE 'older' AS old",
        "DELETE FROM templates WHERE person = 'bob'",
        "INSERT INTO templates SELECT * FROM old.templates WHERE person = 'bob'",
    )
    assert verify("bob", 3) == 1


@pytest.mark.slow
def test_one_store_does_not_pass_for_another(door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sealed stores of one client, the one laid in the place of the other: who may enter one room may not enter all."""
    assert run("faces", "create", "club.store", *DECOYS) == 0
    assert run("faces", "calibrate", "club.store", "faces.npz", "--face-pairs", "pairs.csv", *DECOYS) == 0
    assert run("faces", "enroll", "club.store", *picture(5, 1), "--person", "bob", *DECOYS) == 0
    shutil.copy("club.store", "door.store")
    assert verify("bob", 5) == 1
    assert "another store" in capsys.readouterr().err


@pytest.mark.slow
def test_another_secret_is_refused_and_none_is_made(door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The secret is moved away. The defect: people were rejected, and the next ones enrolled with a new secret."""
    secret = door / "home" / "secret"
    secret.rename(door / "kept")
    for ask in (lambda: verify("bob", 3), lambda: enroll("carol", 5)):
        assert ask() == 1 and not secret.exists()
        assert "secret" in (told := capsys.readouterr().err) and "door.store" in told
    assert run("faces", "create", "other.store", *DECOYS) == 0, "a new store makes one"
    assert verify("bob", 3) == 1 and enroll("carol", 5) == 1
    assert "was made with the secret" in capsys.readouterr().err
    shutil.copy(door / "kept", secret)
    assert verify("bob", 3) == 0 and enroll("carol", 5) == 0


def test_a_store_and_what_was_seen_of_it_are_its_owners_only(door: Path) -> None:
    """Templates are obfuscations without proof: not for everybody on the machine."""
    for path in (door / "door.store", door / "home" / "faces.sqlite"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_names_have_one_spelling(door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """e and a combining accent are the letter that looks alike; what is empty or not seen is no name."""
    assert enroll("Jose\u0301", 5) == 0
    assert enroll("Jos\u00e9", 5) == 1
    assert "is enrolled" in capsys.readouterr().err
    assert verify("Jos\u00e9", 5) == 0 and verify("Jose\u0301", 5) == 0
    for name in ("", "\x1b[2Jbob"):
        assert enroll(name, 6) == 1, repr(name)
    assert run("faces", "enroll", "door.store", *picture(6, 1), "--person", "x", "--purpose", "", *DECOYS) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE facts SET value = '9' WHERE key = 'threshold'", "its seal does not fit"),
        ("UPDATE numbers SET origin = zeroblob(512) WHERE person = 'bob'", "the template of 'bob'"),
        ("UPDATE numbers SET origin = 7 WHERE person = 'bob'", "is damaged"),
        ("DELETE FROM numbers WHERE person = 'bob'", "the template of 'bob'"),
        ("DELETE FROM facts WHERE key = 'setup'", "facts are missing"),
    ],
)
def test_a_changed_copy_is_not_sealed(change: str, told: str, door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken twins of the older copy above: a sentence, and the file as it was."""
    shutil.copy("door.store", "older")
    assert run("faces", "revoke", "door.store", "--person", "mallory") == 0
    shutil.copy("older", "door.store")
    written(change)
    before = (door / "door.store").read_bytes()
    assert run("faces", "reseal", "door.store") == 1
    assert told in capsys.readouterr().err and (door / "door.store").read_bytes() == before


def test_a_store_that_is_as_it_was_seen_needs_no_seal(door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new identity would refuse every backup, for nothing. Oracle: the file before, and the sentence."""
    before = (door / "door.store").read_bytes()
    assert run("faces", "reseal", "door.store") == 1
    assert "needs no new seal" in capsys.readouterr().err and (door / "door.store").read_bytes() == before


def test_a_resealed_store_keeps_what_was_revoked_revoked(door: Path) -> None:
    """Who was revoked before the copy was made stays so, with all facts. The copy was readable by everybody. Oracle: `list`."""
    assert run("faces", "revoke", "door.store", "--person", "mallory") == 0
    assert run("faces", "list", "door.store", "--json", "before.json") == 0
    shutil.copy("door.store", "older")
    assert enroll("carol", 5) == 0
    shutil.copy("older", "door.store")
    Path("door.store").chmod(0o644)
    assert run("faces", "reseal", "door.store") == 0
    assert run("faces", "list", "door.store", "--json", "after.json") == 0
    assert json.loads(Path("after.json").read_text()) == json.loads(Path("before.json").read_text())
    assert stat.S_IMODE((door / "door.store").stat().st_mode) == 0o600
    assert verify("bob", 3) == 0 and verify("mallory", 4) == 3


@pytest.mark.parametrize("version", ["1", "2", "4", ""])
def test_another_format_is_refused(version: str, door: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence names the version of the file, the one that is read, and the way on; nothing is changed."""
    written(f"UPDATE facts SET value = '{version}' WHERE key = 'format'")
    before = (door / "door.store").read_bytes()
    assert verify("bob", 3) == 1 and run("faces", "reseal", "door.store") == 1
    told = capsys.readouterr().err
    assert told.count(f"door.store has format {version}, and this veil reads 3 alone") == 2
    assert told.count("make one with `veil faces create`") == 2 and (door / "door.store").read_bytes() == before

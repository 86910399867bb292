"""`veil privatize --words` from features to messages: what it writes, says, enters, and refuses before anything is drawn."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from veil.cli import main
from veil.codebooks.codebook import Provenance
from veil.files.codebooks import write_codebook
from veil.files.device.home import home
from veil.files.device.ledger import Ledger
from veil.files.features import write_features
from veil.forms import Subsets
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.wire import LineUpload
from veil.wire.codec import decode
from worlds import codebook, features, generator
from worlds.schemas import validate

NAMES = ("one.jpg", "two.jpg")
IMAGES = [(name, features(generator(name), 60 + 20 * number, name=name)) for number, name in enumerate(NAMES)]
BOOK = codebook(generator("command"), 2048, 4)
LAW = SubsetMechanism(dictionary_size=2048, epsilon=4.5, m=3)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def privatize(work: Path, *choices: object, words: str = "book.npz", epsilon: object = 4.5, m: int = 3) -> int:
    law = ("--words", words if words == "bundled" else work / words, "--epsilon", epsilon, "--m", m)
    return run("privatize", work / "f.h5", "-o", work / "up", *law, *choices)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    write_features(tmp_path / "f.h5", IMAGES)
    write_codebook(tmp_path / "book.npz", BOOK)
    mine = Provenance(
        source="mine",
        license="none",
        image_count=1,
        descriptor_count=60,
        image_digests=(IMAGES[1][1].image_digest[:8].hex(),),
    )
    write_codebook(tmp_path / "mine.npz", replace(BOOK, provenance=mine))
    return tmp_path


def forms(folder: Path) -> list[Subsets]:
    decoded = [decode(path.read_bytes()).form for path in sorted(folder.glob("*.veil"))]
    assert all(isinstance(form, Subsets) for form in decoded)
    return decoded  # type: ignore[return-value]


def test_messages_hold_words_and_people_are_told_what_they_cost(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert privatize(work, "--json", work / "r.json") == 0
    said = capsys.readouterr().out
    facts = json.loads((work / "r.json").read_text())
    validate("privatize", facts)
    assert {form.mechanism for form in forms(work / "up")} == {LAW}
    assert {form.dictionary for form in forms(work / "up")} == {BOOK.digest} == {facts["dictionary"]}
    for row, (name, image) in zip(facts["releases"], IMAGES, strict=True):
        exact = composed_epsilon({LAW: len(image)}, 1e-6)
        assert (row["name"], row["features"], row["image_epsilon"]) == (name, len(image), exact)
        assert row["bytes"] == len((work / "up" / row["file"]).read_bytes())
        (line,) = (line for line in said.splitlines() if line.startswith(name))
        assert line.split()[-2:] == [outward(exact), f"{row['median_error']:.2f}"] and "epsilon at delta 1e-06" in said
    assert facts["posterior"] == LAW.posterior and facts["truth"] == pytest.approx(3 * facts["posterior"])
    assert f"is the true one with probability {outward(LAW.posterior, 3)}" in said
    assert "warning:" not in said
    assert [entry.mechanism for entry in Ledger(home()).entries()] == [LAW, LAW]


@pytest.mark.slow
def test_repeating_costs_nothing_and_another_choice_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert privatize(work) == 0
    before = {path.name: path.read_bytes() for path in (work / "up").iterdir()}
    assert privatize(work) == 0
    assert {path.name: path.read_bytes() for path in (work / "up").iterdir()} == before
    assert len(Ledger(home()).entries()) == 2
    capsys.readouterr()
    for choice, words in (
        (("--fresh",), "their epsilons add up"),
        (("--features", 20), "their epsilons add up"),
        (("--lines",), "their epsilons add up"),
    ):
        assert privatize(work, *choice) == 1
        assert words in capsys.readouterr().err
    assert run("privatize", work / "f.h5", "-o", work / "up", "--for", "map") == 1
    assert "where they intersect" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (work / "up").iterdir()} == before
    assert privatize(work, "--fresh", "--allow-second-release") == 0
    assert len(list((work / "up").iterdir())) == len(Ledger(home()).entries()) == 4


def test_a_second_release_does_not_replace_the_first(work: Path) -> None:
    """Broken twin: one name an image, under which the second message took the place of the first."""
    assert privatize(work) == 0
    before = {path.name: path.read_bytes() for path in (work / "up").iterdir()}
    for _ in range(2):  # and repeating the second one finds its own file again
        assert privatize(work, "--features", 20, "--allow-second-release") == 0
        after = {path.name: path.read_bytes() for path in (work / "up").iterdir()}
        assert len(after) == 2 * len(before) and before.items() <= after.items()


def test_a_fixed_number_of_features_and_lines(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert privatize(work, "--features", 70, "--lines") == 0
    said = capsys.readouterr().out
    assert sorted(len(form) for form in forms(work / "up")) == [60, 70]
    assert "one.jpg has 60 features, 10 fewer than were asked for" in said and "two.jpg has" not in said
    assert "localized upright only, and no gravity is sent" in said
    assert all(isinstance(decode(path.read_bytes()), LineUpload) for path in (work / "up").iterdir())
    assert sorted(entry.features for entry in Ledger(home()).entries()) == [60, 70]


@pytest.mark.parametrize(
    ("epsilon", "m", "warning"),
    [
        (6.5, 1, None),  # a posterior of 0.246; a quarter is the limit
        (6.6, 1, "warning: the true word is among those sent with probability 0.265, epsilon alone says little"),
        (9, 3, "warning: the true word is among those sent with probability 0.923, epsilon alone says little"),
        ("inf", 1, "warning: epsilon is infinite.*no privacy"),
    ],
)
def test_warnings_where_epsilon_says_little(
    work: Path, epsilon: object, m: int, warning: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert privatize(work, epsilon=epsilon, m=m) == 0
    said = capsys.readouterr().out
    assert re.search(warning, said) if warning else "warning:" not in said


def test_the_bundled_dictionary(work: Path) -> None:
    assert privatize(work, words="bundled") == 0
    assert {form.mechanism.dictionary_size for form in forms(work / "up")} == {16384}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (["--words", "book.npz", "--epsilon", "nan"], "epsilon must be >= 0"),
        (["--words", "book.npz", "--epsilon", "-1"], "epsilon must be >= 0"),
        (["--words", "book.npz", "--epsilon", "1e9"], "rounds to 1"),
        (["--words", "book.npz", "--epsilon", "3", "--m", "0"], "m must be between 1"),
        (["--words", "book.npz", "--epsilon", "3", "--m", "2048"], "m must be between 1"),
        (["--words", "book.npz", "--epsilon", "3", "--decoys", "book.npz"], "belong to subspaces"),
        (["--words", "none.npz", "--epsilon", "3"], "veil codebook build"),
        (["--words", "f.h5", "--epsilon", "3"], "not a veil codebook"),
        (["--epsilon", "3", "--obfuscate"], "sends subspaces"),
        (["--m", "8", "--obfuscate"], "sends subspaces"),
        (["--allow-private-dictionary"], "belongs to --words"),
        (["--words", "book.npz", "--epsilon", "3", "--min-distance", "5"], "belongs to subspaces"),
        (
            ["--words", "mine.npz", "--epsilon", "3"],
            r"made from 1 of your own photographs \(two.jpg\).*--allow-private-dictionary",
        ),
    ],
)
def test_refusals_come_before_anything_is_drawn(
    work: Path, choices: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message, no entry; also of the images that come before the one that is refused."""
    monkeypatch.chdir(work)
    assert run("privatize", "f.h5", "-o", "up", *choices) == 1
    assert re.search(words, capsys.readouterr().err)
    assert not (work / "up").exists() and Ledger(home()).entries() == []


def test_a_private_dictionary_can_be_forced_and_is_remembered(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ledger knows the photograph too: features of other photographs do not make its dictionary public."""
    assert privatize(work, "--allow-private-dictionary", words="mine.npz") == 0
    write_features(work / "f.h5", [("three.jpg", features(generator("three"), 40, name="three"))])
    capsys.readouterr()
    assert privatize(work, words="mine.npz") == 1
    assert "two.jpg" in capsys.readouterr().err


def test_a_folder_that_is_none_costs_nothing(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fresh draw that could not be written would be spent for nothing."""
    (work / "up").write_text("precious")
    assert privatize(work, "--fresh") == 1
    assert "choose another place" in capsys.readouterr().err
    assert Ledger(home()).entries() == [] and (work / "up").read_text() == "precious"


def test_without_entropy_nothing_is_released(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def empty(count: int) -> bytes:
        raise NotImplementedError("no source of randomness")

    assert run("budget", "set", "image", 1000) == 0
    monkeypatch.setattr(os, "urandom", empty)
    for choice in ([], ["--fresh"]):
        assert privatize(work, *choice) == 1
        assert "gave no randomness" in capsys.readouterr().err
    assert not (work / "up").exists() and Ledger(home()).entries() == []


def test_an_exhausted_budget_releases_none_of_the_images(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first image fits, the second does not; the advice does, for both."""
    limit = composed_epsilon({LAW: 60 + 30}, 1e-6)
    assert run("budget", "set", "session", limit) == 0
    capsys.readouterr()
    assert privatize(work, "--json", work / "r.json") == 1
    said = capsys.readouterr()
    assert "two.jpg: the budget of the session" in said.err and "--features 30)" in said.err
    assert "no image was released, and nothing was written" in said.err
    assert not (work / "up").exists() and not (work / "r.json").exists() and Ledger(home()).entries() == []
    assert privatize(work, "--features", 30) == 0 and len(forms(work / "up")) == 2


def test_subspaces_are_outside_of_a_budget_and_say_so(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("privatize", work / "f.h5", "-o", work / "up", "--for", "map")
    assert run(*arguments) == 0
    assert "outside of the budget" not in capsys.readouterr().out
    assert run("budget", "set", "image", 1) == 0
    assert run(*arguments) == 0
    assert "subspaces have no epsilon: they are outside of the budget of the image" in capsys.readouterr().out


# The program itself, killed from outside a random time after it began to release; prints when it begins.
_PROGRAM = """
import sys
from veil.cli import main
from veil.device.device import Device
work = Device._made
def made(*arguments, **options):
    print("begins", flush=True)
    return work(*arguments, **options)
Device._made = made
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_killing_the_program_neither_loses_nor_doubles_an_entry(work: Path) -> None:
    """Four kills at random moments after the first image begins; then the command again: one entry and one whole message
    an image, within the budget that allows exactly both."""
    limit = composed_epsilon({LAW: 60 + 80}, 1e-6)
    choices = ["privatize", work / "f.h5", "-o", work / "up", "--words", work / "book.npz", "--epsilon", 4.5, "--m", 3]
    assert run("budget", "set", "session", limit) == 0
    chance = random.Random("kill the program")
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, choices)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout and process.stdout.readline() == b"begins\n"
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        entered = {entry.released_as for entry in Ledger(home()).entries()}
        written = {path.stem for path in (work / "up").glob("*.veil")} if (work / "up").exists() else set()
        assert written <= entered
    assert run(*choices) == 0
    entries = Ledger(home()).entries()
    assert sorted(entry.name for entry in entries) == sorted(NAMES)
    assert sorted(len(form) for form in forms(work / "up")) == [60, 80]

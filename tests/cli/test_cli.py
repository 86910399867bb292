"""The command line's promises: JSON as documented, exit codes, and no surprise for files that lie in the way."""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from veil.cli import PACKAGES, _parser, brought, main
from veil.files.photographs.examples import other_place
from veil.places.maps import MapOptions, NoMap
from worlds.documents import ROOT, documented, keys, section
from worlds.edges import door_photographs, other_database
from worlds.schemas import validate
from worlds.small_pictures import shrink, small_door

sys.path.insert(0, str(ROOT / "docs"))
from extensions.commands import PAGES, written


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four photographs extracted, privatized and mapped; a fifth one as the query."""
    folder = tmp_path_factory.mktemp("cli")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        patch.setenv("VEIL_HOME", str(folder / "home"))
        # One secret for all runs: what it draws of so few features is mapped, or seldom not.
        (folder / "home").mkdir(mode=0o700)
        (folder / "home" / "secret").touch(mode=0o600)
        (folder / "home" / "secret").write_bytes(bytes(range(32)))
        for place, numbers in (("mapped", (2, 4, 6, 8)), ("query", (5,))):
            photographs = door_photographs(folder / place, *numbers)
            assert run("extract", photographs, "-o", folder / f"{place}.h5", "--max-features", 800) == 0
            assert run("privatize", folder / f"{place}.h5", "-o", folder / f"{place}-up", "--for", "map") == 0
        assert run("map", folder / "mapped-up", "-o", folder / "map") == 0
        build = ("codebook", "build", folder / "mapped.h5", "--word-count", 64)
        assert run(*build, "-o", folder / "book.npz") == 0
        assert run(*build, "-o", folder / "pool.npz", "--decoy-pool") == 0
    return folder


@pytest.fixture
def at_home(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run as the client that made `work`, with its secret and ledger."""
    monkeypatch.setenv("VEIL_HOME", str(work / "home"))
    return work


def query(work: Path) -> Path:
    return next((work / "query-up").glob("*.veil"))


def leaves(parser: argparse.ArgumentParser, name: str = "veil") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Names and parsers of all commands that have no further subcommands, and of groups that have options."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below or (
        name != "veil" and any("--help" not in action.option_strings for action in parser._actions[: -len(below)])
    ):
        yield name, parser
    for action in below:
        for word, child in action.choices.items():
            yield from leaves(child, f"{name} {word}")


COMMANDS = dict(leaves(_parser()))


# Protocols of `veil evaluate` that veil-faces brings.
FACE_PROTOCOLS = {f"evaluate {name}" for name in ("attributes", "faces", "histories", "identification", "protection")}


def is_here(command: str) -> bool:
    """Whether the packages are installed that bring a command, as `faces create`; those of veil always are."""
    needed = {command.split()[0]} & set(PACKAGES) | ({"faces"} if command in FACE_PROTOCOLS else set())
    return needed <= set(brought())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_lists_every_option_and_example(name: str) -> None:
    """Second method: the words of the parser itself, each in its section of cli.md, and no other option."""
    text = section("cli.md", name)
    parser = COMMANDS[name]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        for word in action.option_strings or [action.dest]:
            assert word in {"-h", "--help"} or re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text), word
    table = "\n".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", table))
    assert listed <= {word for action in parser._actions for word in action.option_strings}
    for line in (parser.epilog or "").splitlines()[1:]:
        assert line.strip() in text, line
    assert parser.epilog and parser.epilog.startswith("examples:\n  veil ")


@pytest.mark.parametrize("package", PAGES)
def test_the_pages_of_commands_are_generated(package: str) -> None:
    """Second method: the page as `docs/extensions/commands.py` makes it of the parsers."""
    if {"veil": set(), "lab": {"lab", "evaluate"}, "faces": {"faces", "evaluate"}}[package] - set(brought()):
        pytest.skip(f"needs veil-{package}")
    assert PAGES[package].read_text() == written(package), "run: python docs/extensions/commands.py"


def printed_json(capsys: pytest.CaptureFixture[str]) -> dict:
    """Standard output as one JSON object, and not a word besides."""
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_json_on_standard_output_stands_alone_and_is_documented(
    at_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken twin: text for people in between would make the output no JSON."""
    work = at_home
    commands: list[tuple[list, set[str]]] = [
        (["extract", work / "query", "-o", tmp_path / "f.h5", "--max-features", 50], {"images", "name", "features", "space"}),
        (
            ["privatize", work / "query.h5", "-o", tmp_path / "up", "--for", "map"],
            {"profile", "releases", "name", "file", "features", "bytes"},
        ),
        (
            ["localize", work / "map", query(work)],
            {"queries", "name", "status", "cam_from_world", "log10_nfa", "covariance", "turn_deviation_deg"},
        ),
        (["codebook", "info", work / "book.npz"], {"kind", "words", "pca_dim", "sha256"}),
        (["map", work / "mapped-up", "-o", tmp_path / "map"], {"images", "registered", "mean_reprojection_error_px"}),
    ]
    for arguments, expected in commands:
        assert run(*arguments, "--json", "-") == 0, arguments
        printed = keys(printed_json(capsys))
        assert expected <= printed
        name = "veil " + " ".join(arguments[: 2 if arguments[0] == "codebook" else 1])
        assert printed <= documented(name), name


@pytest.mark.slow
def test_inspects_json_is_documented(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = section("json.md", "veil inspect")
    for path in (
        query(at_home),
        at_home / "map",
        at_home / "query.h5",
        at_home / "book.npz",
        at_home / "home" / "ledger.sqlite",
    ):
        assert run("inspect", path, "--json", "-") == 0
        validate("inspect", printed := printed_json(capsys))
        for key in printed:
            assert f"`{key}`" in text, (path, key)


@pytest.mark.slow
def test_several_files_are_inspected_at_once(at_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Second method: each by itself; what cannot be read takes nothing from the others."""
    files = [query(at_home), at_home / "query.h5", tmp_path / "none.veil"]
    alone = []
    for path in files[:2]:
        assert run("inspect", path, "--json", "-") == 0
        alone.append(printed_json(capsys))
    assert run("inspect", *files[:2]) == 0
    said = capsys.readouterr().out
    assert all(f"file: {path}" in said and facts["what"] in said for path, facts in zip(files, alone, strict=False))
    assert run("inspect", *files, "--json", "-") == 1
    output = capsys.readouterr()
    printed = json.loads(output.out)
    validate("inspect", printed)
    assert printed["files"] == dict(zip(map(str, files), alone, strict=False)) and list(printed["skipped"]) == [str(files[2])]
    assert "skipped" in output.err and "there is no" in output.err


@pytest.mark.slow
def test_people_and_machines_are_told_the_same(at_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json FILE people read standard output; with --json - the same lines go to standard error."""
    arguments = ["localize", at_home / "map", query(at_home), "--json"]
    assert run(*arguments, tmp_path / "pose.json") == 0
    first = capsys.readouterr()
    assert run(*arguments, "-") == 0
    second = capsys.readouterr()
    assert first.out == second.err and "camera center" in first.out
    written, printed = json.loads((tmp_path / "pose.json").read_text()), json.loads(second.out)
    for row in (written["queries"][0], printed["queries"][0]):
        row.pop("seconds")
    assert written == printed  # the seed is an argument, so the pose repeats to the last digit


@pytest.mark.slow
def test_one_pose_of_two_is_exit_code_3(at_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with other_place() as path:
        assert run("extract", path, "-o", tmp_path / "f.h5", "--max-features", 400) == 0
    assert run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up", "--for", "map") == 0
    stranger = next((tmp_path / "up").glob("*.veil"))
    capsys.readouterr()
    assert run("localize", at_home / "map", query(at_home), stranger, "--json", "-") == 3
    validate("localize", printed := printed_json(capsys))
    rows = printed["queries"]
    assert [row["status"] for row in rows] == ["localized", "no pose"]
    assert set(rows[1]) == {"name", "status", "reason", "seconds"}
    assert documented("veil localize") >= set(rows[1])


@pytest.mark.slow
def test_a_map_of_one_view_is_refused_and_its_seed_is_used(
    at_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def built(*arguments: object, options: MapOptions, **rest: object) -> NoMap:
        asked.append(options.seed)
        return NoMap("a reason")

    monkeypatch.setattr("veil.places.maps.clusters.of_positions.build_map", built)
    told = tmp_path / "told.json"
    assert run("map", at_home / "mapped-up", "-o", tmp_path / "map", "--seed", 7, "--json", told) == 1
    validate("map", json.loads(told.read_text()))
    assert asked == [7]
    assert "no map: a reason" in capsys.readouterr().err
    assert not (tmp_path / "map").exists()


@pytest.mark.slow
def test_what_lies_in_the_way_is_seen_before_the_work(
    at_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`veil map` asks for its target first: minutes of matching must not end in a refusal."""

    def late(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr("veil.places.pairs.blocks.match_pairs", late)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("precious")
    assert run("map", at_home / "mapped-up", "-o", tmp_path / "taken") == 1
    assert "not empty" in capsys.readouterr().err


@pytest.mark.slow
def test_places_that_cannot_be_written(at_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder where a file should go, and a file where a folder should: a message, no traceback, nothing changed."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    extract = ["extract", at_home / "query", "--max-features", 50, "-o"]
    for arguments in (
        [*extract, tmp_path / "folder"],
        [*extract, tmp_path / "file" / "f.h5"],
        [*extract, tmp_path / "f.h5", "--json", tmp_path / "folder"],
        ["privatize", at_home / "query.h5", "-o", tmp_path / "file", "--for", "map"],
        ["codebook", "info", at_home / "book.npz", "--json", tmp_path / "file" / "x.json"],
        ["inspect", query(at_home), "--json", tmp_path / "folder"],
    ):
        assert run(*arguments) == 1, arguments
        assert "choose another place" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "precious"
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.slow
def test_two_photographs_of_one_name_are_not_one(at_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second must not silently take the first one's place; below one folder their names differ."""
    for folder in ("monday", "tuesday"):
        (tmp_path / "days" / folder).mkdir(parents=True)
        shutil.copy(next((at_home / "query").iterdir()), tmp_path / "days" / folder / "same.jpg")
    days, features = tmp_path / "days", tmp_path / "f.h5"
    assert run("extract", days / "monday", days / "tuesday", "-o", features, "--max-features", 50) == 1
    assert "two photographs are called 'same.jpg'" in capsys.readouterr().err
    assert not features.exists()
    assert run("extract", days, "-o", features, "--max-features", 50, "--json", "-") == 0
    assert [image["name"] for image in printed_json(capsys)["images"]] == ["monday/same.jpg", "tuesday/same.jpg"]


def test_inspecting_another_programs_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = other_database(tmp_path / "notes.sqlite")
    before = path.read_bytes()
    assert run("inspect", path) == 1
    assert "cannot be used" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ["codebook", "build", "photos", "-o", "b.npz", "--workers", "0"],
        ["codebook", "build", "photos", "-o", "b.npz", "--word-count", "1"],
        ["codebook", "build", "photos", "-o", "b.npz", "--seed", "-1"],
        ["map", "up", "-o", "map", "--workers", "0"],
        ["map", "up", "-o", "map", "--seed", "-1"],
        ["privatize", "f.h5", "-o", "up", "--for", "map", "--features", "none"],
        ["privatize", "f.h5"],
        ["frobnicate"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(wrong)
    assert stop.value.code == 2
    assert "usage: veil" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["extract", "{work}/query.h5", "-o", "{tmp}/o.h5", "--imported", "superpoint:²"], "superpoint:256"),
        (["extract", "{work}/query.h5", "-o", "{tmp}/o.h5", "--imported", ":128"], "1 to 32 printable"),
        (["extract", "{work}/query", "-o", "{tmp}/o.h5", "--max-features", "0"], "between 1 and"),
        (["extract", "{work}/query", "-o", "{tmp}/o.h5", "--camera", "PINHOLE,a,b,c,d"], "MODEL,p1,p2"),
        (["localize", "{work}/map", "{query}", "--ratio", "nan"], r"--ratio takes none, auto or a number in \(0, 1\]"),
        (
            ["privatize", "{work}/query.h5", "-o", "{tmp}/o", "--for", "map", "--codebook", "{work}/pool.npz"],
            "veil codebook build",
        ),
        (
            ["privatize", "{work}/query.h5", "-o", "{tmp}/o", "--for", "map", "--decoys", "{work}/book.npz"],
            "needs decoys of kind",
        ),
        (["codebook", "build", "{work}/query.h5", "-o", "{tmp}/b.npz", "--word-count", "1000000"], "ask for fewer"),
        (["inspect", "{work}/mapped/DSC_0002.jpg"], "not a veil message"),
        (["map", "{work}/nowhere", "-o", "{tmp}/m"], "cannot read"),
    ],
)
def test_the_remedy_is_named(
    at_home: Path, tmp_path: Path, wrong: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [part.format(work=at_home, tmp=tmp_path, query=query(at_home)) for part in wrong]
    assert run(*arguments) == 1
    said = capsys.readouterr()
    assert said.err.startswith("veil: ") and "Traceback" not in said.err
    assert re.search(words, said.err), said.err
    assert not any((tmp_path / name).exists() for name in ("o.h5", "o", "m", "b.npz"))


def test_failures_of_the_system_have_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import veil.cli.privacy.inspect as inspect

    for failure, code, words in (
        (OSError(28, "No space left on device"), 1, "No space left"),
        (KeyboardInterrupt(), 130, "nothing was left half-written"),
        (BrokenPipeError(), 0, ""),
    ):

        def fail(*_: object, failure: BaseException = failure) -> None:
            raise failure

        monkeypatch.setattr(inspect, "_feature_facts", fail)
        assert run("inspect", "f.h5") == code
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_as_a_program(at_home: Path, tmp_path: Path) -> None:
    """Exit codes reach the shell, messages go to standard error, results to standard output."""
    (tmp_path / "garbage.veil").write_bytes(b"garbage" * 50)
    done = subprocess.run(
        [sys.executable, "-m", "veil.cli", "inspect", tmp_path / "garbage.veil"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("veil: this is not a veil message") and "Traceback" not in done.stderr


@pytest.mark.slow
def test_strangers_of_the_demo_keep_their_own_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger called like one of the demo's photographs must not take its place in the report."""
    from veil.demo import _material
    from veil.extraction.sift import SiftOptions
    from veil.progress import silent

    left_out = tuple(f"DSC_{number:04d}.jpg" for number in range(4, 13))
    monkeypatch.setattr("veil.demo.lund_door", lambda: small_door(tmp_path / "door", without=left_out))
    (tmp_path / "others").mkdir()
    with other_place() as path:
        for name in ("DSC_0001.jpg", path.name):
            shrink(path, tmp_path / "others" / name)
    with _material(tmp_path / "others", SiftOptions(max_features=50), silent) as material:
        assert len(material.strangers) == 3 and len(material.features) == 3
        assert not set(material.strangers) & set(material.features)
        assert material.paths["DSC_0001.jpg"].parent != tmp_path / "others"
        assert set(material.paths) == set(material.strangers) | set(material.features)

"""A command loads what it needs: heavy libraries are not imported to print a version, a help text, or to read arguments."""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from face_worlds.crowd import crowd, pairs_of
from veil.cli import COMMANDS, _parser, main
from veil_faces.files.faces import write_faces
from worlds.heavy import HEAVY

LOADED = """
import contextlib, io, sys
from veil.cli import main
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    main(sys.argv[1:])
assert said.getvalue()
print(*[name for name in {names} if name in sys.modules])
"""


def loaded(names: tuple[str, ...], *words: str) -> list[str]:
    """Which of the modules a process has after a command that printed something."""
    run = subprocess.run([sys.executable, "-c", LOADED.format(names=names), *words], capture_output=True, text=True, check=True)
    return run.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--version",), ("--help",), ()], ids=str)
def test_the_version_and_the_commands_need_nothing(words: tuple[str, ...]) -> None:
    """Not even NumPy, which takes longer than all of it."""
    assert loaded((*HEAVY, "numpy", "jaxtyping", "tqdm", "sqlite3"), *words) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("map",), ("localize",), ("privatize",), ("audit",), ("evaluate", "queries"), ("faces", "verify"), ("demo",)],
    ids=lambda words: " ".join(words),
)
def test_parsers_load_no_heavy_library(words: tuple[str, ...]) -> None:
    assert loaded(HEAVY, *words, "--help") == []


def test_a_command_that_reads_a_message_loads_no_heavy_library(tmp_path: Path) -> None:
    """Inspecting an upload takes neither a solver nor a compiler."""
    from veil.wire import encode
    from worlds.word_uploads import word_upload

    (tmp_path / "a.veil").write_bytes(encode(word_upload()))
    assert set(loaded(HEAVY, "inspect", str(tmp_path / "a.veil"))) <= {"scipy"}  # which composes epsilon


@pytest.mark.slow
def test_a_descriptor_verifies_without_what_looks_at_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances are compiled, so the compiler may be loaded; detectors, networks and solvers of geometry must not be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    faces = crowd("victims", 6, 2)
    write_faces(tmp_path / "f.npz", faces)
    write_faces(tmp_path / "o.npz", crowd("decoys", 80, 1))
    pairs = pairs_of(faces, 5)
    lines = [f"{faces.names[a]},{faces.names[b]},{int(c)}" for a, b, c in zip(pairs.left, pairs.right, pairs.same, strict=True)]
    (tmp_path / "p.csv").write_text("\n".join(["image_a,image_b,same", *lines]))
    who = ("--name", faces.names[0], "--person", "a", "--decoys", "o.npz")
    assert main(["faces", "create", "s", "--decoys", "o.npz"]) == 0
    assert main(["faces", "calibrate", "s", "f.npz", "--face-pairs", "p.csv", "--decoys", "o.npz"]) == 0
    assert main(["faces", "enroll", "s", "f.npz", *who]) == 0
    looking = ("cv2", "dlib", "faiss", "matplotlib", "onnxruntime", "poselib", "pycolmap", "torch")
    assert loaded(looking, "faces", "verify", "s", "f.npz", *who) == []


@pytest.mark.slow
def test_the_benchmark_of_start_up_measures_processes() -> None:
    """Enumeration: what loads a library is told so, and what loads none is not."""
    benchmark = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "startup.py"))
    seconds, loaded = benchmark["measured"](benchmark["CODE"], "--version")
    assert 0 < seconds < 5 and loaded == []
    _, loaded = benchmark["measured"]("import scipy\n" + benchmark["CODE"], "--version")
    assert set(loaded) == {"numpy", "scipy"}


def test_the_table_of_commands_is_what_the_commands_say_of_themselves() -> None:
    """The summaries are written twice; every command is in the table, in its order, and is the same parsed alone."""
    whole = subparsers(_parser())
    assert list(whole.choices) == list(COMMANDS)
    assert {action.dest: action.help for action in whole._choices_actions} == COMMANDS
    for name in COMMANDS:
        alone = subparsers(_parser([name, "--anything"]))
        assert list(alone.choices) == list(COMMANDS)
        assert alone.choices[name].format_help() == whole.choices[name].format_help()


def subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction:
    return next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))

"""A command loads what it needs: heavy libraries are not imported to print a version, a help text, or to read arguments."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from veil.cli import COMMANDS, _parser
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
    [("map",), ("localize",), ("privatize",), ("audit",), ("demo",)],
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

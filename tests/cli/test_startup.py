"""A command loads what it needs: heavy libraries are not imported to print a version, a help text, or to read arguments."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from veil.cli import BROUGHT, COMMANDS, GROUPS, PACKAGES, _parser, brought, main
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


@pytest.mark.slow
def test_a_command_that_reads_a_message_loads_no_heavy_library(tmp_path: Path) -> None:
    """Inspecting an upload takes neither a solver nor a compiler."""
    from veil.wire import encode
    from worlds.word_uploads import word_upload

    (tmp_path / "a.veil").write_bytes(encode(word_upload()))
    assert set(loaded(HEAVY, "inspect", str(tmp_path / "a.veil"))) <= {"scipy"}  # which composes epsilon


@pytest.mark.slow
def test_the_table_of_commands_is_what_the_commands_say_of_themselves() -> None:
    """The summaries are written twice; every command is in the table, in its order, and is the same parsed alone."""
    whole = subparsers(_parser())
    summaries = {name.partition(" ")[0] if name.partition(" ")[0] in GROUPS else name: text for name, text in COMMANDS.items()}
    summaries |= GROUPS
    told = summaries | {name: PACKAGES[name][1] for name in brought()}
    assert list(whole.choices) == list(told)
    assert {action.dest: action.help for action in whole._choices_actions} == told
    for group in GROUPS:
        below = {action.dest: action.help for action in subparsers(whole.choices[group])._choices_actions}
        assert {f"{group} {word}": text for word, text in below.items()} == {
            name: text for name, text in COMMANDS.items() if name.startswith(f"{group} ")
        }
    for name in told:
        alone = subparsers(_parser([name, "--anything"]))
        assert list(alone.choices) == list(summaries if name in summaries else {**told, **PACKAGES})
        assert alone.choices[name].format_help() == whole.choices[name].format_help()


@pytest.mark.parametrize("first", sorted({*GROUPS, *(name.split()[0] for name in COMMANDS if " " in name)}))
def test_the_first_word_of_commands_lists_them(first: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the table of commands. A group alone is wrong usage, and `veil --help` has one line for all of them."""
    below = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} ")]
    with pytest.raises(SystemExit) as stop:
        main([first, "--help"])
    said = capsys.readouterr().out
    assert stop.value.code == 0 and below and all(re.search(rf"^ +(veil {first} )?{word}  ", said, re.M) for word in below)
    with pytest.raises(SystemExit) as stop:
        main([first])
    assert stop.value.code == 2 and f"usage: veil {first} " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert len(re.findall(rf"^ +{first}\b", capsys.readouterr().out, re.M)) == 1


def found_as(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Let installed packages bring these commands, each by a function of a module, and no others."""
    entries = [EntryPoint(name=name, value=value, group=BROUGHT) for name, value in points.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries if group == BROUGHT else [])


@pytest.mark.parametrize(("name", "package"), [(name, package) for name, (package, _) in PACKAGES.items()])
@pytest.mark.parametrize("more", [(), ("--help",), ("create", "x.store", "--json", "-")], ids=str)
def test_a_command_of_a_package_that_is_not_there_says_what_brings_it(
    name: str, package: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted truth: no package brings a command. One line and exit code 2; `veil --help` lists it with what to install."""
    found_as(monkeypatch)
    assert main([name, *more]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and f"pip install {package} " in said.err
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert stop.value.code == 0 and f"{name} {PACKAGES[name][1]}; not here: pip install {package}" in told


@pytest.mark.slow
def test_packages_bring_commands_and_replace_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Planted packages: a new command is listed, parsed and completed; one that is called like a command of veil is not."""
    (tmp_path / "planted_brought.py").write_text(
        "def register(commands):\n    commands.add_parser('survey').set_defaults(run=lambda _: print('surveyed') or 0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found_as(monkeypatch, survey="planted_brought:register", doctor="planted_brought:stolen")
    assert main(["survey"]) == 0 and capsys.readouterr().out == "surveyed\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "survey" in capsys.readouterr().out
    assert main(["completion", "bash"]) == 0
    assert '"survey")' in capsys.readouterr().out
    assert main(["doctor", "--seconds", "0"]) == 0


def subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction:
    return next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))

"""Options that documents and messages tell of: each is one that `--help` shows, of the command that is named with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_cli import COMMANDS

ROOT = Path(__file__).parents[2]
SHOWN = {name: {word for action in parser._actions for word in action.option_strings} for name, parser in COMMANDS.items()}
for name in SHOWN.keys() - {"veil client"}:
    SHOWN[name] |= SHOWN["veil client"] if name.startswith("veil client ") else set()
ALL = set.union(*SHOWN.values())
# A command up to its end: that of its line or code, a comment, or what another program reads.
_COMMANDS = "|".join(re.escape(name) for name in sorted(SHOWN, key=len, reverse=True))
_LINE = re.compile(rf"\b({_COMMANDS})(?![\w-])((?:\\\n|[^\n`<|#;&])*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*\b")
# Options of other programs that messages name, and of benchmarks.
OTHERS = {"--no-deps", "--compare", "--version", "--user", "--help", "--nthreads"}


def documents() -> list[Path]:
    """Pages and programs that name commands, but the page of old names."""
    rooms = [path for room in ("docs", "lab", "faces") for path in (ROOT / room).rglob("*.md")]
    pages = [ROOT / "README.md", *rooms, *(ROOT / "deploy").rglob("*"), *(ROOT / "examples").rglob("*")]
    return sorted(
        path for path in pages if path.suffix in (".md", ".sh", ".py", ".service", ".toml") and path.stem != "renamed"
    )


def unknown(text: str) -> Iterator[str]:
    """Options that stand beside a command which has none of that name."""
    for line in _LINE.finditer(text):
        command, rest = line[1], re.sub(r"\\\n *", "", line[2])
        yield from (f"{command} {word}" for word in _OPTION.findall(rest.partition("  ")[0]) if word not in SHOWN[command])


def test_documents_give_commands_the_options_that_they_have() -> None:
    unknown_options = {
        str(path.relative_to(ROOT)): faults for path in documents() if (faults := list(unknown(path.read_text())))
    }
    assert unknown_options == {}


def test_messages_name_options_that_there_are() -> None:
    """Not those of an earlier version."""
    unknown_options: dict[str, set[str]] = {}
    packages = (ROOT / "src" / "veil", ROOT / "lab" / "veil_lab", ROOT / "faces" / "veil_faces")
    if not all(find_spec(package.name) for package in packages):
        pytest.skip("messages of veil name options of veil-lab, too")
    for path in sorted(path for package in packages for path in package.rglob("*.py")):
        if missing := set(_OPTION.findall(path.read_text())) - ALL - OTHERS:
            unknown_options[str(path.relative_to(ROOT))] = missing
    assert unknown_options == {}


def test_an_option_of_another_command_is_seen() -> None:
    """Broken twins: an old name, an option of another command, and one on the next line of the same command."""
    assert list(unknown("`veil codebook build photos/ --words 64`")) == ["veil codebook build --words"]
    text = "veil doctor --lines\nveil map up/ \\\n  --decoys pool.npz -o map/\n"
    assert list(unknown(text)) == ["veil doctor --lines", "veil map --decoys"]
    assert list(unknown("veil map up/ -o map/   # then `veil audit --images`")) == []

"""Commands in documents: each one parses by its real parser, names commands that exist, and options that they have."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from veil.cli import _joined, _parser

ROOT = Path(__file__).parents[1]
# Pages of what commands were once called.
OF_THE_PAST = {"CHANGELOG.md", "docs/reference/renamed.md"}
LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
# First words of texts that separate hashes and keys, as `veil wire v1`.
SEPARATING = {"wire", "sequence", "receipt", "receipts", "pir", "eight-bit"}
PAGES = [page for page in LISTED if page not in OF_THE_PAST]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `veil` command in the shell blocks of a page, without comments and what the shell does with them."""
    for block in re.findall(r"^ *```(?:sh|shell|console)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        for line in re.split(r"\n|&&|\|\||;", block.replace("\\\n", " ")):
            words = shlex.split(re.split(r"(?<!\S)[|&>#<]", line)[0], comments=True) if "veil " in line else []
            if words[:1] == ["$"]:
                words = words[1:]
            if words[:1] == ["veil"]:
                yield words[1:]


def spans(text: str) -> Iterator[list[str]]:
    """The words of each `veil` command in the prose of a page, where it stands as code in a line."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"(?<!`)`veil ([a-z][^`]*)`", prose):
        if (words := span.split())[0] not in SEPARATING:
            yield words


def programs(text: str) -> Iterator[list[str]]:
    """The words of each command that runs a program of the repository, as `python lab/benchmarks/pairs.py --quick`."""
    for line in re.findall(r"python3? ((?:lab|faces|tests|docs|examples)/\S+\.py[^\n`]*)", text.replace("\\\n", " ")):
        yield re.split(r"(?<!\S)[|&>#<;]", line)[0].split()


def parsers() -> Mapping[str, argparse.ArgumentParser]:
    """Parsers of all commands that are installed, groups included, by the words that name them."""
    return _below(_parser(), "")


def _below(parser: argparse.ArgumentParser, name: str) -> dict[str, argparse.ArgumentParser]:
    named = {name: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                named |= _below(child, f"{name} {word}".strip())
    return named


def unknown(words: list[str], known: Mapping[str, argparse.ArgumentParser]) -> list[str]:
    """Words of a command line that name no command, or no option of it."""
    depth = max((count for count in range(1, 4) if " ".join(words[:count]) in known), default=0)
    if not depth:
        return words[:1]
    parser = known[" ".join(words[:depth])]
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    options = {word for action in parser._actions for word in action.option_strings}
    wrong = [word for word in words[depth:] if word.startswith("--") and word.split("=")[0] not in options]
    is_named = words[depth : depth + 1] and re.fullmatch("[a-z]+", words[depth])
    return [*wrong, *(words[depth : depth + 1] if groups and is_named else [])]


KNOWN = cache(parsers)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_pages_are_commands(page: str) -> None:
    """Second method: the parsers, and of programs of the repository their text."""
    text = (ROOT / page).read_text()
    for words in commands(text):
        joined = _joined(words)
        _parser(joined).parse_args(joined)
    assert [(words, wrong) for words in spans(text) if (wrong := unknown(words, KNOWN()))] == []
    for path, *words in programs(text):
        source = (ROOT / path).read_text()
        assert [word for word in words if word.startswith("--") and f'"{word.split("=")[0]}"' not in source] == [], path


def test_wrong_commands_are_seen() -> None:
    (words,) = commands("```sh\nveil localize map/ *.veil --nearby 3 > out.txt  # no such option\n```\n")
    assert words == ["localize", "map/", "*.veil", "--nearby", "3"]
    with pytest.raises(SystemExit):
        _parser(words).parse_args(words)
    text = "`veil map remove --nothing` and `veil mapp`, `veil client sent`, `veil map --seed`; `python lab/benchmarks/none.py`"
    known = KNOWN()
    assert [unknown(words, known) for words in spans(text)] == [["--nothing"], ["mapp"], ["sent"], []]
    assert list(programs(text)) == [["lab/benchmarks/none.py"]]

"""One name has one meaning: every option of every command against the table of meanings."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from option_meanings import MEANINGS, REASONS
from test_cli import COMMANDS, is_here
from test_option_names import meaning

PATHS = {"FILE", "FOLDER", "PATH", "CSV", "TOML", "HTML", "PHOTOS", "SCENE"}
KINDS = {"int": "count", "parse": "count", "float": "number", "_count": "count", "octave": "count", "_gibibytes": "number"}


def kind_of(action: argparse.Action) -> str:
    """The kind of an option's value: flag, choice, path, count, number, text, or the name of its own type."""
    if action.nargs == 0:
        return "flag"
    if action.choices:
        return "choice"
    name = getattr(action.type, "__name__", "text")
    if action.type is Path or name == "picture" or action.metavar in PATHS:
        return "path"
    return KINDS.get(name, name)


def uses(commands: Mapping[str, argparse.ArgumentParser]) -> dict[str, list[tuple[str, str, str]]]:
    """Of each option the commands that have it, with the kind of its value and its help."""
    by_option = defaultdict(list)
    for name, parser in commands.items():
        for action in parser._actions:
            for word in action.option_strings:
                if word.startswith("--"):
                    by_option[word].append((name.removeprefix("veil "), kind_of(action), meaning(action)))
    return by_option


def undeclared(commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    """Options that differ between commands without a declared meaning that says why they are one."""
    for option, users in uses(commands).items():
        if len({(kind, text) for _, kind, text in users}) == 1:
            continue
        declared = [item for item in MEANINGS if item.option == option]
        texts = {item.text for item in declared}
        if len(texts) > 1 and option not in REASONS:
            yield f"{option} has {len(texts)} meanings and no reason for them"
        for command, kind, text in users:
            if not any(item.kind == kind and item.covers(command) for item in declared):
                yield f"veil {command} {option} ({kind}): {text}"


def test_one_name_has_one_meaning() -> None:
    """If this fails: take another name for the option, or, if it means the same, add the command to option_meanings.py."""
    assert list(undeclared(COMMANDS)) == []


def test_the_table_says_nothing_of_what_is_not_there() -> None:
    known = uses(COMMANDS)
    for item in MEANINGS:
        commands = {command for command, kind, _ in known[item.option] if kind == item.kind}
        assert item.commands == "*" or item.used_by(is_here) == commands, item.option
    assert {option for option in REASONS if len({item.text for item in MEANINGS if item.option == option}) > 1} == set(REASONS)


def test_a_second_meaning_is_seen() -> None:
    """Broken twins: another kind of value, and the same kind with other words."""

    def parser(kind: type, text: str) -> argparse.ArgumentParser:
        made = argparse.ArgumentParser()
        made.add_argument("--words", type=kind, help=text)
        return made

    file, count = parser(Path, "send words of this dictionary"), parser(int, "dictionary sizes")
    assert list(undeclared({"veil a": file, "veil b": count})) == [
        "veil a --words (path): send words of this dictionary",
        "veil b --words (count): dictionary sizes",
    ]
    assert len(list(undeclared({"veil a": count, "veil b": parser(int, "words that are sent")}))) == 2
    assert list(undeclared({"veil a": count, "veil b": parser(int, "dictionary sizes (default 3)")})) == []

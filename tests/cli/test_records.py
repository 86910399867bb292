"""Records of options: the parser that is made of one, and the record that is made of its arguments."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from veil.cli.records import Record, add_record, add_record_command, json_file, option, positional, strict_flag


@dataclass(frozen=True, kw_only=True)
class Fuel(Record):
    """The fuel of a stove."""

    gas: bool = option("burn gas", default=False)


@dataclass(frozen=True, kw_only=True)
class Boil(Fuel):
    """Boil eggs.
    Salt the water.
    """

    eggs: tuple[Path, ...] = positional("photographs of eggs", metavar="EGG")
    output: Path = option("where to write", required=True, short="-o", metavar="FILE")
    pot_size: float = option("liters (default %(default)s)", default=1.5)
    kind: Literal["soft", "hard"] | None = option("how they are boiled (default soft)")
    minutes: int | None = option("minutes of boiling", parse=lambda text: int(text) * 2)
    stove: tuple[float, float] | None = option("where the stove is", metavar=("X", "Y"))
    yolks: Literal[1, 2] = option("yolks of an egg (default %(default)s)", default=1)
    salts: tuple[Literal["sea", "rock"], ...] = option("what salts the water (default sea)", default=("sea",))
    size: tuple[int, str] = option("grams and class", default=(60, "M"), parse=lambda text: (int(text), "L"), metavar="G")
    beside: tuple[tuple[str, ...], ...] = option("what is boiled with them", default=(), metavar="NAME", repeated=True)
    peel: bool | None = option("peel them (default: the soft ones)")
    strict: bool = strict_flag("egg")
    json: Path | None = json_file()
    cook: Path | None = positional("photograph of the cook", optional=True)


def by_hand() -> argparse.ArgumentParser:
    """The parser that the record stands for."""
    parser = argparse.ArgumentParser(prog="boil", description="Boil eggs.\nSalt the water.")
    parser.add_argument("eggs", type=Path, nargs="+", metavar="EGG", help="photographs of eggs")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write")
    parser.add_argument("--pot-size", type=float, default=1.5, help="liters (default %(default)s)")
    parser.add_argument("--kind", choices=("soft", "hard"), help="how they are boiled (default soft)")
    parser.add_argument("--minutes", type=lambda text: int(text) * 2, help="minutes of boiling")
    parser.add_argument("--stove", type=float, nargs=2, metavar=("X", "Y"), help="where the stove is")
    parser.add_argument("--yolks", type=int, choices=(1, 2), default=1, help="yolks of an egg (default %(default)s)")
    parser.add_argument(
        "--salts", nargs="+", choices=("sea", "rock"), default=("sea",), help="what salts the water (default sea)"
    )
    parser.add_argument("--size", type=lambda text: (int(text), "L"), default=(60, "M"), metavar="G", help="grams and class")
    parser.add_argument("--beside", nargs="+", action="append", default=[], metavar="NAME", help="what is boiled with them")
    parser.add_argument("--peel", action=argparse.BooleanOptionalAction, help="peel them (default: the soft ones)")
    parser.add_argument(
        "--strict", action="store_true", help="refuse all if one egg cannot be used (default: skip and name it)"
    )
    parser.add_argument("cook", type=Path, nargs="?", help="photograph of the cook")
    parser.add_argument("--gas", action="store_true", help="burn gas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON ('-': standard output)")
    return parser


def test_a_record_makes_the_parser() -> None:
    """Oracle: the parser written by hand. Its help and what it reads are the same.

    The command's own options come first, then the inherited one, and --json last.
    """
    parser = argparse.ArgumentParser(prog="boil", description=Boil.description)
    add_record(parser, Boil)
    assert parser.format_help() == by_hand().format_help()
    for line in (
        "a b -o f",
        "a --output f --pot-size 2 --kind hard --minutes 3 --strict --json -",
        "a -o f --stove 1 2 --yolks 2 --salts rock sea --gas",
        "a --output f --pot-size 2 --kind hard --minutes 3 --size 70 --beside a b --beside c --no-peel --strict --json -",
    ):
        arguments = parser.parse_args(line.split())
        assert vars(arguments) == vars(by_hand().parse_args(line.split()))
        record = Boil.of(arguments)
        assert record.beside in ((), (("a", "b"), ("c",))) and record.size in ((60, "M"), (70, "L"))
        assert record.eggs == tuple(arguments.eggs) and record.minutes in (None, 6) and record.strict == ("--strict" in line)
    for wrong in ("a", "-o f", "a -o f --kind raw", "a -o f --stove 1", "a -o f --yolks 3", "a -o f --salts road"):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong.split())


def test_a_command_is_given_the_record() -> None:
    """Planted command: its function sees the record, and the docstring names every field."""
    seen: list[Boil] = []

    def seeing(record: Boil) -> int:
        seen.append(record)
        return 0

    commands = argparse.ArgumentParser().add_subparsers()
    parser = add_record_command(commands, "boil", "eggs -> meal", "  boil a -o f\n", Boil, seeing)
    arguments = parser.parse_args(["a", "-o", "f"])
    assert arguments.run(arguments) == 0
    assert seen == [Boil(eggs=(Path("a"),), output=Path("f"))] and seen[0].pot_size == 1.5
    assert all(f"- `{name}`: " in (Boil.__doc__ or "") for name in Boil.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class Stove(Record):
    """Options of a group."""

    heat: int = option("watts (default %(default)s)", default=900)


@dataclass(frozen=True, kw_only=True)
class Toast(Stove):
    """Toast bread."""

    spread: tuple[str, ...] = option("what is put on it (may be repeated)", default=(), repeated=True)


def test_an_option_that_is_repeated_gathers_its_values() -> None:
    """Oracle: `append` of argparse, by hand. The default of the record is not changed by what was parsed before."""
    parser, hand = argparse.ArgumentParser(), argparse.ArgumentParser()
    add_record(parser, Toast)
    hand.add_argument("--spread", action="append", default=[])
    for words in (["--spread", "jam", "--spread", "honey"], []):
        assert Toast.of(parser.parse_args(words)).spread == tuple(hand.parse_args(words).spread)


def test_a_group_parses_the_options_of_its_record() -> None:
    """Planted group: its option stands before the command, whose own parser lacks it and whose record has its value."""
    group = argparse.ArgumentParser()
    add_record(group, Stove)
    seen: list[Toast] = []

    def seeing(record: Toast) -> int:
        seen.append(record)
        return 0

    child = add_record_command(group.add_subparsers(), "toast", "bread -> toast", "  toast\n", Toast, seeing, group=Stove)
    assert "--heat" not in child.format_help() and "- `heat`: " in (Toast.__doc__ or "")
    arguments = group.parse_args(["--heat", "700", "toast", "--spread", "jam"])
    assert arguments.run(arguments) == 0 and seen == [Toast(heat=700, spread=("jam",))]


def test_a_field_that_is_no_argument_is_refused() -> None:
    """Broken twin: a field without metadata would be an option that no help shows."""

    @dataclass(frozen=True, kw_only=True)
    class Fry(Record):
        pan: str = "small"

    with pytest.raises(TypeError, match=r"Fry\.pan is neither"):
        add_record(argparse.ArgumentParser(), Fry)


# What makes parsers: of records, and of the program.
PLUMBING = {Path("veil/cli/records.py"), Path("veil/cli/__init__.py")}
# Folders of the three packages that hold modules of commands.
ROOT = Path(__file__).parents[2]
ROOMS = [room for root in (ROOT / "src", ROOT / "lab", ROOT / "faces") for room in root.glob("veil*/cli")]


def added_by_hand(path: Path) -> Iterator[int]:
    """Lines of a module that add an argument to a parser or name a command's function without a record."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("add_argument", "set_defaults"):
            yield node.lineno


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.parent.name)
def test_options_of_commands_are_records(room: Path) -> None:
    """No module of commands builds a parser by hand, so help, completion, page and docstring come from one record."""
    modules = [path for path in sorted(room.rglob("*.py")) if path.relative_to(room.parents[1]) not in PLUMBING]
    assert len(modules) > 5
    assert {path.name: lines for path in modules if (lines := list(added_by_hand(path)))} == {}


def test_an_option_by_hand_is_seen(tmp_path: Path) -> None:
    """Broken twin: a module that adds an option, and runs a function of parsed arguments."""
    path = tmp_path / "fry.py"
    path.write_text("parser.add_argument('--pan')\nparser.set_defaults(run=fry)\nparser.parse_args()\n")
    assert list(added_by_hand(path)) == [1, 2]


@dataclass(frozen=True, kw_only=True)
class Serve(Boil):
    """Serve eggs."""

    guest: str = positional("who eats them")


def test_inherited_positional_arguments_are_typed_first() -> None:
    """Oracle: the order on the command line, as a command adds its own argument behind those that it shares."""
    parser = argparse.ArgumentParser(prog="serve")
    add_record(parser, Serve)
    record = Serve.of(parser.parse_args(["a", "b", "carol", "-o", "f"]))
    assert (record.eggs, record.guest) == ((Path("a"), Path("b")), "carol")

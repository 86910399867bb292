"""Records of options: the parser that is made of one, and the record that is made of its arguments."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from veil.cli.records import Record, add_record, add_record_command, json_file, option, positional, strict_flag


@dataclass(frozen=True, kw_only=True)
class Boil(Record):
    """Boil eggs.
    Salt the water.
    """

    eggs: tuple[Path, ...] = positional("photographs of eggs", metavar="EGG")
    output: Path = option("where to write", required=True, short="-o", metavar="FILE")
    pot_size: float = option("liters (default %(default)s)", default=1.5)
    kind: Literal["soft", "hard"] | None = option("how they are boiled (default soft)")
    minutes: int | None = option("minutes of boiling", parse=lambda text: int(text) * 2)
    size: tuple[int, str] = option("grams and class", default=(60, "M"), parse=lambda text: (int(text), "L"), metavar="G")
    beside: tuple[tuple[str, ...], ...] = option("what is boiled with them", default=(), metavar="NAME", repeated=True)
    peel: bool | None = option("peel them (default: the soft ones)")
    strict: bool = strict_flag("egg")
    json: Path | None = json_file()


def by_hand() -> argparse.ArgumentParser:
    """The parser that the record stands for."""
    parser = argparse.ArgumentParser(prog="boil", description="Boil eggs.\nSalt the water.")
    parser.add_argument("eggs", type=Path, nargs="+", metavar="EGG", help="photographs of eggs")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write")
    parser.add_argument("--pot-size", type=float, default=1.5, help="liters (default %(default)s)")
    parser.add_argument("--kind", choices=("soft", "hard"), help="how they are boiled (default soft)")
    parser.add_argument("--minutes", type=lambda text: int(text) * 2, help="minutes of boiling")
    parser.add_argument("--size", type=lambda text: (int(text), "L"), default=(60, "M"), metavar="G", help="grams and class")
    parser.add_argument("--beside", nargs="+", action="append", default=[], metavar="NAME", help="what is boiled with them")
    parser.add_argument("--peel", action=argparse.BooleanOptionalAction, help="peel them (default: the soft ones)")
    parser.add_argument(
        "--strict", action="store_true", help="refuse all if one egg cannot be used (default: skip and name it)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON ('-': standard output)")
    return parser


def test_a_record_makes_the_parser() -> None:
    """Oracle: the parser written by hand. Its help and what it reads are the same."""
    parser = argparse.ArgumentParser(prog="boil", description=Boil.description)
    add_record(parser, Boil)
    assert parser.format_help() == by_hand().format_help()
    for line in (
        "a b -o f",
        "a --output f --pot-size 2 --kind hard --minutes 3 --size 70 --beside a b --beside c --no-peel --strict --json -",
    ):
        arguments = parser.parse_args(line.split())
        assert vars(arguments) == vars(by_hand().parse_args(line.split()))
        record = Boil.of(arguments)
        assert record.beside in ((), (("a", "b"), ("c",))) and record.size in ((60, "M"), (70, "L"))
        assert record.eggs == tuple(arguments.eggs) and record.minutes in (None, 6) and record.strict == ("--strict" in line)
    for wrong in ("a", "-o f", "a -o f --kind raw"):
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


def test_a_field_that_is_no_argument_is_refused() -> None:
    """Broken twin: a field without metadata would be an option that no help shows."""

    @dataclass(frozen=True, kw_only=True)
    class Fry(Record):
        pan: str = "small"

    with pytest.raises(TypeError, match=r"Fry\.pan is neither"):
        add_record(argparse.ArgumentParser(), Fry)


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

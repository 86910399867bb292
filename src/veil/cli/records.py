"""Options of a command as a frozen record, of which its parser, help, completion, page and docstring are made.

A field of such a record is an `option` or a `positional`. Its annotation says what is parsed: bool is a flag, a Literal is a
choice, a tuple is one value or several, and None beside another type is what is not given. A command's record inherits those of
options that it shares with others; its own come first on the command's pages, and --json comes last. A command below a group
inherits the group's record, too, whose options the group parses. A flag that may be None has an opposite, whose name begins
with "no".
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from veil.cli.common import Commands, add_command


@dataclass(frozen=True, kw_only=True)
class ArgumentFacts:
    """The metadata of a field: what an annotation cannot say of an argument of the command line."""

    help: str
    names: tuple[str, ...]
    metavar: str | tuple[str, ...] | None
    parse: Callable[[str], Any] | None
    choices: Sequence[str] | None
    repeated: bool = False


Asked = TypeVar("Asked", bound="Record")


class Record:
    """The options of a command. Its docstring describes the command, and lists the fields as `--help` does."""

    description: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.description = inspect.cleandoc(cls.__doc__ or "")
        fields: dict[str, dataclasses.Field[Any]] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= vars(base).get("__dataclass_fields__", {})
        fields |= {name: value for name, value in vars(cls).items() if isinstance(value, dataclasses.Field)}
        lines = [f"- `{name}`: {value.metadata['facts'].help.replace('%%', '%')}." for name, value in fields.items()]
        cls.__doc__ = "\n\n".join([cls.description, "\n".join(lines)])

    @classmethod
    def of(cls: type[Asked], arguments: argparse.Namespace) -> Asked:
        """The record of parsed arguments."""
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        values = {name: getattr(arguments, name) for name in names}
        return cls(**{name: _frozen(value) for name, value in values.items()})


def _frozen(value: Any) -> Any:
    """A value in which lists are tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def option(
    help: str,
    *,
    default: Any = None,
    required: bool = False,
    short: str | None = None,
    name: str | None = None,
    metavar: str | tuple[str, ...] | None = None,
    parse: Callable[[str], Any] | None = None,
    choices: Sequence[str] | None = None,
    repeated: bool = False,
) -> Any:
    """A field that is an option, by the field's name or another, and by a `short` name, too.

    `parse` and `choices` stand for what its annotation says. A tuple that is `repeated` has one value of each time,
    and one of fixed length with a `parse` is one word.
    """
    names = (*([short] if short else []), name or "--")
    metadata = ArgumentFacts(help=help, names=names, metavar=metavar, parse=parse, choices=choices, repeated=repeated)
    return dataclasses.field(default=dataclasses.MISSING if required else default, metadata={"facts": metadata})


def positional(
    help: str, *, metavar: str | None = None, parse: Callable[[str], Any] | None = None, optional: bool = False
) -> Any:
    """A field that is a positional argument, which must be given unless it is `optional`."""
    argument = ArgumentFacts(help=help, names=(), metavar=metavar, parse=parse, choices=None)
    return dataclasses.field(default=None if optional else dataclasses.MISSING, metadata={"facts": argument})


def names_file() -> Any:
    """The field of the option --names, by which `main` names photographs in what the command prints."""
    return option("name photographs in place of their messages, by the table of `veil privatize --write-names`", metavar="CSV")


def poses_file() -> Any:
    """The field of the option --write-poses."""
    return option(
        "also write the poses as hloc and COLMAP do: name qw qx qy qz tx ty tz, world to camera, one query a line",
        metavar="FILE",
    )


def json_file() -> Any:
    """The field of the option --json."""
    return option("also write the result as JSON ('-': standard output)", metavar="FILE")


def strict_flag(what: str = "upload") -> Any:
    """The field of the option --strict, of which `what` names the things that are read."""
    return option(f"refuse all if one {what} cannot be used (default: skip and name it)", default=False)


def add_record(parser: argparse.ArgumentParser, record: type[Record], *, group: type[Record] | None = None) -> None:
    """Add the arguments that the fields of a record stand for, without those of the record of its `group`.

    Raises TypeError for a field without metadata.
    """
    hints = typing.get_type_hints(record)
    above = set() if group is None else {field.name for field in dataclasses.fields(group)}  # type: ignore[arg-type]
    for field in _in_order(record):
        if field.name in above:
            continue
        argument = field.metadata.get("facts")
        if argument is None:
            raise TypeError(f"{record.__name__}.{field.name} is neither an option nor a positional argument")
        given = _parsed(hints[field.name], argument)
        if argument.metavar is not None:
            given["metavar"] = argument.metavar
        if not argument.names:
            if field.default is None:
                given["nargs"] = "*" if given.get("nargs") == "+" else "?"
            parser.add_argument(field.name, help=argument.help, **given)
            continue
        usual = "--" + field.name.replace("_", "-")
        words = [usual if name == "--" else name for name in argument.names]
        if field.default is dataclasses.MISSING:
            given["required"] = True
        elif given.get("action") != "store_true":
            given["default"] = list(field.default) if argument.repeated else field.default
        parser.add_argument(*words, dest=field.name, help=argument.help, **given)


def _in_order(record: type[Record]) -> list[dataclasses.Field[Any]]:
    """The fields of a record: its own options, those of each record that it inherits, and --json.

    Positional arguments come in the order of inheritance, as they are typed: a command adds its own behind those it shares.
    """
    fields = {field.name: field for field in dataclasses.fields(record)}  # type: ignore[arg-type]
    names = dict.fromkeys(name for each in record.__mro__ for name in inspect.get_annotations(each) if name in fields)
    typed = [field for field in fields.values() if (facts := field.metadata.get("facts")) and not facts.names]
    rest = [fields[name] for name in names if fields[name] not in typed]
    return [*typed, *sorted(rest, key=lambda field: field.name == "json")]


def _parsed(hint: Any, argument: ArgumentFacts) -> dict[str, Any]:
    """Arguments of argparse that parse values of an annotation."""
    parts = typing.get_args(hint)
    if set(parts) == {bool, type(None)}:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in parts if part is not type(None))  # `parse` reads the others
        parts = typing.get_args(hint)
    if hint is bool:
        return {"action": "store_true"}
    given: dict[str, Any] = {}
    if typing.get_origin(hint) is tuple:
        if argument.repeated:
            given["action"] = "append"
            if typing.get_origin(parts[0]) is tuple:
                given["nargs"] = "+"
                parts = typing.get_args(parts[0])
        elif parts[-1] is Ellipsis:
            given["nargs"] = "+"
        elif argument.parse is None:
            given["nargs"] = len(parts)
        hint = parts[0]
    if typing.get_origin(hint) is Literal:
        given["choices"] = typing.get_args(hint)
        hint = type(given["choices"][0])
    if argument.choices is not None:
        given["choices"] = argument.choices
    if argument.parse is not None:
        given["type"] = argument.parse
    elif hint in (int, float, Path):
        given["type"] = hint
    return given


def add_record_command(
    commands: Commands,
    name: str,
    summary: str,
    examples: str,
    record: type[Asked],
    run: Callable[[Asked], int],
    *,
    group: type[Record] | None = None,
) -> argparse.ArgumentParser:
    """Add a command whose options are a record, which `run` is given, and return its parser.

    `group` is the record of options that the command's group parses.
    """
    parser = add_command(commands, name, summary, record.description, examples)
    add_record(parser, record, group=group)

    @functools.wraps(run)
    def asked(arguments: argparse.Namespace) -> int:
        return run(record.of(arguments))

    parser.set_defaults(run=asked)
    return parser

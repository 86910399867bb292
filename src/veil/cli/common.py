"""Functions that all commands share: exit codes, parsers, progress bars, JSON for machines."""

from __future__ import annotations

import argparse
import json
import logging
import math
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from veil.cli.progress import tracker
from veil.cli.remedies import advised
from veil.errors import Remedy, VeilWarning
from veil.files.atomic import write_text
from veil.report.tables import WIDTH, Table, escaped, facts, wrapped

if TYPE_CHECKING:
    from veil.scene import ContradictedFocal, MapCheck

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_NO_POSE, EXIT_POLICY = 0, 1, 2, 3, 4
EXIT_NO_GRAVITY = EXIT_NO_POSE  # both: nothing went wrong, and for some photograph there is no answer
# More images than this that a map leaves out for one reason are told in one line, with the names of a few.
MOST_NAMED, FEW_NAMED = 8, 3
Item = TypeVar("Item")
Value = TypeVar("Value")
Commands = Any  # argparse keeps the type of its subparsers private
Arguments = Any  # parsed arguments: argparse's Namespace, or the record of a command's options


class Help(argparse.RawDescriptionHelpFormatter):
    """The help of a command, in which a number is N (an integer) or X, not the name of its option in capitals."""

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        known = {int: "N", float: "X"}.get(action.type) if isinstance(action.type, type) else None
        return getattr(action.type, "metavar", known) or super()._get_default_metavar_for_optional(action)


def add_command(commands: Commands, name: str, summary: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Add a subcommand, with its examples at the end of --help, and return its parser."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=Help,
    )


def share_options(group: argparse.ArgumentParser) -> None:
    """Let the options of a group of commands stand after a command of it, too; call it when the group has them all."""
    shared = argparse.ArgumentParser(prog=group.prog, add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    for action in group._actions:
        if action.option_strings and not isinstance(action, argparse._HelpAction):
            shared._add_action(action)
    parse = group.parse_known_args

    def parse_known_args(words: Sequence[str], namespace: argparse.Namespace | None = None) -> Any:
        known, rest = shared.parse_known_args(words, namespace)
        return parse(rest, known)

    group.parse_known_args = parse_known_args  # type: ignore[method-assign, assignment]


def write_json(path: Path | None, value: object, *, private: bool = False) -> None:
    """Write `value` as JSON to the file of --json ("-": standard output); numbers that JSON lacks become null.

    A `private` file is for its owner alone (mode 0600): with a secret, or with what stays on the device.
    """
    if path is None:
        return
    text = json.dumps(_finite(value), indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        write_text(path, text, private=private)


def _finite(value: Any) -> Any:
    """A value in which NaN and infinity are None, and tuples are lists."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def progress(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Iterate over items while their number is shown as progress on standard error."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with tracker(what, total) as shown:
        for item in items:
            yield item
            shown.update()


class Bar:
    """A progress bar as a callback `bar(done, total)`, for algorithms that must not print; a context manager closes it."""

    def __init__(self, what: str) -> None:
        self._shown = tracker(what)

    def __call__(self, done: int, total: int) -> None:
        self._shown.total = total
        self._shown.update(done - self._shown.n)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()


class StepBar:
    """A progress bar as a callback `bar(step, done, total)` for steps that take differently long; a context manager closes it.

    It shows the name of the step, the share of the work that is done, and the time that is left.
    """

    def __init__(self, what: str) -> None:
        self._shown = tracker(what, shares=True)

    def __call__(self, step: str, done: float, total: float) -> None:
        self._shown.total = total
        self._shown.update(done - self._shown.n)
        self._shown.set_description(step)

    def __enter__(self) -> StepBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()


def quiet_colmap() -> None:
    """Silence the logs of COLMAP and Pillow; COLMAP's failures reach the user as veil's errors."""
    from veil.colmap import pycolmap

    pycolmap.logging.minloglevel = 3
    logging.getLogger("PIL").setLevel(logging.WARNING)


@contextmanager
def notes() -> Iterator[None]:
    """A block in which veil's own warnings are printed as one line each on standard error, without the place in the code."""
    with warnings.catch_warnings():
        other = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if isinstance(message, VeilWarning):
                tell(f"veil: note: {advised(message)}")
            else:
                other(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


# Photographs by the names of their messages, which stand for these in what the command prints.
_PHOTOGRAPHS: ContextVar[Mapping[str, str] | None] = ContextVar("photographs", default=None)
# A word that may be the name of a message, and no part of a path, of an address or of a longer word.
_MESSAGE = re.compile(r"(?<![\w/\\.-])([\w-]+)(?:\.veil)?(?![\w-]|\.\w)")


@contextmanager
def naming(photographs: Mapping[str, str]) -> Iterator[None]:
    """A block in which what is printed names photographs in place of their messages, as far as `photographs` has them."""
    token = _PHOTOGRAPHS.set(photographs)
    try:
        yield
    finally:
        _PHOTOGRAPHS.reset(token)


def with_photographs(text: str, photographs: Mapping[str, str] | None) -> str:
    """The text with names of photographs in place of those of their messages, which may end in ".veil"."""
    if not photographs:
        return text
    known = photographs
    return _MESSAGE.sub(lambda match: known.get(match[1], match[0]), text)


def photograph_of(name: str) -> str:
    """The photograph that a message is of, inside of `naming`; else the name itself."""
    return (_PHOTOGRAPHS.get() or {}).get(name, name)


class NamedJson(TypedDict, total=False):
    """Photographs by the names of their messages, as far as --names has them."""

    photographs: Mapping[str, str]


def named_facts(names: Iterable[str]) -> NamedJson:
    """Photographs of those messages `names` that are known inside of `naming`, for a JSON record; outside of it no key."""
    known = _PHOTOGRAPHS.get()
    return {"photographs": {name: known[name] for name in names if name in known}} if known else {}


def by_message(table: Mapping[str, Value]) -> dict[str, Value]:
    """A table by photograph as one by message, inside of `naming`; names that are not known stay as they are."""
    messages: dict[str, list[str]] = {}
    for message, photograph in (_PHOTOGRAPHS.get() or {}).items():
        messages.setdefault(photograph, []).append(message)
    return {message: value for name, value in table.items() for message in messages.get(name, [name])}


def printable(text: str) -> str:
    """The text with control characters and unprintable ones escaped, as names in it come from others.

    Inside of `naming` it names photographs.
    """
    return escaped(with_photographs(text, _PHOTOGRAPHS.get()), kept="\n\t")


def tell(text: str) -> None:
    """Print a text for people on standard error: notes, and what was left out."""
    print(printable(text), file=sys.stderr)


def tell_skipped(skipped: Mapping[str, str]) -> None:
    """Print on standard error the names of what was left out, each with its reason."""
    for name, reason in skipped.items():
        tell(f"veil: skipped {name}: {reason}")


def say(arguments: Arguments, text: str) -> None:
    """Print a text for people: on standard output, or on standard error if `--json -` writes JSON to standard output."""
    _write(_for_people(arguments), printable(text))


def say_left_out(arguments: Arguments, left_out: Mapping[str, str]) -> None:
    """Print the names of images that are not in a map with their reasons; one line for many of one reason.

    The command's --json names all of them.
    """
    named: dict[str, list[str]] = {}
    for name, reason in sorted(left_out.items()):
        named.setdefault(reason, []).append(name)
    for reason, names in named.items():
        if len(names) > MOST_NAMED:
            names = [f"{len(names)} images ({', '.join(names[:FEW_NAMED])}, ...; --json names all)"]
        for name in names:
            say(arguments, f"left out {name}: {reason}")


def say_focals(arguments: Arguments, focals: Sequence[ContradictedFocal]) -> None:
    """Print for which images a map was made with another focal length than they came with, why, and what to do."""
    for focal in focals:
        few = focal.names if len(focal.names) <= MOST_NAMED else (*focal.names[:FEW_NAMED], "...; --json names all")
        say(arguments, f"note: {', '.join(few) or f'{focal.images} images'}: {advised(focal.reason, focal.remedy)}")


def say_vague(arguments: Arguments, check: MapCheck) -> None:
    """Print how badly the camera positions or focal lengths of a map are known, where they are, and what to do."""
    if check.vague is not None:
        advice = advised(check.vague, (Remedy("give", "Features.camera"),))
        say(arguments, f"note: {advice}, or map more photographs that overlap")


def say_table(arguments: Arguments, table: Table) -> None:
    """Print a table for people where `say` prints, as wide as that terminal at most; 80 columns where it is none."""
    stream = _for_people(arguments)
    for line in table.lines(width_of(stream)):
        _write(stream, line)


def say_facts(arguments: Arguments, pairs: Mapping[str, str]) -> None:
    """Print names, each with a text beside it that is wrapped to the width of the terminal, where `say` prints."""
    stream = _for_people(arguments)
    for line in facts(pairs, width_of(stream)):
        _write(stream, line)


def explain(arguments: Arguments, *sentences: str) -> None:
    """Print sentences that belong to a table where `say` prints: wrapped at spaces on a terminal, else a line each."""
    stream = _for_people(arguments)
    for sentence in sentences:
        for line in wrapped(sentence, width_of(stream)) if stream.isatty() else [printable(sentence)]:
            _write(stream, line)


def width_of(stream: Any) -> int:
    """Columns of the terminal that `stream` is; 80 where it is none."""
    return max(40, shutil.get_terminal_size((WIDTH, 24)).columns) if stream.isatty() else WIDTH


def _for_people(arguments: Arguments) -> Any:
    return sys.stderr if str(getattr(arguments, "json", None)) == "-" else sys.stdout


def _write(stream: Any, text: str) -> None:
    """Print a text; letters that the stream's encoding lacks become question marks."""
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), file=stream)


def report(arguments: Arguments, path: Path, what: str) -> None:
    """Print that `what` was written to `path`."""
    say(arguments, f"wrote {what} to {path}")


def picture(text: str) -> Path:
    """Parse the path of a figure, whose suffix gives the format (an argparse type)."""
    path = Path(text)
    if path.suffix.lower() not in (".png", ".svg"):
        raise argparse.ArgumentTypeError(f"must end in .png or .svg, got {text!r}")
    return path


def at_least(low: int) -> Callable[[str], int]:
    """An argparse type that parses integers of at least `low`."""

    def parse(text: str) -> int:
        if not (text.isdecimal() and int(text) >= low):
            raise argparse.ArgumentTypeError(f"must be an integer of at least {low}, got {text!r}")
        return int(text)

    parse.metavar = "N"  # type: ignore[attr-defined]
    return parse


OCTAVE = "0, -1 to double the image first, or auto: -1 where 0 gives less than half of --max-features (default auto)"


def octave(text: str) -> int | None:
    """An argparse type for the octave at which SIFT begins: None stands for "auto", the default of `veil extract`."""
    if text not in ("auto", "-1", "0", "1"):
        raise argparse.ArgumentTypeError(f"must be auto, -1, 0 or 1, got {text!r}")
    return None if text == "auto" else int(text)

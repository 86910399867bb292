"""The pages of commands: `python docs/extensions/commands.py` writes them from the parsers, below the first lines."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from veil.cli import _parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    name: ROOT / folder / "reference" / "cli.md" for name, folder in (("veil", "docs"), ("lab", "lab"), ("faces", "faces"))
}
# Protocols that veil-faces brings.
FACE_PROTOCOLS = {f"veil evaluate {name}" for name in ("attributes", "faces", "histories", "identification", "protection")}

_CODE = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*|\$[A-Z_]+)")


def commands(parser: argparse.ArgumentParser, name: str = "veil") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Names and parsers of groups that have options, and of all commands that have no others below them."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below or (options(parser) and name != "veil"):
        yield name, parser
    for action in below:
        for word, child in action.choices.items():
            yield from commands(child, f"{name} {word}")


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options of a parser without --help and --version."""
    left_out = argparse._HelpAction | argparse._VersionAction
    return [action for action in parser._actions if action.option_strings and not isinstance(action, left_out)]


def page_of(name: str) -> str:
    """The package on whose page a command stands."""
    first = name.split()[1]
    if first == "faces" or name in FACE_PROTOCOLS:
        return "faces"
    return "lab" if first in ("evaluate", "lab") else "veil"


def section(name: str, parser: argparse.ArgumentParser) -> str:
    """The section of a command: usage, description, a table of its arguments and options, and examples."""
    inputs = [
        action for action in parser._actions if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
    form = parser._get_formatter()
    arguments = [form._format_args(action, action.dest) for action in inputs]
    required = [_written(action, form) for action in options(parser) if action.required]
    group = ["COMMAND ..."] if len(inputs) < len([action for action in parser._actions if not action.option_strings]) else []
    usage = " ".join([name, *arguments, *group, *required, "[options]"])
    rows = [(f"`{text}`", action) for text, action in zip(arguments, inputs, strict=True)]
    rows += [(", ".join(f"`{each}`" for each in _names(action, form)), action) for action in options(parser)]
    table = [f"| {shown} | {_help(action, form)} |\n" for shown, action in rows]
    examples = (parser.epilog or "").partition("\n")[2].rstrip("\n")
    lines = [f"\n## {name}\n\n`{usage}`\n\n{_marked((parser.description or '').strip())}\n"]
    if table:
        lines += ["\n| Argument | Meaning |\n| --- | --- |\n", *table]
    if examples:
        lines.append(f"\n```text\n{_outdented(examples)}\n```\n")
    return "".join(lines)


def _outdented(text: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in text.splitlines())


def _names(action: argparse.Action, form: argparse.HelpFormatter) -> list[str]:
    """The names of an option, the last one with its value."""
    *others, _ = action.option_strings
    return [*others, _written(action, form)]


def _written(action: argparse.Action, form: argparse.HelpFormatter) -> str:
    """The long name of an option with its value."""
    name = action.option_strings[-1]
    if action.nargs == 0:
        return name
    usual = form._get_default_metavar_for_optional(action)
    return f"{name} {form._format_args(action, usual)}"


def _help(action: argparse.Action, form: argparse.HelpFormatter) -> str:
    text = " ".join(form._expand_help(action).split()) if action.help else ""
    choices = [str(choice) for choice in action.choices or ()]
    if choices and action.metavar:
        text += f" ({', '.join(choices)})"
    return _marked(text + (" (required)" if action.required and action.option_strings else "")).replace("|", "\\|")


def _marked(text: str) -> str:
    """A text for Markdown: options and variables of the environment as code, where they are not yet."""
    parts = text.split("`")
    parts[::2] = [_CODE.sub(r"`\1`", part).replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


def written(page: str) -> str:
    """The page of a package, whose first lines are kept."""
    head = PAGES[page].read_text(encoding="utf-8").partition("\n## ")[0].rstrip("\n") + "\n"
    return head + "".join(section(name, parser) for name, parser in commands(_parser()) if page_of(name) == page)


if __name__ == "__main__":
    for name, path in PAGES.items():
        path.write_text(written(name), encoding="utf-8")

"""The size of the house: files, lines of code, commands, options, public names and open types, pages and sentences.

    python lab/benchmarks/house.py [ROOT] [--pages] [--json]

ROOT is a checkout (default: this one), whose packages must be the ones that this Python imports. `--pages` adds the mean length
of a sentence for each page. An open type is a class of the project in a signature of a public name that is not public itself;
members with an underscore are no part of a signature.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import json
import re
import tokenize
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = {"veil": "src/veil", "veil_lab": "lab/veil_lab", "veil_faces": "faces/veil_faces"}


def code_lines(path: Path) -> int:
    """Number of lines of a file that hold code: no comment, no blank line, no docstring."""
    text = path.read_text()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            lines -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(lines)


def sizes(folder: Path) -> dict[str, int]:
    """Files, folders with more files than 15, and lines of a package."""
    files = sorted(folder.rglob("*.py"))
    counts: dict[Path, int] = {}
    for path in files:
        counts[path.parent] = counts.get(path.parent, 0) + 1
    code = [code_lines(path) for path in files]
    return {
        "files": len(files),
        "lines": sum(len(path.read_text().splitlines()) for path in files),
        "code lines": sum(code),
        "files of under 70 code lines": sum(lines < 70 for lines in code),
        "folders of over 15 files": sum(count > 15 for count in counts.values()),
    }


def parsers(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parsers of groups, whose options count, and of commands without commands below them."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups or name:
        yield name, parser
    for group in groups:
        shown = {id(action): key for key, action in reversed(group.choices.items())}
        for each, key in ((group.choices[key], key) for key in dict.fromkeys(shown.values())):
            yield from parsers(each, f"{name} {key}".strip())


def commands() -> dict[str, dict[str, int]]:
    """Number of commands and of options, by package."""
    from veil.cli import _parser

    made: dict[str, dict[str, int]] = {}
    for name, parser in parsers(_parser()):
        options = [
            action
            for action in parser._actions
            if action.option_strings and not isinstance(action, argparse._HelpAction | argparse._VersionAction)
        ]
        package = name.split()[0] if name.split()[0] in ("evaluate", "lab", "faces") else "veil"
        entry = made.setdefault(package, {"commands": 0, "options": 0})
        entry["commands"] += not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)
        entry["options"] += len(options)
    return made


def open_types() -> tuple[int, list[str]]:
    """The number of public names, and the types in their signatures that are not public."""
    import veil

    public = {name: getattr(veil, name) for name in veil.__all__}
    known = {id(value) for value in public.values()}
    seen: set[str] = set()
    for value in public.values():
        for function in _callables(value):
            for hint in (hint for name, hint in _hints(function).items() if not name.startswith("_")):
                for part in _parts(hint):
                    if inspect.isclass(part) and part.__module__.startswith("veil.") and id(part) not in known:
                        seen.add(f"{part.__module__}.{part.__qualname__}")
    return len(public), sorted(seen)


def _callables(value: Any) -> Iterator[Any]:
    if inspect.isfunction(value):
        yield value
    if inspect.isclass(value):
        yield value
        for name, member in vars(value).items():
            if not name.startswith("_") or name in ("__init__", "__call__"):
                member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                member = getattr(member, "func", member)  # a cached property
                if inspect.isfunction(member):
                    yield member


def _hints(value: Any) -> dict[str, Any]:
    module = vars(importlib.import_module(value.__module__))
    names = dict(module)
    for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(value)))):  # type: ignore[arg-type]
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    for alias in line.names:
                        names[alias.asname or alias.name] = getattr(importlib.import_module(line.module), alias.name)
    try:
        return typing.get_type_hints(value, globalns=names)
    except (NameError, TypeError):
        return {}


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for argument in typing.get_args(hint):
        yield from _parts(argument) if not isinstance(argument, list) else (p for a in argument for p in _parts(a))


def sentences(text: str) -> list[int]:
    """Number of words of each sentence of a Markdown page: no code, tables, headings or links' addresses."""
    text = re.sub(r"```.*?```|<!--.*?-->|<[^>]+>", " ", text, flags=re.DOTALL)
    kept = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!["))]
    text = re.sub(r"\]\([^)]*\)", "]", "\n".join(kept))
    blocks = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+", text)
    made = []
    for block in blocks:
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[\"'(*`\[]*[A-Z])", " ".join(block.split())):
            words = re.findall(r"`[^`]*`|\S*\w\S*", sentence)
            if len(words) > 2:
                made.append(len(words))
    return made


def pages(root: Path) -> list[Path]:
    """The pages of documentation."""
    patterns = ("*.md", "docs/**/*.md", "lab/**/*.md", "faces/**/*.md", "clients/typescript/*.md")
    return sorted(path for pattern in patterns for path in root.glob(pattern) if "node_modules" not in path.parts)


def table(root: Path) -> dict[str, Any]:
    """All of it, as one record."""
    made: dict[str, Any] = {}
    for package, folder in PACKAGES.items():
        if (root / folder).is_dir():
            made[package] = sizes(root / folder)
    made["commands"] = commands()
    made["public names"], opened = open_types()
    made["open types"] = len(opened)
    read = {str(path.relative_to(root)): path.read_text() for path in pages(root)}
    made["pages"] = len(read)
    made["kB of pages"] = round(sum(len(text.encode()) for text in read.values()) / 1000)
    lengths = {name: sentences(text) for name, text in read.items()}
    made["sentence of a page"] = {name: round(sum(each) / len(each), 1) for name, each in lengths.items() if each}
    everything = [length for each in lengths.values() for length in each]
    made["words of a sentence"] = round(sum(everything) / len(everything), 1)
    made["sentences over 35 words"] = sum(length > 35 for length in everything)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--pages", action="store_true", help="the mean length of a sentence for each page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    made = table(arguments.root)
    by_page = made.pop("sentence of a page")
    if arguments.json:
        print(json.dumps(made | {"sentence of a page": by_page}))
        return
    for name, value in made.items():
        print(f"{name:24} {value if not isinstance(value, dict) else ', '.join(f'{k} {v}' for k, v in value.items())}")
    if arguments.pages:
        for name, mean in by_page.items():
            print(f"{mean:6} {name}")


if __name__ == "__main__":
    main()

"""Attributes that commands read of their parsed arguments, also in shared functions, exist in their parsers."""

from __future__ import annotations

import argparse
import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from test_cli import COMMANDS

import veil.cli

NAME = "arguments"


@cache
def modules() -> list[ModuleType]:
    """All modules of the command line."""
    root = Path(veil.cli.__file__).parent
    parts = [path.relative_to(root).with_suffix("").parts for path in root.rglob("*.py") if not path.stem.startswith("__")]
    return [import_module(".".join(("veil.cli", *part))) for part in sorted(parts)]


@cache
def methods() -> dict[str, list[Any]]:
    """The functions in classes of the command line's modules, by name: what `output.write(arguments)` may call."""
    by_name: dict[str, list[Any]] = {}
    for module in modules():
        for item in vars(module).values():
            if inspect.isclass(item) and item.__module__ == module.__name__:
                for name, member in vars(item).items():
                    if isinstance(member, FunctionType):
                        by_name.setdefault(name, []).append(member)
    return by_name


def asked(function: Callable[..., Any]) -> tuple[set[str], list[Any]]:
    """Attributes that a function reads of its parameter `arguments`, and functions that it passes them on to."""
    function = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    read: set[str] = set()
    called: list[Any] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == NAME:
            read.add(node.attr)
        if isinstance(node, ast.Call):
            passed = [*node.args, *(keyword.value for keyword in node.keywords)]
            if not any(isinstance(value, ast.Name) and value.id == NAME for value in passed):
                continue
            if isinstance(node.func, ast.Name):
                called.append(function.__globals__.get(node.func.id))
            elif isinstance(node.func, ast.Attribute):
                called += methods().get(node.func.attr, [])
    return read, [item for item in called if isinstance(inspect.unwrap(item), FunctionType)]


def missing(commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    """Attributes that a command's functions read and its parser does not set."""
    for name, parser in commands.items():
        run = parser.get_default("run")
        groups = [group for above, group in commands.items() if name.startswith(f"{above} ")]
        known = {action.dest for each in (parser, *groups) for action in each._actions} | set(parser._defaults)
        left, seen = [run] if run else [], set()
        while left:
            function = inspect.unwrap(left.pop())
            if function in seen:
                continue
            seen.add(function)
            read, called = asked(function)
            left += called
            for attribute in sorted(read - known):
                yield f"{name}: {function.__module__}.{function.__qualname__} reads arguments.{attribute}"


def test_no_command_reads_an_argument_that_its_parser_does_not_set() -> None:
    assert list(missing(COMMANDS)) == []


def test_what_a_shared_function_reads_is_missed_where_the_parser_lacks_it() -> None:
    """The broken twin: `veil map` with no options; its folder of output is read by a method that another module defines."""
    bare = argparse.ArgumentParser()
    bare.set_defaults(run=COMMANDS["veil map"].get_default("run"))
    told = set(missing({"veil map": bare}))
    assert told >= {
        "veil map: veil.cli.server.map._map reads arguments.json",
        "veil map: veil.cli.server.map_writing.map_output reads arguments.output",
        "veil map: veil.cli.server.map_writing.MapOutput.write reads arguments.workers",
    }

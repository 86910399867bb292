"""Remedies are data that the command line alone turns into flags: the table is whole, and no flag stands outside of it."""

from __future__ import annotations

import argparse
import ast
import pickle
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import veil.cli
import veil.client.connection
import veil.server.http.problems
from veil.cli.remedies import PHRASES, advised
from veil.errors import InputError, Remedy, VeilError, remedies_of, sentence
from worlds.syntax import nodes_of, tree_of

ROOT = Path(__file__).parents[2]
PACKAGES = [path for path in (ROOT / "src/veil", ROOT / "faces/veil_faces", ROOT / "lab/veil_lab") if path.is_dir()]
FLAG = re.compile(r"(?<![\w-])--[a-z]")
NAMES = {name.split()[0] for name in (*veil.cli.COMMANDS, *veil.cli.PACKAGES)}
COMMAND = re.compile(rf"(`|: |run )veil ({'|'.join(NAMES)})\b")


@cache
def modules() -> list[tuple[Path, ast.Module, list[ast.AST]]]:
    """Every module outside of the command lines, parsed, and its nodes."""
    paths = [
        path for package in PACKAGES for path in sorted(package.rglob("*.py")) if "cli" not in path.relative_to(package).parts
    ]
    return [(path, tree_of(path), nodes_of(path)) for path in paths]


@cache
def raised() -> dict[tuple[str, str], str]:
    """Action and object of every remedy that the code outside of the command lines makes, and where."""
    made = {}
    for path, _, nodes in modules():
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Remedy":
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                words = [str(item.value) for item in node.args[:2] if isinstance(item, ast.Constant)]
                if path.name == "errors.py":  # what a server named
                    continue
                assert len(words) == 2, f"{where}: action and object must be constants, so that the table can be compared"
                made[words[0], words[1]] = where
    return made


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command with its options, subcommands after their command."""
    yield name, set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from commands(inner, f"{name} {word}".strip())


def docstrings(module: ast.Module) -> set[ast.expr]:
    """The nodes of docstrings, which are read by who develops."""
    scopes = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    heads = [node.body[0] for node in ast.walk(module) if isinstance(node, scopes) and node.body]
    return {head.value for head in heads if isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant)}


def test_the_table_holds_every_remedy_and_no_other() -> None:
    """Oracle: the calls of `Remedy` in the code, read by syntax, not by running it."""
    made = raised()
    assert made.keys() == PHRASES.keys(), (sorted(made.keys() - PHRASES.keys()), sorted(PHRASES.keys() - made.keys()))


def test_flags_and_commands_of_the_table_exist() -> None:
    """Oracle: the parser of the whole command line. Commands of packages that are not installed here are passed over."""
    known, made = dict(commands(veil.cli._parser())), raised()
    absent = veil.cli.PACKAGES.keys() - veil.cli.brought().keys()
    flags = set().union(*known.values())
    for key, phrase in PHRASES.items():
        if absent and not made[key].startswith("src/veil/"):
            continue
        for quoted in re.findall(r"`([^`]*)`", phrase):
            words = quoted.split()
            if words[0] != "veil" or words[1] in absent:  # the former: pip, dask
                continue
            named = [" ".join(words[1:end]) for end in (4, 3, 2) if " ".join(words[1:end]) in known]
            assert named, f"{key}: there is no command `{quoted}`"
            assert set(re.findall(r"(?<!\S)-[-a-z]+", quoted)) <= known[named[0]], (key, quoted)
        own = set(re.findall(r"(?<![\w-])--[a-z-]+", re.sub(r"`[^`]*`", "", phrase)))
        assert own <= flags, (key, own - flags)


def test_parameters_of_remedies_exist() -> None:
    """Oracle: the classes and functions of the code: `owner.name` is a field, an argument or a parameter there."""
    names: set[str] = set()
    for _, module, _ in modules():
        _gather(module, "", names)
    for name in veil.__all__:  # records inherit fields, too
        names |= {f"{name}.{field}" for field in getattr(getattr(veil, name), "__dataclass_fields__", ())}
    lost = {key: where for key, where in raised().items() if "." in key[1] and key[1] not in names}
    assert not lost


def _gather(node: ast.AST, prefix: str, names: set[str]) -> None:
    """Add the fields of classes and the parameters of functions below a node, as `owner.name`."""
    for item in ast.iter_child_nodes(node):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            names.add(f"{prefix}{item.target.id}")
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            own = prefix.removesuffix(".") if item.name == "__init__" else f"{prefix}{item.name}"
            names |= {f"{own}.{argument.arg}" for argument in (*item.args.args, *item.args.kwonlyargs)}
        elif isinstance(item, ast.ClassDef):
            _gather(item, f"{item.name}.", names)


def test_no_string_outside_the_command_line_names_a_flag() -> None:
    """Oracle: the strings of the syntax, docstrings too; "--" before a blank (a comment of SQL) is no flag."""
    told = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value[:80]!r}"
        for path, _, nodes in modules()
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FLAG.search(node.value)
    ]
    assert not told


def test_no_message_outside_the_command_line_names_a_command() -> None:
    """Oracle: the names of all commands; docstrings are for who develops, and may name them."""
    told = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value[:80]!r}"
        for path, module, nodes in modules()
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and COMMAND.search(node.value)
        if node not in docstrings(module)
    ]
    assert not told


def prose(path: Path) -> str:
    """The text of a page's file that people read: HTML without styles, comments and script, JavaScript's strings of words."""
    text = path.read_text()
    if path.suffix == ".html":
        return re.sub(r"<style.*?</style>|<script.*?</script>|<!--.*?-->|style=\"[^\"]*\"", "", text, flags=re.DOTALL)
    # A name of CSS such as "--text" is one word; `--count` outside of strings is arithmetic.
    strings = re.findall(r"\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`", text)
    return "\n".join(string for string in strings if " " in string)


def test_no_page_names_a_flag() -> None:
    """Oracle: the prose of templates and scripts; names of CSS begin with "--", too, and stand in styles."""
    pages = [path for package in PACKAGES for suffix in ("html", "js") for path in package.rglob(f"*.{suffix}")]
    assert len(pages) > 5
    assert not [str(path) for path in pages if FLAG.search(prose(path))]


def kinds(kind: type[VeilError] = VeilError) -> Iterator[type[VeilError]]:
    """An error's class and all below it, of the modules that are loaded."""
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def test_errors_cross_processes() -> None:
    """Oracle: the error before `pickle`, whatever its class wants from its constructor."""
    for kind in sorted(set(kinds()), key=str):  # a loop: which modules are loaded differs between workers
        error = kind.__new__(kind, "no map")
        VeilError.__init__(error, "no map", facts={"images": 3}, remedy=Remedy("give", "localize.codebook"))
        copy = pickle.loads(pickle.dumps(error.at("map/")))
        assert type(copy) is kind and str(copy) == "map/: no map; give localize(codebook=...)"
        assert copy.facts == {"images": 3} and copy.remedy == error.remedy and copy.args == ("map/: no map",)


def test_sentences() -> None:
    """Oracle: sentences written by hand, for Python and for the command line."""
    error = InputError("no pose", remedy=(Remedy("give", "Attacker.photographs"), Remedy("give", "Attacker.database")))
    assert str(error) == "no pose; give Attacker(photographs=...), or give Attacker(database=...)"
    assert advised(error) == "no pose; give photographs with --attacker, or a codebook of such descriptors with --database"
    assert sentence("no pose", ()) == "no pose" and isinstance(error, ValueError)
    assert str(Remedy("allow", "Device.release.allow_second")) == "allow it with Device.release(allow_second=True)"
    assert str(Remedy("renew", "index")) == "make the index again" and str(Remedy("install", "x")) == "install x"
    assert str(Remedy("give", "the same choices")) == "give the same choices"


def test_remedies_of_a_server() -> None:
    """Oracle: the remedies before JSON; what a newer or hostile server names is left out, or told in its own words."""
    remedy = Remedy("give", "Protection.lines")
    assert remedies_of([remedy.as_json(), {"action": "hope", "object": "x"}, 3]) == (remedy,) and remedies_of("x") == ()
    assert advised("no", (Remedy("make", "coffee"),)) == "no; make the coffee"

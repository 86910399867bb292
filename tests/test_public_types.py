"""The public interface is closed: every type of veil that a public signature, field or result shows is public itself."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import veil

SOURCE = Path(veil.__file__).parent
CALLED = ("__init__", "__call__", "__getitem__", "__iter__", "__enter__", "__matmul__")
NAMES = sorted(set(veil.__all__) - {"__version__"})
Home = tuple[str, str]  # module and name of what veil defines


def public() -> dict[Home, str]:
    """Public names by where they are defined, which is not always where the table takes them from."""
    homes = {}
    for name in NAMES:
        value = getattr(veil, name)
        defined = inspect.isclass(value) or inspect.isfunction(value)
        homes[(value.__module__, value.__name__) if defined else (f"veil.{veil._HOMES[name]}", name)] = name
    return homes


@cache
def defined(module: str) -> dict[str, ast.AST | Home]:
    """The definition of each name of a module: a class, the value of an alias, or the place that it is imported from."""
    file = SOURCE.joinpath(*module.split(".")[1:])
    path = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    tree = ast.parse(path.read_text())
    names: dict[str, ast.AST | Home] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("veil"):
            names |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node.annotation
    return names


def types_in(annotation: ast.AST, module: str) -> Iterator[Home]:
    """The classes of veil that an annotation names, by themselves or through aliases."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield from types_in(ast.parse(node.value, mode="eval"), module)
            except SyntaxError:  # a shape
                continue
        elif isinstance(node, ast.Name):
            yield from _named(node.id, module)


def is_json_record(node: ast.ClassDef) -> bool:
    """Whether a class is the record of a `dict` for JSON, whose keys a schema documents."""
    return node.name.endswith("Json") and all(
        isinstance(base, ast.Name) and (base.id == "TypedDict" or base.id.endswith("Json")) for base in node.bases
    )


def _named(name: str, module: str) -> Iterator[Home]:
    what = defined(module).get(name)
    if isinstance(what, tuple):
        yield from _named(what[1], what[0])
    elif isinstance(what, ast.ClassDef) and not is_json_record(what):
        yield module, name
    elif isinstance(what, ast.BinOp | ast.Subscript) and name[0].isupper():
        yield from types_in(what, module)


def of_function(node: ast.FunctionDef, module: str) -> Iterator[Home]:
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    for argument in every:
        if argument is not None and argument.annotation is not None and not argument.arg.startswith("_"):
            yield from types_in(argument.annotation, module)
    if node.returns is not None:
        yield from types_in(node.returns, module)


def shown_by(home: Home) -> Iterator[tuple[str, Home]]:
    """The types in the signatures of a function or class, each with the member that shows it."""
    module, name = home
    value = getattr(importlib.import_module(module), name)
    if inspect.isfunction(value):
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
        assert isinstance(node, ast.FunctionDef)
        yield from ((name, shown) for shown in of_function(node, module))
    elif inspect.isclass(value):
        for base in value.__mro__:
            if base.__module__.startswith("veil"):
                yield from _members(base)
    else:
        alias = defined(module)[name]
        assert not isinstance(alias, tuple)
        yield from ((name, shown) for shown in types_in(alias, module))


def _members(cls: type) -> Iterator[tuple[str, Home]]:
    node = defined(cls.__module__)[cls.__name__]
    assert isinstance(node, ast.ClassDef)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            name, types = item.target.id, types_in(item.annotation, cls.__module__)
        elif isinstance(item, ast.FunctionDef):
            name, types = item.name, of_function(item, cls.__module__)
        else:
            continue
        if not name.startswith("_") or name in CALLED:
            yield from ((f"{cls.__name__}.{name}", home) for home in types)


def open_types(names: dict[Home, str]) -> dict[Home, set[str]]:
    """Types of veil that can be reached from the public names and are not among them, with what shows them."""
    members: dict[Home, set[str]] = defaultdict(set)
    seen, waiting = set(names), list(names)
    while waiting:
        for member, home in shown_by(waiting.pop()):
            if home not in names:
                members[home].add(member)
            if home not in seen:
                seen.add(home)
                waiting.append(home)
    return members


def test_every_type_in_a_public_signature_is_public() -> None:
    """Oracle: the definition. From all public names along annotations, to a fixed point, nothing that is not public is met."""
    open_in_public = {f"{module}.{name}": sorted(members) for (module, name), members in open_types(public()).items()}
    assert open_in_public == {}, "\n".join(f"{name}: {', '.join(members)}" for name, members in sorted(open_in_public.items()))


def test_the_walk_meets_what_is_not_public() -> None:
    """Broken twin: without the name `Camera` its type is listed as open, by the fields of records that hold it."""
    names = {home: name for home, name in public().items() if name != "Camera"}
    assert "Picture.camera" in open_types(names)["veil.geometry.camera", "Camera"]


@cache
def _places() -> dict[str, list[str]]:
    """The files that define a class, by its name."""
    places = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        if not {"studies", "faces"} & set(path.parts):
            for name in dict.fromkeys(re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)):
                places[name].append(path.relative_to(SOURCE).as_posix())
    return places


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(veil, name))])
def test_no_other_class_has_the_name_of_a_public_one(name: str) -> None:
    assert len(_places()[name]) == 1, _places()[name]

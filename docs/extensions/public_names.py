"""The pages of the public names: `python docs/extensions/public_names.py` writes them from veil's table and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import veil

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
# Generated text stands between these lines.
BEGIN, END = "<!-- the public names -->", "<!-- end of the public names -->"


def groups() -> dict[str, list[str]]:
    """Public names by the title of their group, in the order of the table."""
    found: dict[str, list[str]] = {}
    for line in Path(veil.__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()[2:]:
        if line.startswith("# "):
            found[line[2:]] = []
        elif line.startswith("from "):
            found[list(found)[-1]].append(line.split()[-1])
    return found


def meaning(name: str) -> str:
    """The first sentence of a name's docstring, or of the comment above a constant."""
    value = getattr(veil, name)
    if name in CONSTANTS:
        return CONSTANTS[name]
    first = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s(?=[A-Z])", first)[0].replace("|", r"\|")


# Constants and aliases, which have no docstring.
CONSTANTS = {
    "ATTACKS": "Every known attack, in the order in which an audit runs them.",
    "Message": "The content of a message: `Upload` or `LineUpload`.",
}


def tables() -> Iterator[str]:
    """A heading for each group, and a table of names and their meanings; what is only returned has a table of its own."""
    for title, names in groups().items():
        verb, _, answers = title.partition(": ")
        heading = "" if answers else f"\n### {verb}\n"
        first = "only returned" if answers else "called and given"
        rows = "".join(f"| `{name}` | {meaning(name)} |\n" for name in names)
        yield f"{heading}\n| {first} | |\n| --- | --- |\n{rows}"


def entries() -> Iterator[str]:
    """A section for each group, with a directive of Sphinx for each name."""
    for title, names in groups().items():
        yield f"\n## {title}\n\n```{{eval-rst}}\n" + "\n".join(_entry(name) for name in names) + "```\n"


def _entry(name: str) -> str:
    value = getattr(veil, name)
    if inspect.isfunction(value):
        return f".. autofunction:: veil.{name}\n"
    if not inspect.isclass(value):
        return f".. autodata:: veil.{name}\n   :no-value:\n"
    members = "" if issubclass(value, Exception) else "   :members:\n"
    return f".. autoclass:: veil.{name}\n{members}"


def written(page: Path) -> str:
    """A page with its generated part made anew."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    made = "".join(tables() if page.stem == "python" else entries())
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


if __name__ == "__main__":
    for stem in ("python", "api"):
        path = REFERENCE / f"{stem}.md"
        path.write_text(written(path), encoding="utf-8")

"""The page of renamed commands, options and Python names: `python docs/extensions/renamed.py` writes it from renamed.csv.

A row of renamed.csv has an old and a new name. A name with spaces is a command or an option of one, any other is of Python. The
new name of an option that no command has any more is the field or function of Python, or the laboratory's command, that has it.
"""

from __future__ import annotations

import csv
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
HEAD = """\
# Renamed

Old and new names of commands, options and Python. No version of veil was released with the old ones, and none of them works.
`python docs/extensions/renamed.py` writes this page from [renamed.csv](renamed.csv).
"""
KINDS = {"Commands": "command", "Options": "option", "Python": "name"}


def rows() -> list[tuple[str, str]]:
    """Old and new names, as renamed.csv lists them."""
    with (REFERENCE / "renamed.csv").open(encoding="utf-8", newline="") as file:
        return [(row["old"], row["new"]) for row in csv.DictReader(file)]


def kind(name: str) -> str:
    """Kind of an old name: command, option or name (of Python)."""
    return "option" if " --" in name else "command" if " " in name else "name"


def page() -> str:
    """The page: a table for each kind of name."""
    made = [HEAD]
    for title, wanted in KINDS.items():
        lines = [f"| `{old}` | `{new}` |\n" for old, new in sorted(rows()) if kind(old) == wanted]
        made.append(f"\n## {title}\n\n| Old | New |\n| --- | --- |\n" + "".join(lines))
    return "".join(made)


if __name__ == "__main__":
    (REFERENCE / "renamed.md").write_text(page(), encoding="utf-8")

"""One meaning has one name: options of all commands against each other, and the table of old names."""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from test_cli import COMMANDS, is_here

from worlds.documents import REFERENCE, ROOT

sys.path.insert(0, str(ROOT / "docs"))
from extensions.renamed import page, rows

# What an option is about, as its help says, and the names that such an option may have.
VOCABULARY = {
    r"decoy pool|pool of decoys|client's (decoys|pool)|\bpool that decoys\b|\bpool for decoys\b": {"--decoys", "--decoy-pool"},
    r"veil lab train inversion|network for raw descriptors": {"--inverter"},
    r"veil lab train attacks": {"--attack-model"},
    r"^(a new file|table to write|map to write|weights to write|features to write|folder for the)|^where to write|^the \.npz": {
        "--output"
    },
    r"inlier threshold": {"--max-error"},
    r"images .*\bnear\b(?! this)": {"--nearest", "--near-images"},
    r"^photographs of (none of these|other|another) places?": {"--strangers"},
    r"^photographs of elsewhere": {"--false"},
    r"^threads\b|\bthreads of\b": {"--threads"},
    r"processes\b(?! of this machine)": {"--workers"},
    r"image pairs at a time": {"--workers"},
    r"intrinsics|COLMAP's models": {"--camera"},
    r"^(photographs that are attacked)|attacked at most(, half|\b(?! over))(?!, over)": {"--photographs", "--victims"},
    r"turns? of holding|held out in": {"--folds"},
    r"^ratio test": {"--ratio"},
    r"cannot be used \(default: skip": {"--strict"},
    r"draw .*\(\.png or \.svg\)": {"--figure", "--curve", "--forged-figure"},
    r"\bas JSON\b": {"--json"},
}


def meaning(action: argparse.Action) -> str:
    """The help of an option without its default and marks, to be compared with others'."""
    text = re.sub(r"\(?[;,]?\s*default[^)]*\)?", "", str(action.help or "")).lower()
    return " ".join(re.findall(r"[a-z0-9']+", text))


def strange(commands: Iterable[argparse.ArgumentParser]) -> list[str]:
    """Options that say the same under several names, and those whose name is not that of what they are about."""
    names = defaultdict(set)
    faults = []
    for parser in commands:
        for action in parser._actions:
            name = next((word for word in action.option_strings if word.startswith("--")), "")
            if not name:
                continue
            names[meaning(action)].add(name.replace("--no-", "--"))
            for pattern, allowed in VOCABULARY.items():
                if re.search(pattern, str(action.help or "")) and name not in allowed:
                    faults.append(f"{parser.prog} {name}: {action.help}")
    return faults + [
        f"{sorted(options)}: {text}" for text, options in names.items() if len(text.split()) > 2 and len(options) > 1
    ]


def test_one_meaning_has_one_name() -> None:
    assert strange(COMMANDS.values()) == []


def test_two_names_for_one_meaning_are_seen() -> None:
    """Broken twins: a name that the vocabulary does not allow, and two names with one help."""
    parser = argparse.ArgumentParser(prog="veil x")
    parser.add_argument("--pool", help="decoy pool; default: the bundled one")
    parser.add_argument("--a", help="how many there are (default 3)")
    parser.add_argument("--b", help="how many there are")
    assert strange([parser]) == ["veil x --pool: decoy pool; default: the bundled one", "['--a', '--b']: how many there are"]


def has(name: str) -> bool:
    """Whether there is a command, an option of a command, or a name of Python with the fields and methods below it."""
    command, _, option = name.partition(" --")
    if option:
        return command in COMMANDS and f"--{option}" in COMMANDS[command]._option_string_actions
    if " " in name:
        return name in COMMANDS
    words = name.split(".")
    for end in range(len(words), 0, -1):
        try:
            value: Any = import_module(".".join(words[:end]))
        except ModuleNotFoundError:
            continue
        if getattr(value, "__file__", None) is None:  # a folder that holds no code any more
            return False
        for word in words[end:]:
            if word not in {*dir(value), *getattr(value, "__dataclass_fields__", ())}:
                return False
            value = getattr(value, word, None)
        return True
    return False


def needs_others(name: str) -> bool:
    """Whether a name is of a package that is not installed."""
    if " " in name:
        return not is_here(name.removeprefix("veil ").partition(" --")[0])
    return find_spec(name.partition(".")[0]) is None


def test_the_page_of_old_names_is_that_of_its_table() -> None:
    """Second method: the page as `docs/extensions/renamed.py` makes it. Its new names are there, its old ones are not."""
    assert (REFERENCE / "renamed.md").read_text() == page(), "run: python docs/extensions/renamed.py"
    assert [old for old, _ in rows() if has(old)] == []
    assert [new for _, new in rows() if not has(new) and not needs_others(new)] == []


def test_names_are_seen() -> None:
    """Broken twins: names that there are not beside names that there are."""
    there = ("veil audit", "veil audit --max-seconds", "veil.LocalizeOptions.seed", "veil.cli.main")
    assert all(map(has, there))
    assert not any(map(has, ("veil auditing", "veil audit --maximum", "veil.LocalizeOptions.seeds", "veil.nothing", "nothing")))

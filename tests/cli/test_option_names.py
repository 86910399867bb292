"""One meaning has one name: options of all commands against each other, and old names that still work."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable

import pytest
from test_cli import COMMANDS, is_here

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
# Options that had another name once: the command, the old name, the new one, and words that make the rest of the line whole.
RENAMED = [
    ("veil faces describe", "--out", "--output", ["photos/", "--out", "a.npz"]),
    (
        "veil lab train inversion",
        "--out",
        "--output",
        ["photos/", "--input", "raw", "--steps", "1", "--seed", "0", "--out", "a.npz"],
    ),
    ("veil inversion invert", "--weights", "--inverter", ["photos/", "-o", "out", "--weights", "a.npz"]),
    ("veil evaluate inversion", "--weights", "--inverter", ["photos/", "--weights", "a.npz"]),
    ("veil evaluate inversion", "--limit", "--photographs", ["photos/", "--limit", "3"]),
    ("veil evaluate learned", "--pool", "--decoys", ["photos/", "--pool", "a.npz"]),
    ("veil evaluate forms", "--pool", "--decoys", ["scene/", "--pool", "a.npz"]),
    ("veil evaluate forms", "--workers", "--threads", ["scene/", "--workers", "3"]),
    ("veil evaluate upright", "--near", "--nearest", ["scene/", "--near", "3"]),
    ("veil evaluate localization", "--strangers", "--false", ["scene/", "--strangers", "3"]),
    ("veil evaluate retrieval", "--workers", "--threads", ["scene/", "--workers", "3"]),
    ("veil evaluate defenses", "--workers", "--threads", ["sequences/", "--victims", "photos/", "--workers", "3"]),
    ("veil index", "--workers", "--threads", ["map/", "--workers", "3"]),
    ("veil audit", "--seconds", "--max-seconds", ["upload/", "--seconds", "3"]),
    ("veil evaluate forms", "--seconds", "--max-seconds", ["scene/", "--seconds", "3"]),
    ("veil budget plan", "--words", "--word-count", ["--epsilon-image", "9", "--words", "64", "128"]),
    ("veil codebook build", "--words", "--word-count", ["photos/", "-o", "a.npz", "--words", "64"]),
    ("veil codebook build", "--decoys", "--decoy-pool", ["photos/", "-o", "a.npz", "--decoys"]),
    ("veil tiles cut", "--words", "--word-count", ["map/", "-o", "tiles", "--words", "64"]),
    ("veil tiles cut", "--axes", "--pca-axes", ["map/", "-o", "tiles", "--axes", "64"]),
    ("veil tiles plan", "--axes", "--pca-axes", ["map/", "--axes", "64"]),
    ("veil evaluate tiles", "--words", "--word-count", ["scene/", "--words", "64"]),
    ("veil evaluate tiles", "--axes", "--pca-axes", ["scene/", "--axes", "64"]),
    ("veil evaluate localization", "--words", "--word-count", ["scene/", "--words", "64"]),
    ("veil evaluate localization", "--iterations", "--word-samples", ["scene/", "--iterations", "64"]),
    ("veil evaluate upright", "--words", "--word-count", ["scene/", "--words", "64"]),
    ("veil evaluate upright", "--points", "--operating-points", ["scene/", "--points", "1000,5,2"]),
    ("veil evaluate attacks", "--words", "--word-count", ["photos/", "--attacker", "others/", "--words", "64"]),
    ("veil evaluate attacks", "--features", "--attacked-features", ["photos/", "--attacker", "others/", "--features", "64"]),
    ("veil evaluate forms", "--features", "--attacked-features", ["scene/", "--features", "64"]),
    ("veil evaluate learned", "--features", "--attacked-features", ["photos/", "--features", "64"]),
    ("veil evaluate learned", "--default", "--as-privatize", ["photos/", "--default"]),
    ("veil evaluate learned", "--model", "--attack-model", ["photos/", "--model", "a.npz"]),
    ("veil audit", "--features", "--attacked-features", ["upload/", "--features", "64"]),
    ("veil audit", "--model", "--attack-model", ["upload/", "--model", "a.npz"]),
    ("veil audit", "--place", "--place-photographs", ["upload/", "--place", "photos/"]),
    ("veil localize", "--iterations", "--word-samples", ["map/", "a.veil", "--iterations", "64"]),
    ("veil localize", "--pairs", "--pair-samples", ["map/", "a.veil", "--pairs", "64"]),
    ("veil plan map", "--images", "--image-count", ["--images", "64"]),
    ("veil index", "--nearest", "--nearest-words", ["map/", "--nearest", "3"]),
    ("veil view", "--device", "--images", ["map/", "--device", "photos/"]),
    ("veil serve", "--map", "--add-map", ["store/", "--map", "lobby=map/"]),
    ("veil faces describe", "--only", "--single-face", ["photos/", "-o", "a.npz", "--only"]),
    ("veil faces identify", "--name", "--face-name", ["door.store", "a.npz", "--decoys", "o.npz", "--name", "a.jpg"]),
    ("veil faces calibrate", "--pairs", "--face-pairs", ["door.store", "a.npz", "--decoys", "o.npz", "--pairs", "p.csv"]),
    ("veil evaluate protection", "--pairs", "--face-pairs", ["a.npz", "--decoys", "o.npz", "--pairs", "p.csv"]),
    ("veil evaluate inversion", "--pictures", "--reconstructions", ["photos/", "--pictures", "a.png"]),
    ("veil evaluate reconstruction", "--seeds", "--draws", ["scene/", "--seeds", "3"]),
]


# Those of packages that are installed.
RENAMED = [case for case in RENAMED if is_here(case[0].removeprefix("veil "))]


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
    return faults + [f"{sorted(found)}: {text}" for text, found in names.items() if len(text.split()) > 2 and len(found) > 1]


def test_one_meaning_has_one_name() -> None:
    assert strange(COMMANDS.values()) == []


def test_two_names_for_one_meaning_are_seen() -> None:
    """Broken twins: a name that the vocabulary does not allow, and two names with one help."""
    parser = argparse.ArgumentParser(prog="veil x")
    parser.add_argument("--pool", help="decoy pool; default: the bundled one")
    parser.add_argument("--a", help="how many there are (default 3)")
    parser.add_argument("--b", help="how many there are")
    assert strange([parser]) == ["veil x --pool: decoy pool; default: the bundled one", "['--a', '--b']: how many there are"]


@pytest.mark.parametrize(("command", "old", "new", "words"), RENAMED, ids=[f"{case[0]} {case[1]}" for case in RENAMED])
def test_an_old_name_works_and_is_not_shown(command: str, old: str, new: str, words: list[str]) -> None:
    parser = COMMANDS[command]
    renamed = [new if word == old else word for word in words]
    assert vars(parser.parse_args(words)) == vars(parser.parse_args(renamed))
    shown = parser.format_help().partition("\nexamples:")[0]
    assert new in shown and not re.search(rf"{old}(?![\w-])", shown)

"""Lists of pairs of faces to verify, in the formats of LFW, CFP and AgeDB's preparations, or as a CSV."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from veil.errors import FileFormatError
from veil.files.tables import read_table, read_text
from veil_faces.collection import FacePairs, Faces

# A row of a list: two names of pictures, whether they show one person, and the fold.
Row = tuple[str, str, bool, int]
_CFP_LISTS = {"F": "Pair_list_F.txt", "P": "Pair_list_P.txt"}


def read_pairs(path: Path, faces: Faces) -> FacePairs:
    """Pairs of rows of `faces` that a list names, with whether they show one person and their fold.

    `path` is one of

    - a CSV with columns image_a, image_b, same (0 or 1) and perhaps fold;
    - LFW's pairs.txt;
    - lines `same a b` or `a b same`, as lists of AgeDB-30 and others are passed on;
    - one split of CFP: the folder Protocol/Split/FF or Protocol/Split/FP, its lists two folders up.

    A picture is known by its name, or by the end of its path where only one face has that. Pairs with a face that is not among
    `faces` are counted in `missing`. Raises FileFormatError if the file is none of these, or no pair is left.
    """
    if path.is_dir():
        rows = _cfp(path)
    else:
        text = read_text(path)
        if "image_a" in text.split("\n", 1)[0]:
            rows = _table(path)
        else:
            rows = _annotated(path, text) if _is_annotated(text) else _lfw(path, text)
    places = _places(faces)
    placed = [(_place(places, a), _place(places, b), same, fold) for a, b, same, fold in rows]
    kept = [(a, b, same, fold) for a, b, same, fold in placed if a is not None and b is not None]
    if not kept:
        raise FileFormatError(f"{path}: none of {len(rows)} pairs has both its faces; names must be those of the faces")
    left, right, same, fold = (np.array(column) for column in zip(*kept, strict=True))
    return FacePairs(
        left=left.astype(np.int64),
        right=right.astype(np.int64),
        same=same.astype(bool),
        fold=fold.astype(np.int64),
        missing=len(rows) - len(kept),
    )


def _ends(name: str) -> list[str]:
    """All ends of a path, the longest first: a/b/c.jpg, b/c.jpg, c.jpg."""
    parts = [part for part in PurePosixPath(name.strip().replace("\\", "/")).parts if part not in ("..", "/")]
    return ["/".join(parts[k:]) for k in range(len(parts))]


def _places(faces: Faces) -> dict[str, int | None]:
    """The row of every name and of every end of one; None where several faces share it."""
    places: dict[str, int | None] = {}
    for row, name in enumerate(faces.names):
        for end in _ends(name):
            places[end] = None if end in places else row
    return places | {name: row for row, name in enumerate(faces.names)}


def _place(places: dict[str, int | None], name: str) -> int | None:
    """The row of the face that `name`, or the longest known end of it, stands for; None if there is none."""
    return next((places[end] for end in [name.strip(), *_ends(name)] if end in places), None)


def _table(path: Path) -> list[Row]:
    """Pairs of a CSV with columns image_a, image_b, same and perhaps fold."""
    pairs = []
    for number, row in read_table(path, ("image_a", "image_b", "same")):
        try:
            if row["same"] not in ("0", "1"):
                raise ValueError(f"same must be 0 or 1, got {row['same']!r}")
            pairs.append((row["image_a"], row["image_b"], row["same"] == "1", int(row.get("fold") or 0)))
        except ValueError as error:
            raise FileFormatError(f"{path}, line {number}: {error}; columns are image_a, image_b, same, fold") from None
    return pairs


def _is_annotated(text: str) -> bool:
    """Whether the first line is three words, the first or the last of them 0 or 1, and others are no numbers."""
    words = text.split("\n", 1)[0].split()
    if len(words) != 3:
        return False
    ends = [words[0] in ("0", "1"), words[2] in ("0", "1")]
    return ends[0] != ends[1] and not words[1].isdigit()


def _annotated(path: Path, text: str) -> list[Row]:
    """Pairs of lines `same a b` or `a b same`."""
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) == 3 and words[0] in ("0", "1"):
            pairs.append((words[1], words[2], words[0] == "1", 0))
        elif len(words) == 3 and words[2] in ("0", "1"):
            pairs.append((words[0], words[1], words[2] == "1", 0))
        else:
            raise FileFormatError(f"{path}, line {number}: a pair is `same a b` or `a b same`, same being 0 or 1")
    return pairs


def _lfw(path: Path, text: str) -> list[Row]:
    """Pairs of LFW's pairs.txt: lines `name k l` or `name k other l`, in folds of equal size, after a head `folds pairs`."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    head = [int(word) for word in lines[0] if word.isdigit()] if lines else []
    body = lines[1:] if head else lines
    per_fold = 2 * head[1] if len(head) == 2 else max(1, len(body))

    def picture(name: str, number: str) -> str:
        return f"{name}/{name}_{int(number):04d}.jpg"

    pairs = []
    for number, words in enumerate(body):
        try:
            if len(words) not in (3, 4):
                raise ValueError("a pair has three or four words")
            first = picture(words[0], words[1])
            second = picture(words[0], words[2]) if len(words) == 3 else picture(words[2], words[3])
            pairs.append((first, second, len(words) == 3, number // per_fold))
        except ValueError as error:
            raise FileFormatError(f"{path} is no list of pairs: {error} (line {number + 1})") from None
    return pairs


def _cfp(folder: Path) -> list[Row]:
    """Pairs of a split of CFP: folds 01, 02, ..., each with same.txt and diff.txt of lines `i,j`, which number pictures."""
    kinds = folder.name.upper()
    if kinds not in ("FF", "FP"):
        raise FileFormatError(f"{folder} is no split of CFP; give Protocol/Split/FF or Protocol/Split/FP")
    lists = [_cfp_list(folder.parent.parent / _CFP_LISTS[kind]) for kind in kinds]
    folds = sorted(part for part in folder.iterdir() if part.is_dir())
    pairs: list[Row] = []
    for fold, part in enumerate(folds):
        for name, same in (("same.txt", True), ("diff.txt", False)):
            for number, line in enumerate(read_text(part / name).splitlines(), start=1):
                try:
                    if line.strip():
                        a, b = (names[int(word)] for names, word in zip(lists, line.split(","), strict=True))
                        pairs.append((a, b, same, fold))
                except (KeyError, ValueError) as error:
                    raise FileFormatError(f"{part / name}, line {number}: {line!r} is no pair of pictures ({error})") from None
    return pairs


def _cfp_list(path: Path) -> dict[int, str]:
    """Paths of pictures by their number, from a list of CFP."""
    paths = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        words = line.split(maxsplit=1)
        if len(words) != 2 or not words[0].isdigit():
            raise FileFormatError(f"{path}, line {number}: a line is the number of a picture and its path, got {line!r}")
        paths[int(words[0])] = words[1].strip()
    return paths

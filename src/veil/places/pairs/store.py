"""Pairs of images on disk: kept matches, in blocks that are written once and named by what they were computed from, and lists.

A store is a folder of blocks. Each block is one file that appears whole or not at all, so that several processes may write to
one store, and a run that was killed goes on with the blocks that it lacks (docs/theory/scale.md#blocks). Images are known by
the digests of their features: a renamed image costs nothing, a changed one is another image.

A list of pairs is text, two names a line, as hloc and COLMAP read and write them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.files.atomic import clear_leftovers, read_bytes, write_bytes
from veil.files.tables import read_text
from veil.matching.neighbors import Matches

# First bytes of a block, with the version of its format.
MAGIC, VERSION = b"VEILMATCHES", 1
SUFFIX = ".matches"
# The pairs that an unfinished run divided into blocks.
PLAN = "plan.json"
# Digests of images by the names that they were given under.
NAMES = "images.json"
# Seconds after which a part of a block that a killed run left is removed.
_STALE_S = 600.0
# Bytes of one match: two rows, a distance and a ratio.
_ROW = np.dtype([("left", "<u4"), ("right", "<u4"), ("distance", "<f8"), ("ratio", "<f8")])

# Bytes of a list of pairs, at most: ten thousand images with a hundred partners each have a million lines.
MOST_BYTES = 1 << 30

DigestPair = tuple[str, str]


def block_name(kind: str, pairs: Sequence[DigestPair]) -> str:
    """Name of the file of a block: SHA-256 of its format, of how it was matched (`kind`), and of its pairs of digests."""
    text = json.dumps([VERSION, kind, list(pairs)], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest() + SUFFIX


def encode_block(kind: str, block: Mapping[DigestPair, Matches]) -> bytes:
    """Bytes of a block: the magic, a header with its pairs and their numbers of matches, the matches, and a checksum."""
    header = {"kind": kind, "pairs": [[a, b, len(matches)] for (a, b), matches in block.items()]}
    head = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join(_rows(matches).tobytes() for matches in block.values())
    start = MAGIC + VERSION.to_bytes(2, "little") + len(head).to_bytes(8, "little")
    data = start + head + body
    return data + hashlib.sha256(data).digest()


def _rows(matches: Matches) -> np.ndarray:
    rows = np.empty(len(matches), dtype=_ROW)
    rows["left"], rows["right"] = matches.indices.T if len(matches) else (0, 0)
    rows["distance"], rows["ratio"] = matches.distances, matches.ratios
    return rows


def decode_block(data: bytes) -> tuple[str, dict[DigestPair, Matches]]:
    """The kind and the matches of a block. Raises FileFormatError if the bytes are of another version, or damaged."""
    first = len(MAGIC) + 2
    if data[: len(MAGIC)] != MAGIC:
        raise FileFormatError("it is not a block of matches")
    version = int.from_bytes(data[len(MAGIC) : first], "little")
    if version != VERSION:
        raise FileFormatError(f"it is a block of version {version}, and this veil reads version {VERSION}")
    if len(data) < first + 40 or hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise FileFormatError("the block is damaged")
    size = int.from_bytes(data[first : first + 8], "little")
    header = json.loads(data[first + 8 : first + 8 + size])
    rows = np.frombuffer(data[first + 8 + size : -32], dtype=_ROW)
    ends = np.cumsum([count for _, _, count in header["pairs"]], dtype=np.int64)
    block = {}
    for (a, b, count), end in zip(header["pairs"], ends, strict=True):
        part = rows[end - count : end]
        indices = np.stack([part["left"], part["right"]], axis=1).astype(np.int64)
        block[a, b] = Matches(indices=indices, distances=part["distance"].copy(), ratios=part["ratio"].copy())
    return header["kind"], block


class MatchStore:
    """A folder of blocks of matches of one kind.

    `kind` says how pairs are matched, as far as it changes matches; blocks of another kind are not used, and forgotten alike.
    Raises FileFormatError for a block of another version, which another veil wrote: nothing is overwritten. Damaged blocks
    count as missing. Without `read` the blocks that are there are not looked at: for whoever only writes.
    """

    def __init__(self, folder: Path, kind: str, *, read: bool = True) -> None:
        self.folder, self.kind = folder, kind
        self._block_of: dict[frozenset[str], Path] = {}
        self._others: dict[Path, list[frozenset[str]]] = {}  # blocks of other kinds, with their pairs
        for path in sorted(folder.glob(f"*{SUFFIX}")) if read else ():
            self._enter(path)

    def __contains__(self, pair: DigestPair) -> bool:
        return frozenset(pair) in self._block_of

    def __len__(self) -> int:
        return len(self._block_of)

    def path(self, pairs: Sequence[DigestPair]) -> Path:
        """Path of the block of these pairs, whether it is there or not."""
        return self.folder / block_name(self.kind, pairs)

    def write(self, block: Mapping[DigestPair, Matches]) -> Path:
        """Write the block of these pairs and matches, at once or not at all. Raises InputError if it cannot be written."""
        path = self.path(list(block))
        write_bytes(path, encode_block(self.kind, block))
        self._block_of |= {frozenset(pair): path for pair in block}
        return path

    def adopt(self, path: Path) -> None:
        """Enter a block that another process has written. Raises FileFormatError if it is not whole."""
        if not self._enter(path):
            raise FileFormatError(f"{path} is not a whole block of this run")

    def matches(self, pairs: Iterable[DigestPair]) -> dict[DigestPair, Matches]:
        """Matches of the pairs that the store holds, read block by block; each pair stands as it is asked for."""
        wanted: dict[Path, list[DigestPair]] = {}
        for pair in pairs:
            if (path := self._block_of.get(frozenset(pair))) is not None:
                wanted.setdefault(path, []).append(pair)
        held: dict[DigestPair, Matches] = {}
        for path, listed in wanted.items():
            stored = decode_block(read_bytes(path))[1]
            for a, b in listed:
                held[a, b] = stored[a, b] if (a, b) in stored else turned(stored[b, a])
        return held

    def forget(self, digests: Collection[str]) -> int:
        """Remove all matches and names of these images; blocks that hold others beside are written again without them.

        Returns the number of pairs that went, of blocks of every kind.
        """
        gone = {pair: path for pair, path in self._block_of.items() if pair & set(digests)}
        for path in sorted(set(gone.values())):
            self._block_of |= dict.fromkeys(*self._rewritten(path, digests))
        for pair in gone:
            del self._block_of[pair]
        elsewhere = 0
        for path, pairs in list(self._others.items()):
            if met := sum(bool(pair & set(digests)) for pair in pairs):
                elsewhere += met
                del self._others[path]
                kept, again = self._rewritten(path, digests)
                if kept:
                    self._others[again] = kept
        names = {name: [digest for digest in listed if digest not in digests] for name, listed in self.names().items()}
        self._save_names({name: listed for name, listed in names.items() if listed})
        clear_leftovers(self.folder, older_than_s=0.0)
        self.finish()  # a plan would name them
        return len(gone) + elsewhere

    def _rewritten(self, path: Path, digests: Collection[str]) -> tuple[list[frozenset[str]], Path]:
        """Write a block again without the pairs of these images, if any are left; returns those that are, and where."""
        kind, block = decode_block(read_bytes(path))
        kept = {pair: matches for pair, matches in block.items() if not {*pair} & set(digests)}
        again = self.folder / block_name(kind, list(kept))
        if kept:
            write_bytes(again, encode_block(kind, kept))
        path.unlink(missing_ok=True)
        return [frozenset(pair) for pair in kept], again

    def names(self) -> dict[str, list[str]]:
        """Digests of the images by the names that they were given under."""
        try:
            stored = json.loads((self.folder / NAMES).read_text())
            return {str(name): [str(digest) for digest in listed] for name, listed in stored.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def note_names(self, digests: Mapping[str, str]) -> None:
        """Note the digests of images by their names, so that they can be forgotten by name."""
        known = self.names()
        new = {name: sorted({*known.get(name, []), digest}) for name, digest in digests.items()}
        self._save_names(known | new)

    def _save_names(self, names: Mapping[str, Sequence[str]]) -> None:
        if names:
            write_bytes(self.folder / NAMES, json.dumps(dict(sorted(names.items())), separators=(",", ":")).encode())
        else:
            (self.folder / NAMES).unlink(missing_ok=True)

    @property
    def images(self) -> frozenset[str]:
        """Digests of all images that have matches in the store, of whatever kind."""
        return frozenset().union(*self._block_of, *(pair for pairs in self._others.values() for pair in pairs))

    def plan(self) -> list[list[DigestPair]]:
        """Blocks that an unfinished run has yet to write, or wrote; none if the last run finished."""
        try:
            stored = json.loads((self.folder / PLAN).read_text())
            return [[(a, b) for a, b in block] for block in stored["blocks"]] if stored["kind"] == self.kind else []
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def save_plan(self, blocks: Sequence[Sequence[DigestPair]]) -> None:
        """Save the blocks that this run will write, so that it divides its pairs alike when it is started again."""
        write_bytes(self.folder / PLAN, json.dumps({"kind": self.kind, "blocks": blocks}, separators=(",", ":")).encode())

    def finish(self) -> None:
        """Remove the plan: the run is finished."""
        (self.folder / PLAN).unlink(missing_ok=True)
        clear_leftovers(self.folder, older_than_s=_STALE_S)

    def _enter(self, path: Path) -> bool:
        """Enter the pairs of a block; returns whether it is whole and of this kind."""
        try:
            header = _header(path)
        except FileFormatError as error:
            if "version" in str(error):
                raise FileFormatError(f"{path}: {error}; give another folder for matches") from None
            return False
        if header["kind"] != self.kind:
            self._others[path] = [frozenset((a, b)) for a, b, _ in header["pairs"]]
            return False
        self._block_of |= {frozenset((a, b)): path for a, b, _ in header["pairs"]}
        return True


def turned(matches: Matches) -> Matches:
    """The same matches with left and right exchanged, in the order of the rows that now stand on the left."""
    order = np.argsort(matches.indices[:, 1], kind="stable")
    turned = matches.take(order)
    return Matches(indices=turned.indices[:, ::-1].copy(), distances=turned.distances, ratios=turned.ratios)


def _header(path: Path) -> dict[str, Any]:
    """The header of a block whose checksum holds. Raises FileFormatError else."""
    data = read_bytes(path)
    decode_block(data)
    first = len(MAGIC) + 2
    return json.loads(data[first + 8 : first + 8 + int.from_bytes(data[first : first + 8], "little")])


def require_folder(folder: Path) -> None:
    """Raise InputError if `folder` holds something that is no store of matches."""
    if folder.exists() and (
        not folder.is_dir() or any(item.suffix not in (SUFFIX, ".json", ".part") for item in folder.iterdir())
    ):
        raise InputError(f"{folder} holds other files; choose an empty folder for matches, or one that veil made")


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs of names of a list: two names a line, separated by blanks; empty lines and comments (#) are skipped.

    Raises FileFormatError for a file that is missing or too large, is not text, or has a line of another form.
    """
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise FileFormatError(f"{path} has more than {MOST_BYTES} bytes; it is no list of pairs")
    pairs = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise FileFormatError(
                f"{path}, line {number}: a pair is two names of images with a blank between, got {line[:80]!r}"
            )
        pairs.append((words[0], words[1]))
    return pairs

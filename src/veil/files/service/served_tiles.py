"""Tiles as a server keeps them: by name and version, each a folder that never changes (docs/reference/tiles.md#served).

`NAME/VERSION/` holds the three files of `veil tiles cut`, and for the exit by one server `one_server.json`, the records as a
matrix (`matrix.bin`) and the hint (`hint.bin`); `hintless_tiles` has the files of the hintless exit. `NAME/versions.json` lists
versions, the one that devices should use first.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt32

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.files.atomic import clear_leftovers, leftovers, new_folder, read_bytes, remove, write_bytes, writing
from veil.files.service import hintless_tiles
from veil.files.service.hintless_tiles import write_hintless
from veil.files.tiles import BINARY, JSON, RECORDS, read_manifest, read_records
from veil.pir import one_server
from veil.pir.layout import DIMENSION, Layout, best_layout
from veil.pir.public_matrix import SEED_BYTES, new_seed
from veil.tiles.manifest import Manifest

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VERSION = re.compile(r"[0-9a-f]{64}")
FACTS, MATRIX, HINT, VERSIONS = "one_server.json", "matrix.bin", "hint.bin", "versions.json"
# Devices that read the manifest before a new version came still get tiles of theirs.
KEPT_VERSIONS = 2
# Facts that name no dimension are older than this key.
EARLIER_DIMENSION = 1024


@dataclass(frozen=True, kw_only=True)
class OneServerFacts:
    """Facts of the exit by one server that devices need.

    - `layout`: of the records in the server's matrix.
    - `seed`, 32 bytes: of the public matrix.
    - `hint_sha256`: of the hint's bytes.
    """

    layout: Layout
    seed: bytes
    hint_sha256: str

    def as_json(self) -> dict[str, Any]:
        """The stable record of docs/reference/tiles.md#served."""
        return {
            "dimension": DIMENSION,
            "parts": self.layout.parts,
            "seed": self.seed.hex(),
            "hint_bytes": self.layout.hint_bytes,
            "hint_sha256": self.hint_sha256,
            "query_bytes": self.layout.query_bytes,
            "answer_bytes": self.layout.answer_bytes,
        }


def one_server_facts(value: Any, *, records: int, size: int) -> OneServerFacts:
    """The facts that `OneServerFacts.as_json` wrote, which may come from anyone, for a number of records of one size.

    Raises FileFormatError if they are damaged, of other records, or of another dimension than this version of veil has.
    """
    try:
        dimension = value.get("dimension", EARLIER_DIMENSION)
        if type(dimension) is not int or dimension != DIMENSION:
            raise FileFormatError(
                f"the exit by one server has dimension {dimension!r}, and this version of veil takes {DIMENSION} alone; "
                "where the dimension is lower, whoever serves the tiles adds them again"
            )
        parts, seed, digest = value["parts"], bytes.fromhex(value["seed"]), value["hint_sha256"]
        if type(parts) is not int or len(seed) != SEED_BYTES or not VERSION.fullmatch(digest):
            raise ValueError("a value is none of its kind")
        facts = OneServerFacts(layout=Layout(records=records, size=size, parts=parts), seed=seed, hint_sha256=digest)
        if facts.as_json() != {key: value[key] for key in facts.as_json()}:
            raise ValueError("its sizes are of other records")
    except FileFormatError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, VeilError) as error:
        raise FileFormatError(f"what is said of the exit by one server is damaged ({error}); ask whoever serves it") from None
    return facts


def add_served(
    root: Path, name: str, source: Path, *, localizations: int | None, hintless: bool = False, threads: int = 1
) -> str:
    """Copy tiles into a server's folder as the version that devices should use from now on, and return the version.

    - `root`: the server's folder of tiles.
    - `name`: letters, digits, dots, hyphens and underscores.
    - `source`: a folder that `veil tiles cut` wrote.
    - `localizations`: number that one device can make by the exit of one server; None: it is not offered.
    - `hintless`: whether the hintless exit is offered, too; it takes 42 MB for each 2,048 bytes of a record, at most 0.7 GB.
    - `threads`: that compute the hint.

    The version before stays for devices that still use it; older ones go. Raises InputError for another name or if nothing
    can be written, FileFormatError for damaged tiles, RangeError where noise does not allow this number of records.
    """
    require_name(name)
    manifest = read_manifest(source)
    read_records(source, manifest)
    target = root / name / manifest.version
    with _locked(root / name):
        if not target.is_dir():
            with writing(target), new_folder(target) as temporary:
                for file in (JSON, BINARY, RECORDS):
                    shutil.copyfile(source / file, temporary / file)
                if localizations is not None:
                    _write_one_server(temporary, localizations * manifest.asked, threads)
                if hintless:
                    write_hintless(temporary, read_records(temporary, manifest), threads)
        else:
            _add_exits(target, manifest, localizations, hintless, threads)
        known = [manifest.version, *(item for item in versions_of(root, name) if item != manifest.version)]
        write_bytes(root / name / VERSIONS, json.dumps(known[:KEPT_VERSIONS]).encode())
        for folder in (root / name).iterdir():
            if VERSION.fullmatch(folder.name) and folder.name not in known[:KEPT_VERSIONS]:
                remove(folder)
    return manifest.version


def _add_exits(folder: Path, manifest: Manifest, localizations: int | None, hintless: bool, threads: int) -> None:
    """Write the wanted exits that a version does not offer yet, or offers as another version of veil reads them."""
    with writing(folder):
        if localizations is not None and not _offers_one_server(folder, manifest):
            for file in (FACTS, MATRIX, HINT):  # whoever reads earlier ones now keeps them
                (folder / file).unlink(missing_ok=True)
            _write_one_server(folder, localizations * manifest.asked, threads)
        if hintless and not _offers_hintless(folder, manifest):
            for file in hintless_tiles.FILES:
                (folder / file).unlink(missing_ok=True)
            write_hintless(folder, read_records(folder, manifest), threads)


def clear_served(root: Path) -> None:
    """Delete what killed processes left of tiles that they were adding, unless somebody adds some of the name now."""
    clear_leftovers(root)
    for folder in root.glob("*"):
        versions = [path for path in folder.glob("*") if VERSION.fullmatch(path.name)]
        if any(leftovers(path) for path in (folder, *versions)) or any(_halves(path) for path in versions):
            with suppress(BlockingIOError), _locked(folder, waits=False):
                for path in (folder, *versions):
                    clear_leftovers(path)
                for path in [half for version in versions for half in _halves(version)]:
                    remove(path)


def _halves(folder: Path) -> list[Path]:
    """Files for the exits by one server whose facts were not written: a kill came before."""
    exits = ((FACTS, MATRIX, HINT), hintless_tiles.FILES)
    halves = [name for facts, *files in exits if not (folder / facts).is_file() for name in files]
    return [folder / name for name in halves if (folder / name).is_file()]


def remove_served(root: Path, name: str) -> None:
    """Serve tiles no more. Raises InputError if there are none of the name."""
    if not versions_of(root, name):
        raise InputError(f"no tiles are called {name!r} here", remedy=Remedy("see", "served tiles"))
    remove(root / name)


def served_names(root: Path) -> list[str]:
    """The names of all tiles that a server has, sorted."""
    if not root.is_dir():
        return []
    return sorted(item.name for item in root.iterdir() if NAME.fullmatch(item.name) and (item / VERSIONS).is_file())


def versions_of(root: Path, name: str) -> list[str]:
    """The versions of some tiles, the one that devices should use first; none if there are no such tiles."""
    path = root / name / VERSIONS
    if not NAME.fullmatch(name) or not path.is_file():
        return []
    try:
        versions = json.loads(read_bytes(path))
        return [item for item in versions if VERSION.fullmatch(item)]
    except (TypeError, ValueError):
        raise FileFormatError(f"{path} is damaged; remove {name!r} and add its tiles again") from None


def require_name(name: str) -> None:
    """Raise InputError unless tiles can be called so."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of tiles; use letters, digits, dots, hyphens and underscores, 64 at most")


def read_one_server(folder: Path, *, records: int, size: int) -> OneServerFacts | None:
    """Facts of the exit by one server in a folder of served tiles; None if it is not offered."""
    path = folder / FACTS
    return one_server_facts(json.loads(read_bytes(path)), records=records, size=size) if path.is_file() else None


def read_matrix(folder: Path, layout: Layout) -> one_server.Matrix:
    """The records as a matrix, mapped into memory. Raises FileFormatError for another number of bytes."""
    path = folder / MATRIX
    try:
        return one_server.Matrix(layout=layout, words=_mapped(path))
    except (OSError, ValueError, InputError) as error:
        raise FileFormatError(f"cannot use {path} ({error}); add the tiles again") from None


def _offers_one_server(folder: Path, manifest: Manifest) -> bool:
    """Whether a folder holds the exit by one server as this version of veil reads it."""
    try:
        facts = read_one_server(folder, records=len(manifest), size=manifest.record_bytes)
        return facts is not None and read_matrix(folder, facts.layout) is not None
    except FileFormatError:
        return False


def _offers_hintless(folder: Path, manifest: Manifest) -> bool:
    """Whether a folder holds the hintless exit as this version of veil reads it."""
    try:
        facts = hintless_tiles.read_hintless(folder, records=len(manifest), size=manifest.record_bytes)
        return facts is not None and hintless_tiles.read_prepared(folder, facts) is not None
    except FileFormatError:
        return False


def _mapped(path: Path) -> UInt32[np.ndarray, "words"]:
    return np.memmap(path, dtype="<u4", mode="r")


def _write_one_server(folder: Path, fetches: int, threads: int) -> None:
    """Write what the exit by one server needs, its facts last: without them the rest is as if it were not there."""
    manifest = read_manifest(folder)
    records = read_records(folder, manifest)
    layout = best_layout(len(records), manifest.record_bytes, fetches=fetches)
    matrix, seed = one_server.arranged(records, layout), new_seed()
    matrix.words.astype("<u4", copy=False).tofile(folder / MATRIX)
    hint = one_server.hint(matrix, seed, threads).astype("<u4", copy=False)
    hint.tofile(folder / HINT)
    facts = OneServerFacts(layout=layout, seed=seed, hint_sha256=hashlib.sha256(hint.data).hexdigest())
    write_bytes(folder / FACTS, json.dumps(facts.as_json(), indent=2).encode())


@contextmanager
def _locked(folder: Path, *, waits: bool = True) -> Iterator[None]:
    """A folder in which no other process adds tiles meanwhile.

    Raises BlockingIOError if one does and this one does not wait.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        yield

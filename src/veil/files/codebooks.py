"""Codebooks as .npz files that carry their own hash, those that ship with the package, and descriptors to make one from.

The descriptors lie in a file that several processes read, each some of its rows: shards of k-means.
"""

from __future__ import annotations

import json
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import Pca
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.eight_bits import EightBitWords
from veil.codebooks.kmeans import Descriptors
from veil.codebooks.shards import SHARD_ROWS
from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import replacing, writing
from veil.files.containers import require_filled

FORMAT, FORMAT_EIGHT_BITS = 1, 2
# Descriptors that a codebook and a pool of decoys are bundled for, and what their files are called.
BUNDLED = {"sift": "sift-l2", "aliked-n16rot": "aliked-n16rot-l2"}
# What a file says that it holds.
KINDS: dict[str, type[Codebook]] = {known.kind: known for known in (Dictionary, DecoyPool)}
# Errors that zipfile, json, NumPy and Codebook raise when the bytes are not what they should be.
_DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, MemoryError),
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, tokenize.TokenError),
)


def write_codebook(path: Path | str, book: Codebook, *, dither_seed: int | None = None) -> Codebook:
    """Write the codebook `book` to the file `path` (.npz) with its hash, at once or not at all; return it as it was written.

    With `dither_seed` the file holds its words in 8 bits, a quarter of the bytes: they are rounded, with a dither of this seed.
    A pool of real descriptors (`book.kind` "descriptors") is made readable by its owner only: who has it can tell decoys from
    descriptors. Raises InputError if the file cannot be written, or words that have 8 bits already are to be
    rounded to them.
    """
    path, eight_bits = Path(path), None
    if dither_seed is not None:
        if book.stored.dtype == np.uint8:
            raise InputError(f"words of {book.descriptor} have 8 bits already; give no seed of a dither")
        eight_bits = EightBitWords.of(book.stored.astype(np.float32), dither_seed)
        book = replace(book, stored=eight_bits.words())
    header = {
        "format": FORMAT if eight_bits is None else FORMAT_EIGHT_BITS,
        "kind": book.kind,
        "descriptor": book.descriptor,
        "normalization": book.normalization,
        "slices": book.slices,
        "dither_steps": book.dither_steps,
        "digest": book.digest,
        "source": book.provenance.source,
        "license": book.provenance.license,
        "image_count": book.provenance.image_count,
        "descriptor_count": book.provenance.descriptor_count,
    }
    digests = np.frombuffer(bytes.fromhex("".join(book.provenance.image_digests)), dtype=np.uint8).reshape(-1, 8)
    arrays: dict[str, Any] = {"words": book.stored if eight_bits is None else eight_bits.levels, "image_digests": digests}
    if eight_bits is not None:
        header["dither_seed"] = eight_bits.seed
    if book.pca is not None:
        arrays |= {"pca_mean": book.pca.mean, "pca_axes": book.pca.axes}
    # A pool of decoys holds descriptors of photographs, and who has it can tell decoys from descriptors.
    with replacing(path, private=book.kind == "descriptors") as temporary, temporary.open("wb") as stream:
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        # Without `allow_pickle`, which NumPy 1 would store as one more array.
        # Words hardly shrink, and inflating is most of a large book's reading.
        np.savez(stream, **arrays)
    return book


def read_codebook(path: Path | str) -> Codebook:
    """Read the codebook in the file `path` (.npz) and verify its hash.

    Raises FileFormatError if the file is missing, damaged, foreign, or does not match its hash.
    """
    path = Path(path)
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            book = _assemble(header, archive)
    except FileNotFoundError:
        raise FileFormatError(f"there is no codebook {path}", remedy=Remedy("make", "codebook")) from None
    except _DAMAGE as error:
        raise FileFormatError(f"{path} is not a veil codebook or is damaged ({error})") from None
    if book.digest != header.get("digest"):
        raise FileFormatError(f"{path}: the stored hash does not match the contents; get the file again")
    return book


def _assemble(header: dict, archive) -> Codebook:  # type: ignore[no-untyped-def]
    if header.get("format") not in (FORMAT, FORMAT_EIGHT_BITS):
        raise ValueError(f"format {header.get('format')!r}, this veil reads {FORMAT} and {FORMAT_EIGHT_BITS}")
    words, pca = archive["words"], None  # every access reads the file again
    if header["format"] == FORMAT_EIGHT_BITS:
        if words.dtype != np.int8 or words.ndim != 2:
            raise ValueError(f"words in 8 bits of {words.dtype} {words.shape}")
        words = EightBitWords(levels=words, seed=int(header["dither_seed"])).words()
    if "pca_axes" in archive:
        pca = _pca(archive["pca_mean"], archive["pca_axes"], words.shape[-1])
    return KINDS[header["kind"]](
        descriptor=header["descriptor"],
        normalization=header["normalization"],
        stored=words,
        slices=int(header["slices"]),
        pca=pca,
        dither_steps=float(header["dither_steps"]),
        provenance=Provenance(
            source=header["source"],
            license=header["license"],
            image_count=int(header["image_count"]),
            descriptor_count=int(header["descriptor_count"]),
            image_digests=tuple(row.tobytes().hex() for row in archive["image_digests"]),
        ),
    )


def _pca(mean: np.ndarray, axes: np.ndarray, dim: int) -> Pca:
    if mean.shape != (dim,) or axes.ndim != 2 or axes.shape[1] != dim or not 1 <= len(axes) < dim:
        raise ValueError(f"a PCA of {mean.shape} and {axes.shape} does not fit words of {dim} dimensions")
    if not (np.isfinite(mean).all() and np.isfinite(axes).all()):
        raise ValueError("the PCA contains NaN or infinity")
    return Pca(mean=mean, axes=axes)


def bundled_codebook(descriptor: str = "sift") -> Codebook:
    """The bundled codebook of a `descriptor`: public centroids with the PCA of the hardened profile.

    Of a descriptor that none is bundled for, that of SIFT (L2): whoever uses it is told that it does not fit.
    """
    return _bundled(f"codebook-{_named(descriptor)}.npz")


@lru_cache(maxsize=8)
def known_codebook(descriptor: str, digest: str) -> Codebook | None:
    """The bundled codebook of a `descriptor` if its SHA-256 (hex) is `digest`; else None."""
    book = bundled_codebook(descriptor) if descriptor in BUNDLED else None
    return book if book is not None and book.digest == digest else None


def bundled_codebook_file() -> bytes:
    """The file of SIFT's bundled codebook as it is; whoever reads it verifies its hash."""
    return (files("veil") / "data" / f"codebook-{BUNDLED['sift']}.npz").read_bytes()


def bundled_decoys(descriptor: str = "sift") -> Codebook:
    """The bundled pool of decoys of a descriptor: real descriptors. As it is public, anyone can identify decoys from it.

    Of a descriptor that none is bundled for, that of SIFT (L2): whoever uses it is told that it does not fit.
    """
    return _bundled(f"decoys-{_named(descriptor)}.npz")


def _named(descriptor: str) -> str:
    return BUNDLED.get(descriptor, BUNDLED["sift"])


def _bundled(name: str) -> Codebook:
    with as_file(files("veil") / "data" / name) as path:
        return read_codebook(path)


@dataclass(frozen=True, kw_only=True)
class SavedShard:
    """Some rows of a file of descriptors (`.npy`), whose path holds on every machine that works on them."""

    path: Path
    start: int
    stop: int

    def load(self) -> Descriptors:
        """Read the rows. Raises FileFormatError where the file cannot be read, or lacks some of them."""
        try:
            rows = np.load(self.path, mmap_mode="r", allow_pickle=False)[self.start : self.stop]
        except (OSError, ValueError) as error:
            raise FileFormatError(
                f"cannot read descriptors from {self.path}: {error}; every machine needs the folder under the same path"
            ) from None
        if len(rows) != self.stop - self.start:
            raise FileFormatError(f"{self.path} lacks rows before {self.stop}; it was changed while it was read")
        return np.array(rows)


@contextmanager
def saved_shards(folder: Path, sample: Descriptors, *, rows: int = SHARD_ROWS) -> Iterator[list[SavedShard]]:
    """Shards of a sample, of `rows` rows each, in a file in `folder` that its owner alone can read, and that is removed after.

    Raises InputError if nothing can be written there.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".veil-shards-") as name:  # mode 0700
            path = Path(name, "descriptors.npy")
            np.save(path, sample, allow_pickle=False)
            yield [
                SavedShard(path=path, start=start, stop=min(start + rows, len(sample))) for start in range(0, len(sample), rows)
            ]

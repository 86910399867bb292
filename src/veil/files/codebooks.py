"""Codebooks as .npz files that carry their own hash, and the small ones that ship with the package."""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import Pca
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.dictionary import Dictionary
from veil.errors import FileFormatError
from veil.files.atomic import replacing
from veil.files.containers import require_filled

FORMAT = 1
_CODEBOOK = "codebook-sift-l2.npz"
# What a file says that it holds.
KINDS: dict[str, type[Codebook]] = {known.kind: known for known in (Dictionary, DecoyPool)}
# What zipfile, json, NumPy and Codebook raise when the bytes are not what they should be.
# Errors that zipfile, json, NumPy and Codebook raise when the bytes are not what they should be.
_DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, MemoryError),
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, tokenize.TokenError),
)


def write_codebook(path: Path, book: Codebook) -> None:
    """Write the codebook `book` to the file `path` (.npz) with its hash, at once or not at all.

    A pool of real descriptors (`book.kind` "descriptors") is made readable by its owner only: who has it can tell decoys from
    descriptors. Raises InputError if the file cannot be written.
    """
    header = {
        "format": FORMAT,
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
    arrays: dict[str, Any] = {"words": book.stored, "image_digests": digests}
    if book.pca is not None:
        arrays |= {"pca_mean": book.pca.mean, "pca_axes": book.pca.axes}
    # A pool of decoys holds descriptors of photographs, and who has it can tell decoys from descriptors.
    with replacing(path, private=book.kind == "descriptors") as temporary, temporary.open("wb") as stream:
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        # Without `allow_pickle`, which NumPy 1 would store as one more array.
        # Words hardly shrink, and inflating is most of a large book's reading.
        np.savez(stream, **arrays)


def read_codebook(path: Path) -> Codebook:
    """Read the codebook in the file `path` (.npz) and verify its hash.

    Raises FileFormatError if the file is missing, damaged, foreign, or does not match its hash.
    """
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            book = _assemble(header, archive)
    except FileNotFoundError:
        raise FileFormatError(f"there is no codebook {path}; build one with `veil codebook build`") from None
    except _DAMAGE as error:
        raise FileFormatError(f"{path} is not a veil codebook or is damaged ({error})") from None
    if book.digest != header.get("digest"):
        raise FileFormatError(f"{path}: the stored hash does not match the contents; get the file again")
    return book


def _assemble(header: dict, archive) -> Codebook:  # type: ignore[no-untyped-def]
    if header.get("format") != FORMAT:
        raise ValueError(f"format {header.get('format')!r}, this veil reads {FORMAT}")
    words, pca = archive["words"], None  # every access reads the file again
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


def bundled_codebook() -> Codebook:
    """The bundled codebook: public centroids of SIFT (L2) with the PCA of the hardened profile."""
    return _bundled(_CODEBOOK)


def bundled_codebook_file() -> bytes:
    """The file of the bundled codebook as it is; whoever reads it verifies its hash."""
    return (files("veil") / "data" / _CODEBOOK).read_bytes()


def bundled_decoys() -> Codebook:
    """The bundled pool of decoys: real SIFT (L2) descriptors. As it is public, anyone can identify decoys from it."""
    return _bundled("decoys-sift-l2.npz")


def _bundled(name: str) -> Codebook:
    with as_file(files("veil") / "data" / name) as path:
        return read_codebook(path)

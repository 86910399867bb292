"""Codebooks: their file and their digest, as docs/reference/wire.md has them."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import math
import zipfile
from dataclasses import dataclass

import numpy as np

from stranger.canonical import canonical


@dataclass(frozen=True, kw_only=True)
class Codebook:
    """The words of one kind of descriptor, (K, n), and the digest that was computed of the file's content."""

    kind: str
    descriptor: str
    normalization: str
    words: np.ndarray
    digest: str

    @property
    def unit(self) -> np.ndarray:
        """The words with unit length, float64 (K, n)."""
        wide = self.words.astype(np.float64)
        return wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))


def read_codebook(file: bytes) -> Codebook:
    """The codebook in a file. Refuses one whose content has another digest than its header says."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        members = {name.removesuffix(".npy"): array_of(archive.read(name)) for name in archive.namelist()}
    header = json.loads(members["header"].tobytes())
    words = members["words"]
    if header["format"] == 2:
        words = from_levels(words, header["dither_seed"])
    elif header["format"] != 1:
        raise ValueError(f"format {header['format']} is not known")
    digest = digest_of(header, words, members)
    if digest != header["digest"]:
        raise ValueError("the content has another digest than the header says")
    return Codebook(
        kind=header["kind"], descriptor=header["descriptor"], normalization=header["normalization"], words=words, digest=digest
    )


def array_of(data: bytes) -> np.ndarray:
    """An array in NumPy's format 1.0, rows first whatever the file has."""
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError("this is no array")
    start = 10 + int.from_bytes(data[8:10], "little")
    facts = ast.literal_eval(data[10:start].decode("ascii"))
    if facts["descr"] not in ("|u1", "|i1", "<f4"):
        raise ValueError("a codebook has no such array")
    items = np.frombuffer(data[start:], facts["descr"])
    return np.ascontiguousarray(items.reshape(facts["shape"], order="F" if facts["fortran_order"] else "C"))


def from_levels(levels: np.ndarray, seed: int) -> np.ndarray:
    """The words of format 2, float32."""
    stream = hashlib.shake_256(f"veil eight-bit words|{seed}".encode("ascii")).digest(2 * levels.size)
    dither = 2 * np.frombuffer(stream, "<u2").reshape(levels.shape).astype(np.int64) - 65535
    fixed = levels.astype(np.int64) * 2**17 + dither
    roots = np.array([[math.sqrt(float(sum(int(f) ** 2 for f in row)))] for row in fixed])
    return (fixed / roots).astype("<f4")


def digest_of(header: dict, words: np.ndarray, members: dict[str, np.ndarray]) -> str:
    """The digest, lower-case hexadecimal."""
    axes = members.get("pca_axes")
    told = [header["source"], header["license"], *(row.tobytes().hex() for row in members["image_digests"])]
    facts = {
        "descriptor": canonical(header["descriptor"]),
        "dither_steps": repr(float(header["dither_steps"])),
        "dtype": canonical("|u1" if words.dtype == np.uint8 else "<f4"),
        "kind": canonical(header["kind"]),
        "normalization": canonical(header["normalization"]),
        "pca": "null" if axes is None else f"[{axes.shape[0]}, {axes.shape[1]}]",
        "provenance": "[" + ", ".join(map(canonical, told)) + "]",
        "shape": f"[{words.shape[0]}, {words.shape[1]}]",
        "slices": str(header["slices"]),
    }
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in facts.items()) + "}"
    parts = [text.encode("ascii"), words.tobytes()]
    if axes is not None:
        parts += [members["pca_mean"].tobytes(), axes.tobytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()

"""Codebooks: public words that descriptors hide among or, under an epsilon, are replaced by; identified by their hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from veil.codebooks.compression import Compression, Pca
from veil.errors import InputError, RangeError
from veil.one_line import one_line
from veil.space import Normalization, Space

Kind = Literal["centroids", "descriptors"]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a codebook: enough to judge its license and to refuse one's own photographs as decoys.

    - `source`, `license`: where the photographs come from, and their license.
    - `image_count`, `descriptor_count`: number of photographs, and of their descriptors.
    - `image_digests`: first 8 bytes (hex) of each photograph's digest.
    """

    source: str
    license: str
    image_count: int
    descriptor_count: int
    image_digests: tuple[str, ...] = ()

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class Codebook:
    """A codebook: K words of one descriptor kind, shuffled, with the public PCA of the hardened profile.

    It is a `Dictionary` or a `DecoyPool`, and `kind` says which, as files do.

    - `descriptor`, `normalization`: what the words are, such as "sift" and "L2".
    - `stored`, uint8 or float32 (K, dim): the words as kept on disk. In a pool of SIFT the uint8 values are COLMAP's 512-step
      quantization; in a dictionary they are multiples of an arbitrary step. `vectors` are the unit vectors.
    - `slices`: number S of disjoint sub-databases, which are equal runs of words (lifting.md#sub-databases-and-collisions).
    - `pca`: public linear compression, or None.
    - `dither_steps`: width of the dither that the PCA was fitted with, in steps of 1/512.
    - `provenance`: photographs that it was made from, their license and digests.

    Raises InputError for fewer than two words and for words that are zero or not finite, RangeError for
    impossible `slices`.
    """

    kind: ClassVar[Kind]
    descriptor: str
    normalization: Normalization
    stored: UInt8[np.ndarray, "words dim"] | Float32[np.ndarray, "words dim"]
    slices: int
    pca: Pca | None
    dither_steps: float
    provenance: Provenance

    __repr__ = one_line

    def __post_init__(self) -> None:
        assert type(self) is not Codebook, "make a Dictionary or a DecoyPool"
        if len(self.stored) < 2 or not self.stored.any(axis=1).all() or not np.isfinite(self.stored).all():
            raise InputError("a codebook needs at least two words, all finite and none of them zero")
        if not 1 <= self.slices <= len(self.stored) // 2:
            raise RangeError(f"slices must be between 1 and half of {len(self.stored)} words, got {self.slices!r}")
        Space(descriptor=self.descriptor, normalization=self.normalization, dim=self.dim)  # checks the names

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def dim(self) -> int:
        """Number of dimensions of a word."""
        return self.stored.shape[1]

    @property
    def slice_size(self) -> int:
        """Number of words in each sub-database; `remainder` words belong to none."""
        return len(self.stored) // self.slices

    @property
    def remainder(self) -> int:
        """Number of words that no sub-database holds because S does not divide K."""
        return len(self.stored) - self.slices * self.slice_size

    @cached_property
    def vectors(self) -> Float32[np.ndarray, "words dim"]:
        """The words as unit vectors, float32 (K, dim)."""
        unit_vectors = np.empty(self.stored.shape, dtype=np.float32)
        for start in range(0, len(unit_vectors), 1 << 14):  # half a million words in float64 would be half a gigabyte
            values = self.stored[start : start + (1 << 14)].astype(np.float64)
            unit_vectors[start : start + (1 << 14)] = values / np.linalg.norm(values, axis=1, keepdims=True)
        return unit_vectors

    def nearest(self, unit_vectors: Float32[np.ndarray, "vectors dim"], count: int = 1) -> Int64[np.ndarray, "..."]:
        """Indices of the `count` words nearest to each vector, closest first: (vectors,) for one, else (vectors, count).

        The search is exact (faiss). Raises RangeError unless `count` lies between 1 and the number of words.
        """
        from veil.codebooks.neighbors import nearest_neighbors

        if not 1 <= count <= len(self):
            raise RangeError(f"count must be between 1 and {len(self)} words, got {count!r}")
        # For unit vectors the largest product is the least distance.
        _, words = nearest_neighbors(unit_vectors, self.vectors, count, by="product")
        return words[:, 0] if count == 1 else words

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of everything that changes results or provenance; releases name their codebook by it."""
        header = {
            "kind": self.kind,
            "descriptor": self.descriptor,
            "normalization": self.normalization,
            "shape": list(self.stored.shape),
            "dtype": self.stored.dtype.str,
            "slices": self.slices,
            "dither_steps": self.dither_steps,
            "pca": None if self.pca is None else list(self.pca.axes.shape),
            "provenance": [self.provenance.source, self.provenance.license, *self.provenance.image_digests],
        }
        hasher = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        hasher.update(np.ascontiguousarray(self.stored).tobytes())
        if self.pca is not None:
            hasher.update(np.ascontiguousarray(self.pca.mean, dtype="<f4").tobytes())
            hasher.update(np.ascontiguousarray(self.pca.axes, dtype="<f4").tobytes())
        return hasher.hexdigest()

    @property
    def compression(self) -> Compression:
        """The public compression that is published with these words."""
        return Compression(codebook=self.digest, raw_space=self.raw_space, pca=self.pca, dither_steps=self.dither_steps)

    @property
    def raw_space(self) -> Space:
        """The space that the words live in."""
        return Space(descriptor=self.descriptor, normalization=self.normalization, dim=self.dim)

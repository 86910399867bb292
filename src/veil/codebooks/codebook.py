"""Codebooks: public words that descriptors hide among or, under an epsilon, are replaced by; identified by their hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64, UInt8

from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Points
from veil.space import Normalization, Space

Kind = Literal["centroids", "descriptors"]
# Of the hardened profile: 64 axes leave its vertex attack more descriptors (`veil evaluate defenses`), 32 cost matches.
PCA_DIM = 48


@dataclass(frozen=True, kw_only=True, eq=False)
class Pca:
    """A public linear compression: x -> axes @ (x - mean), with orthonormal rows of `axes`, largest variance first."""

    mean: Float32[np.ndarray, "dim"]
    axes: Float32[np.ndarray, "reduced dim"]

    def apply(self, vectors: Float[np.ndarray, "*batch dim"]) -> Float64[np.ndarray, "*batch reduced"]:
        """Project; the result is not normalized again (lifting.md#strategies)."""
        return (np.asarray(vectors, dtype=np.float64) - self.mean) @ self.axes.T.astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a codebook: enough to judge its license and to refuse one's own photographs as decoys."""

    source: str
    license: str
    image_count: int
    descriptor_count: int
    image_digests: tuple[str, ...] = ()  # first 8 bytes (hex) of each source picture's digest


@dataclass(frozen=True, kw_only=True, eq=False)
class Codebook:
    """A codebook: K words of one descriptor kind, shuffled, with the public PCA of the hardened profile.

    - `kind`: "centroids" (spherical k-means; the W of Dusmanu et al. 2021) or "descriptors" (real ones: a pool of decoys).
    - `descriptor`, `normalization`: what the words are, such as "sift" and "L2".
    - `stored`, uint8 or float32 (K, dim): the words as kept on disk. For "descriptors" of SIFT the uint8 values are COLMAP's
      512-step quantization; for "centroids" they are multiples of an arbitrary step. `words` are the unit vectors.
    - `slices`: number S of disjoint sub-databases, which are equal runs of words (lifting.md#sub-databases-and-collisions).
    - `pca`: public linear compression, or None.
    - `dither_steps`: width of the dither that the PCA was fitted with, in steps of 1/512.
    - `provenance`: photographs that it was made from, their license and digests.

    Raises InputError for fewer than two words and for words that are zero or not finite, RangeError for an unknown kind or
    impossible `slices`.
    """

    kind: Kind
    descriptor: str
    normalization: Normalization
    stored: UInt8[np.ndarray, "words dim"] | Float32[np.ndarray, "words dim"]
    slices: int
    pca: Pca | None
    dither_steps: float
    provenance: Provenance

    def __post_init__(self) -> None:
        if self.kind not in ("centroids", "descriptors"):
            raise RangeError(f"codebook kind must be 'centroids' or 'descriptors', got {self.kind!r}")
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
    def words(self) -> Float32[np.ndarray, "words dim"]:
        """The words as unit vectors, float32 (K, dim)."""
        found = np.empty(self.stored.shape, dtype=np.float32)
        for start in range(0, len(found), 1 << 14):  # half a million words in float64 would be half a gigabyte
            values = self.stored[start : start + (1 << 14)].astype(np.float64)
            found[start : start + (1 << 14)] = values / np.linalg.norm(values, axis=1, keepdims=True)
        return found

    def nearest(self, unit_vectors: Float32[np.ndarray, "vectors dim"], count: int = 1) -> Int64[np.ndarray, "..."]:
        """Indices of the `count` words nearest to each vector, closest first: (vectors,) for one, else (vectors, count).

        The search is exact (faiss). Raises RangeError unless `count` lies between 1 and the number of words.
        """
        import faiss

        if not 1 <= count <= len(self):
            raise RangeError(f"count must be between 1 and {len(self)} words, got {count!r}")
        # For unit vectors the largest product is the least distance.
        _, found = faiss.knn(np.ascontiguousarray(unit_vectors), self.words, count, metric=faiss.METRIC_INNER_PRODUCT)
        return found[:, 0] if count == 1 else found

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
    def raw_space(self) -> Space:
        """The space that the words live in."""
        return Space(descriptor=self.descriptor, normalization=self.normalization, dim=self.dim)

    @property
    def hardened_space(self) -> Space:
        """The dithered, compressed space of the hardened profile. Raises InputError if this codebook has no PCA."""
        pca = self.require_pca()
        return Space(
            descriptor=self.descriptor,
            normalization=self.normalization,
            dim=len(pca.axes),
            codebook=self.digest,
            dither_steps=self.dither_steps,
        )

    def require_pca(self) -> Pca:
        """The PCA. Raises InputError, which says how to get one, if the codebook has none."""
        if self.pca is None:
            raise InputError("this codebook has no PCA; build one with `veil codebook build` (without --decoys)")
        return self.pca

    def into_space(self, points: Points, space: Space) -> Points:
        """Public descriptors brought into a query's space, so that a public map serves hardened queries.

        Raw descriptors get no dither of their own but the mean of the query's, half of `dither_steps` in each coordinate,
        so that both sides sit at the same place on average. Raises SpaceError if this codebook does not lead to `space`.
        """
        if points.space == space:
            return points
        if points.space != self.raw_space or self.pca is None or space != self.hardened_space:
            raise SpaceError(
                f"the codebook {self.digest[:12]} does not lead from [{points.space}] to [{space}]; "
                "give the codebook that the query was privatized with"
            )
        shifted = points.vectors.astype(np.float64) + self.dither_steps / 2 / 512
        shifted /= np.linalg.norm(shifted, axis=1, keepdims=True)
        return Points(vectors=self.pca.apply(shifted).astype(np.float32), space=space, guarantee=points.guarantee)


class WordTraining:
    """A bounded, uniform sample of descriptors from a stream of images: a reservoir of `capacity` whole rows."""

    def __init__(self, capacity: int, *, seed: int) -> None:
        if capacity < 2:
            raise RangeError(f"capacity must be at least 2 descriptors, got {capacity!r}")
        self._capacity = capacity
        self._random = np.random.default_rng(seed)
        self._rows: np.ndarray | None = None
        self.seen = 0
        self.image_digests: list[str] = []

    def add(self, descriptors: np.ndarray, image_digest: bytes) -> None:
        """Offer one image's descriptors (N, dim); memory stays at `capacity` rows."""
        self.image_digests.append(image_digest[:8].hex())
        if self._rows is None:
            self._rows = np.empty((self._capacity, descriptors.shape[1]), dtype=descriptors.dtype)
        positions = np.arange(self.seen, self.seen + len(descriptors))
        early = positions < self._capacity
        self._rows[positions[early]] = descriptors[early]
        # Algorithm R: the i-th row (from 0) replaces a kept one with probability capacity / (i + 1).
        targets = self._random.integers(0, positions[~early] + 1)
        taken = targets < self._capacity  # where two rows replace the same one, the later stays
        self._rows[targets[taken]] = descriptors[~early][taken]
        self.seen += len(descriptors)

    def sample(self) -> np.ndarray:
        """The sample, (rows, dim), shuffled in place; nothing may be added after it. Raises InputError if it is empty."""
        if self._rows is None or self.seen < 2:
            raise InputError("no descriptors were found in these photographs; check the folder, or lower the threshold")
        kept = self._rows[: min(self.seen, self._capacity)]
        order = self._random.permutation(len(kept))
        for start in range(0, kept.shape[1], 16):  # a few columns at a time: a copy of all rows would double the memory
            kept[:, start : start + 16] = kept[order, start : start + 16]
        return kept


def fit_pca(unit_vectors: Float[np.ndarray, "samples dim"], reduced: int) -> Pca:
    """Principal axes of `unit_vectors`; signs fixed so that the largest entry of each axis is positive."""
    if not 1 <= reduced < unit_vectors.shape[1] or len(unit_vectors) <= reduced:
        raise RangeError(
            f"PCA to {reduced} dimensions needs more than {reduced} samples of a higher dimension, "
            f"got {unit_vectors.shape[0]} of {unit_vectors.shape[1]}"
        )
    mean = unit_vectors.mean(axis=0, dtype=np.float64)
    centered = unit_vectors - mean
    _, axes = np.linalg.eigh(centered.T @ centered / len(centered))
    axes = axes[:, ::-1][:, :reduced].T
    signs = np.sign(axes[np.arange(reduced), np.abs(axes).argmax(axis=1)])
    return Pca(mean=mean.astype(np.float32), axes=(axes * signs[:, None]).astype(np.float32))

"""Four published protections of face templates, as references to compare with: each is a keyed code and a distance of codes.

They are studied, and nothing is released by them: a key is a number that seeds a study's generator. Sizes are those of the
papers where these give them, for descriptors of 128 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.errors import RangeError

# Codes of descriptors, one a row.
Coder = Callable[[np.ndarray], np.ndarray]
COEFFICIENTS = 50


@runtime_checkable
class PublishedScheme(Protocol):
    """A protection whose templates and probes are codes of one key.

    `coder` gives the code of float (N, dim) descriptors under `key`, float64 (N, size). `distance` compares codes row by row:
    0 for equal ones, larger for less alike ones.
    """

    @property
    def name(self) -> str: ...

    def coder(self, key: int, dim: int) -> Coder: ...

    def distance(
        self, left: Float64[np.ndarray, "*batch size"], right: Float64[np.ndarray, "*batch size"]
    ) -> Float64[np.ndarray, "*batch"]: ...


@dataclass(frozen=True, kw_only=True)
class BioHashing:
    """Signs of random orthonormal projections, compared by the share of bits that differ.

    Source: A. B. J. Teoh, D. C. L. Ngo, A. Goh, "BioHashing: two factor authentication featuring fingerprint data and
    tokenised random number", Pattern Recognition 2004. `bits` is the length of a code, at most the number of dimensions, which
    None stands for.
    """

    bits: int | None = None
    name = "BioHashing"

    def coder(self, key: int, dim: int) -> Coder:
        """The code under a key. Raises RangeError for more bits than dimensions."""
        bits = dim if self.bits is None else self.bits
        if not 1 <= bits <= dim:
            raise RangeError(f"BioHashing has 1 to {dim} bits of descriptors of {dim} numbers, got {bits!r}")
        directions = orthonormal(np.random.default_rng(key), bits, dim)
        return lambda vectors: (vectors @ directions.T > 0).astype(np.float64)

    def distance(
        self, left: Float64[np.ndarray, "*batch size"], right: Float64[np.ndarray, "*batch size"]
    ) -> Float64[np.ndarray, "*batch"]:
        """Share of bits that differ."""
        return _differing(left, right)


@dataclass(frozen=True, kw_only=True)
class IndexOfMax:
    """Numbers of the largest of several random projections, compared by the share of numbers that differ.

    Source: Z. Jin, J. Y. Hwang, Y.-L. Lai, S. Kim, A. B. J. Teoh, "Ranking-Based Locality Sensitive Hashing-Enabled Cancelable
    Biometrics: Index-of-Max Hashing", IEEE TIFS 2018, by Gaussian random projections. A code has `groups` numbers, each of
    `projections` projections.
    """

    groups: int = 300
    projections: int = 16
    name = "IoM"

    def coder(self, key: int, dim: int) -> Coder:
        """The code under a key."""
        directions = self._directions(key, dim).reshape(-1, dim)
        shape = (self.groups, self.projections)
        return lambda vectors: (vectors.astype(np.float32) @ directions.T).reshape(-1, *shape).argmax(axis=2).astype(np.float64)

    def named_directions(
        self, codes: Float64[np.ndarray, "rows groups"], key: int, dim: int
    ) -> Float64[np.ndarray, "rows dim"]:
        """Sums of the directions that codes name under a key, less the mean of their groups: they point to the descriptor."""
        directions = self._directions(key, dim).astype(np.float64)
        directions = directions - directions.mean(axis=1, keepdims=True)
        return np.stack([directions[np.arange(self.groups), row.astype(np.int64)].sum(axis=0) for row in codes])

    def _directions(self, key: int, dim: int) -> Float32[np.ndarray, "groups projections dim"]:
        """All projections of a key."""
        random = np.random.default_rng(key)
        return random.standard_normal((self.groups, self.projections, dim), dtype=np.float32)

    def distance(
        self, left: Float64[np.ndarray, "*batch size"], right: Float64[np.ndarray, "*batch size"]
    ) -> Float64[np.ndarray, "*batch"]:
        """Share of numbers that differ."""
        return _differing(left, right)


@dataclass(frozen=True, kw_only=True)
class PolyProtect:
    """Polynomials of windows of the descriptor, compared by their cosine.

    Source: V. Krivokuca Hahn, S. Marcel, "Towards Protecting Face Embeddings in Mobile Face Verification Scenarios", IEEE
    T-BIOM 2022. Each window of `window` numbers v gives c_1 v_1^e_1 + c_2 v_2^e_2 + ..., with distinct coefficients between
    -50 and 50 other than 0, and the exponents 1 to `window` in some order. `overlap` numbers of a window are in the next one,
    too; the last window is filled with zeros.
    """

    window: int = 5
    overlap: int = 2
    name = "PolyProtect"

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.window:
            raise RangeError(f"windows of {self.window} overlap by 0 to {self.window - 1} numbers, got {self.overlap!r}")

    def terms(self, key: int) -> tuple[Int64[np.ndarray, "window"], Int64[np.ndarray, "window"]]:
        """Coefficients and exponents of a key."""
        random = np.random.default_rng(key)
        whole = np.concatenate([np.arange(-COEFFICIENTS, 0), np.arange(1, COEFFICIENTS + 1)])
        return random.choice(whole, self.window, replace=False), random.permutation(np.arange(1, self.window + 1))

    def windows(self, dim: int) -> Int64[np.ndarray, "windows window"]:
        """Places of the windows in a descriptor of `dim` numbers; those from `dim` on are filled with zeros."""
        step = self.window - self.overlap
        starts = np.arange(0, max(1, dim - self.overlap), step)
        return starts[:, None] + np.arange(self.window)

    def coder(self, key: int, dim: int) -> Coder:
        """The code under a key."""
        coefficients, exponents = self.terms(key)
        places = self.windows(dim)
        missing = int(places.max()) + 1 - dim

        def coded(vectors: np.ndarray) -> np.ndarray:
            filled = np.pad(vectors.astype(np.float64), ((0, 0), (0, max(0, missing))))
            return (coefficients * filled[:, places] ** exponents).sum(axis=2)

        return coded

    def distance(
        self, left: Float64[np.ndarray, "*batch size"], right: Float64[np.ndarray, "*batch size"]
    ) -> Float64[np.ndarray, "*batch"]:
        """1 less the cosine."""
        lengths = np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
        return 1 - (left * right).sum(axis=-1) / np.maximum(lengths, 1e-12)


@dataclass(frozen=True, kw_only=True)
class MlpHash:
    """Signs of the last layer of a network with random orthonormal weights, compared by the share of bits that differ.

    Source: H. Otroshi Shahreza, V. Krivokuca Hahn, S. Marcel, "MLP-Hash: Protecting Face Templates via Hashing of Randomized
    Multi-Layer Perceptron", EUSIPCO 2023. Here there are `hidden` layers twice as wide as the descriptor, each by tanh of
    numbers scaled to a mean square of 1, and a last one of `bits`.
    """

    hidden: int = 3
    bits: int = 128
    name = "MLP-Hash"

    def coder(self, key: int, dim: int) -> Coder:
        """The code under a key."""
        random, width = np.random.default_rng(key), 2 * dim
        sizes = [dim, *([width] * self.hidden), self.bits]
        layers = [orthonormal(random, out, into) for into, out in pairwise(sizes)]

        def coded(vectors: np.ndarray) -> np.ndarray:
            values = vectors.astype(np.float64)
            for layer in layers[:-1]:
                values = values @ layer.T
                values = np.tanh(values / np.sqrt((values**2).mean(axis=1, keepdims=True)))
            return (values @ layers[-1].T > 0).astype(np.float64)

        return coded

    def distance(
        self, left: Float64[np.ndarray, "*batch size"], right: Float64[np.ndarray, "*batch size"]
    ) -> Float64[np.ndarray, "*batch"]:
        """Share of bits that differ."""
        return _differing(left, right)


PUBLISHED: tuple[PublishedScheme, ...] = (BioHashing(), IndexOfMax(), PolyProtect(), MlpHash())


def orthonormal(random: np.random.Generator, rows: int, columns: int) -> Float64[np.ndarray, "rows columns"]:
    """A random matrix with orthonormal rows, or, where it has more rows than columns, orthonormal columns."""
    tall = random.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diagonal(r))
    return q if rows >= columns else q.T


def _differing(
    left: Float64[np.ndarray, "*batch size"], right: Float64[np.ndarray, "*batch size"]
) -> Float64[np.ndarray, "*batch"]:
    share: Float64[np.ndarray, "*batch"] = (left != right).mean(axis=-1)
    return share

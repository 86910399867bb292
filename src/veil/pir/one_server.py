"""Private retrieval from one server by SimplePIR: queries are encrypted by learning with errors (docs/theory/pir.md, Eq. 3-5).

Henzinger, Hong, Corrigan-Gibbs, Meiklejohn and Vaikuntanathan, "One Server for the Price of Two", USENIX Security 2023, Fig. 2.
The server arranges its records as a matrix D of bytes (`arranged`) and publishes a hint, D A, for a public random matrix A
(`hint`). A client encrypts which column it wants (`queries`); the server multiplies (`answers`); the client takes away what the
hint and its secrets say, and rounds (`decode`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Generic, NamedTuple, NoReturn, TypeVar

import numpy as np
from jaxtyping import Int64, UInt8, UInt32

from veil.errors import PirError, RangeError
from veil.ldp.guarantee import ComputationalPrivacy
from veil.pir import gaussian, kernels, public_matrix
from veil.pir.layout import CENTER, COST, DIMENSION, SIGMA, STEP, Layout
from veil.pir.matrix import Matrix, add_panel, aligned, arranged, products, shares
from veil.threads import shared

__all__ = ["GUARANTEE", "Matrix", "Pending", "answers", "arranged", "decode", "hint", "queries", "read_hint"]

Key = TypeVar("Key")

GUARANTEE = ComputationalPrivacy(
    assumption=f"{COST.sentence}; learning with errors in dimension {DIMENSION} modulo 2^32, Gaussian noise (sigma {SIGMA}), "
    "uniform secret",
    bits=float(math.floor(COST.classical)),
    unit="query",
)


def hint(matrix: Matrix, seed: bytes, threads: int = 1) -> UInt32[np.ndarray, "rows 1408"]:
    """The hint: the product of the server's matrix with the public matrix of the seed, modulo 2^32.

    It depends on the records and on nothing that a client sends: compute it once a version and publish it with the seed.
    Raises RangeError for a seed that is not 32 bytes.
    """
    out = aligned((DIMENSION, 4 * matrix.groups))
    blocks = public_matrix.blocks(seed, matrix.layout.columns)
    for (_, words), (_, block) in zip(matrix.panels(), blocks, strict=True):
        vectors = aligned((DIMENSION, len(block)))
        vectors[:] = block.T

        def work(groups: slice, words: np.ndarray = words, vectors: np.ndarray = vectors) -> None:
            add_panel(words[groups], vectors, out[:, 4 * groups.start : 4 * groups.stop])

        list(shared(work, shares(matrix.groups, threads), threads))
    return np.ascontiguousarray(out[:, : matrix.layout.rows].T)


def read_hint(data: bytes, layout: Layout) -> UInt32[np.ndarray, "rows 1408"]:
    """A hint from its bytes: rows one after the other, integers of 32 bits with the least byte first.

    Raises PirError if they are not as many as the layout says.
    """
    if len(data) != layout.hint_bytes:
        raise PirError(f"the hint of this layout has {layout.hint_bytes} bytes, got {len(data)}; download it again")
    return np.frombuffer(data, dtype="<u4").astype(np.uint32, copy=False).reshape(layout.rows, DIMENSION)


def answers(matrix: Matrix, messages: Sequence[bytes], threads: int = 1) -> list[bytes]:
    """The answer to each query, from one pass over the matrix by a number of threads.

    Raises PirError for a query of another length; every query of the right length is answered.
    """
    layout = matrix.layout
    if any(len(message) != layout.query_bytes for message in messages):
        lengths = sorted({len(message) for message in messages})
        raise PirError(f"a query for {layout.columns} columns has {layout.query_bytes} bytes, got {lengths}")
    if not messages:
        return []
    vectors = np.stack([np.frombuffer(message, dtype="<u4") for message in messages]).astype(np.uint32, copy=False)
    return [row.astype("<u4").tobytes() for row in products(matrix, vectors, threads)]


class Held(NamedTuple):
    """Key that decodes a batch of queries: for each, its secret and the sum of its noise."""

    layout: Layout
    secrets: UInt32[np.ndarray, "queries 1408"]
    noise_sums: Int64[np.ndarray, "queries"]


class Pending(Generic[Key]):
    """The secrets of queries that were made, until their answers are decoded, once.

    Two queries under one secret would tell the server the difference of what they ask for. Therefore secrets are drawn where
    queries are made, no function makes queries from a `Pending`, and it cannot be copied, stored or printed.
    """

    def __init__(self, held: Key) -> None:
        self._held = [held]

    def peek(self) -> Key:
        """The secret. Raises PirError if it was taken."""
        if not self._held:
            raise PirError("these answers were decoded already, and secrets are used once; make new queries")
        return self._held[0]

    def take(self) -> Key:
        """Return the secret and forget it. Raises PirError if it was taken."""
        held = self.peek()
        self._held.clear()
        return held

    def __repr__(self) -> str:
        return f"<Pending: {'waiting' if self._held else 'decoded'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the secrets of queries cannot be copied or stored: they decode once, on this device")


def queries(indices: Sequence[int], layout: Layout, seed: bytes) -> tuple[list[bytes], Pending[Held]]:
    """Queries for records by their indices, `parts` of them for each, and the secrets that decode the answers.

    All queries have one length, whatever is asked for; secrets and noise are drawn anew from the operating system. The public
    matrix is expanded once for all of them, which takes most of the time: ask for several records at a time.

    Raises RangeError for an index outside 0..records-1, no index, or a seed that is not 32 bytes.
    """
    if not indices or not all(0 <= index < layout.records for index in indices):
        raise RangeError(f"indices must be one or more between 0 and {layout.records - 1}, got {list(indices)!r}")
    wanted = np.array([index * layout.parts + part for index in indices for part in range(layout.parts)])
    secrets = np.frombuffer(os.urandom(4 * len(wanted) * DIMENSION), dtype="<u4").astype(np.uint32).reshape(-1, DIMENSION)
    noise = gaussian.sample(len(wanted) * layout.columns).reshape(len(wanted), layout.columns)
    vectors = noise.astype(np.uint32)  # modulo 2^32
    for columns, block in public_matrix.blocks(seed, layout.columns):
        vectors[:, columns] += _inner_products(block, secrets)
    vectors[np.arange(len(wanted)), wanted] += np.uint32(STEP)
    held = Held(layout=layout, secrets=secrets, noise_sums=noise.sum(axis=1))
    return [vector.astype("<u4").tobytes() for vector in vectors], Pending(held)


def decode(received: Sequence[bytes], pending: Pending[Held], hint: UInt32[np.ndarray, "rows dimension"]) -> list[bytes]:
    """The records that were asked for, in the order of their indices. It uses up the secrets.

    Raises PirError if the number or the length of answers or the shape of the hint do not fit, or if it was called before.
    A server that lies about answers or the hint gives other bytes: check them (docs/theory/pir.md#what-is-not-hidden).
    """
    held = pending.peek()
    layout = held.layout
    if hint.shape != (layout.rows, DIMENSION):
        raise PirError(f"the hint of this layout is {layout.rows} x {DIMENSION} integers, got {hint.shape}; download it again")
    if len(received) != len(held.secrets):
        raise PirError(f"{len(held.secrets)} queries were made, got {len(received)} answers")
    if any(len(answer) != layout.answer_bytes for answer in received):
        raise PirError(
            f"answers of this layout have {layout.answer_bytes} bytes, got {sorted({len(item) for item in received})}"
        )
    symbols, _ = rounded(received, pending.take(), hint)
    whole = symbols.reshape(-1, layout.parts * layout.rows)[:, : layout.size]
    return [record.tobytes() for record in whole]


def rounded(
    received: Sequence[bytes], held: Held, hint: UInt32[np.ndarray, "rows 1408"]
) -> tuple[UInt8[np.ndarray, "queries rows"], Int64[np.ndarray, "queries rows"]]:
    """The bytes of each answer, and the noise that was in it (docs/theory/pir.md, Eq. 5)."""
    values = np.stack([np.frombuffer(answer, dtype="<u4") for answer in received]).astype(np.uint32)
    values -= _inner_products(hint, held.secrets)
    values -= (CENTER * held.noise_sums).astype(np.uint32)[:, None]
    values += np.uint32(STEP // 2)
    return (values // STEP).astype(np.uint8), (values % STEP).astype(np.int64) - STEP // 2


def _inner_products(
    left: UInt32[np.ndarray, "left dimension"], right: UInt32[np.ndarray, "right dimension"]
) -> UInt32[np.ndarray, "right left"]:
    """Inner products of all pairs of rows, modulo 2^32."""
    out = np.empty((len(right), len(left)), dtype=np.uint32)
    kernels.inner_products(np.ascontiguousarray(left), np.ascontiguousarray(right), out)
    return out

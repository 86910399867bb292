"""Private retrieval from one server by SimplePIR: queries are encrypted with learning with errors (docs/theory/pir.md, Eq. 3-5).

Henzinger, Hong, Corrigan-Gibbs, Meiklejohn and Vaikuntanathan, "One Server for the Price of Two", USENIX Security 2023, section 4.
The server arranges its records as a matrix D of bytes (`arranged`) and publishes a hint, D A, for a public random matrix A
(`hint`). A client encrypts which column it wants (`queries`); the server multiplies (`answers`); the client takes away what the
hint and its secrets say, and rounds (`decode`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import numpy as np
from jaxtyping import Int64, UInt8, UInt32

from veil.errors import InputError, PirError, RangeError
from veil.ldp.guarantee import ComputationalPrivacy
from veil.pir import gaussian, kernels, public_matrix
from veil.pir.layout import CENTER, DIMENSION, SECURITY_BITS, SIGMA, STEP, Layout

ASSUMPTION = (
    f"learning with errors, n = {DIMENSION}, q = 2^32, discrete Gaussian noise of standard deviation {SIGMA}, uniform secret; "
    "the lattice estimator's figure as Henzinger et al. 2023 quote it"
)
GUARANTEE = ComputationalPrivacy(assumption=ASSUMPTION, bits=SECURITY_BITS, unit="query")


def arranged(records: UInt8[np.ndarray, "records size"], layout: Layout) -> UInt8[np.ndarray, "rows columns"]:
    """The server's matrix: part k of record i, as a column, is column i * parts + k. Raises InputError for other records."""
    if records.shape != (layout.records, layout.size):
        raise InputError(f"the layout is for {layout.records} records of {layout.size} bytes, got {records.shape}")
    filled = np.zeros((layout.records, layout.parts * layout.rows), dtype=np.uint8)
    filled[:, : layout.size] = records
    return np.ascontiguousarray(filled.reshape(layout.columns, layout.rows).T)


def hint(matrix: UInt8[np.ndarray, "rows columns"], seed: bytes, threads: int = 1) -> UInt32[np.ndarray, "rows 1024"]:
    """The hint: the product of the server's matrix with the public matrix of the seed, modulo 2^32.

    It depends on the records and on nothing that a client sends: compute it once a version and publish it with the seed.
    Raises RangeError for a seed that is not 32 bytes.
    """
    total = np.zeros((len(matrix), DIMENSION), dtype=np.uint32)
    for start, block in public_matrix.blocks(seed, matrix.shape[1]):
        total += kernels.product(matrix[:, start : start + len(block)], np.ascontiguousarray(block.T), threads).T
    return total


def answers(matrix: UInt8[np.ndarray, "rows columns"], messages: Sequence[bytes], threads: int = 1) -> list[bytes]:
    """The answer to each query, from one pass over the matrix. Raises PirError for a query of another length."""
    rows, columns = matrix.shape
    for message in messages:
        if len(message) != 4 * columns:
            raise PirError(f"a query for {columns} columns has {4 * columns} bytes, got {len(message)}")
    vectors = np.array([np.frombuffer(message, dtype="<u4") for message in messages], dtype=np.uint32)
    return [row.astype("<u4").tobytes() for row in kernels.product(matrix, vectors.reshape(len(messages), columns), threads)]


class _Held(NamedTuple):
    """What decodes a batch of queries: for each, a secret and the sum of its noise."""

    layout: Layout
    secrets: UInt32[np.ndarray, "queries 1024"]
    noise_sums: Int64[np.ndarray, "queries"]


class Pending:
    """The secrets of queries that were made, until their answers are decoded, once.

    Two queries under one secret would tell the server the difference of what they ask for. Therefore secrets are drawn where
    queries are made, no function makes queries from a `Pending`, and it cannot be copied, stored or printed.
    """

    def __init__(self, held: _Held) -> None:
        self._held = [held]

    def layout(self) -> Layout:
        """The layout of the records that were asked for. Raises PirError if the answers were decoded already."""
        return self._peek().layout

    def _peek(self) -> _Held:
        if not self._held:
            raise PirError("these answers were decoded already, and secrets are used once; make new queries")
        return self._held[0]

    def _take(self) -> _Held:
        held = self._peek()
        self._held.clear()
        return held

    def __repr__(self) -> str:
        return f"<Pending: {'waiting' if self._held else 'decoded'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the secrets of queries cannot be copied or stored: each decodes one answer, on this device")


def queries(indices: Sequence[int], layout: Layout, seed: bytes) -> tuple[list[bytes], Pending]:
    """Queries for records by their indices, `parts` of them for each, and the secrets that decode the answers.

    All queries have one length, whatever is asked for; secrets and noise are drawn anew from the operating system. The public
    matrix is expanded once for all of them, which takes most of the time: ask for several records at a time.

    Raises RangeError for an index outside 0..records-1, no index, or a seed that is not 32 bytes.
    """
    if not indices or not all(0 <= index < layout.records for index in indices):
        raise RangeError(f"indices must lie between 0 and {layout.records - 1}, got {list(indices)!r}")
    wanted = np.array([index * layout.parts + part for index in indices for part in range(layout.parts)])
    secrets = _uniform(len(wanted))
    noise = gaussian.sample(len(wanted) * layout.columns).reshape(len(wanted), layout.columns)
    vectors = noise.astype(np.uint32)  # modulo 2^32
    for start, block in public_matrix.blocks(seed, layout.columns):
        vectors[:, start : start + len(block)] += kernels.inner_products(block, secrets)
    vectors[np.arange(len(wanted)), wanted] += np.uint32(STEP)
    held = _Held(layout=layout, secrets=secrets, noise_sums=noise.sum(axis=1))
    return [vector.astype("<u4").tobytes() for vector in vectors], Pending(held)


def decode(received: Sequence[bytes], pending: Pending, hint: UInt32[np.ndarray, "rows 1024"]) -> list[bytes]:
    """The records that were asked for, in the order of their indices. It uses up the secrets.

    Raises PirError if the number or the length of answers or the shape of the hint do not fit, or if it was called before.
    A server that lies about answers or the hint gives other bytes: check them (docs/theory/pir.md#what-is-not-hidden).
    """
    layout = pending.layout()
    if hint.shape != (layout.rows, DIMENSION) or hint.dtype != np.uint32:
        raise PirError(f"the hint must be {layout.rows} x {DIMENSION} integers of 32 bits, got {hint.shape}; download it again")
    if any(len(answer) != layout.answer_bytes for answer in received):
        raise PirError(f"answers must have {layout.answer_bytes} bytes, got {[len(answer) for answer in received]}")
    if len(received) != len(pending._peek().secrets):
        raise PirError(f"{len(pending._peek().secrets)} queries were made, got {len(received)} answers")
    symbols, _ = _rounded(received, pending._take(), hint)
    whole = symbols.reshape(-1, layout.parts * layout.rows)[:, : layout.size]
    return [record.tobytes() for record in whole]


def _rounded(
    received: Sequence[bytes], held: _Held, hint: UInt32[np.ndarray, "rows 1024"]
) -> tuple[UInt8[np.ndarray, "queries rows"], Int64[np.ndarray, "queries rows"]]:
    """The bytes of each answer, and the noise that was in it (docs/theory/pir.md, Eq. 5)."""
    values = np.array([np.frombuffer(answer, dtype="<u4") for answer in received], dtype=np.uint32)
    values -= kernels.inner_products(hint, held.secrets)
    values -= (CENTER * held.noise_sums).astype(np.uint32)[:, None]
    values += np.uint32(STEP // 2)
    return (values // STEP).astype(np.uint8), (values % STEP).astype(np.int64) - STEP // 2


def _uniform(rows: int) -> UInt32[np.ndarray, "rows 1024"]:
    """Secrets: uniform integers modulo 2^32 from the operating system."""
    return np.frombuffer(os.urandom(4 * rows * DIMENSION), dtype="<u4").astype(np.uint32).reshape(rows, DIMENSION)

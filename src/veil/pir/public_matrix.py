"""The public random matrix of SimplePIR, expanded from a seed block by block (docs/theory/pir.md, Eq. 3)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import numpy as np
from jaxtyping import UInt32

from veil.errors import RangeError
from veil.pir.kernels import PANEL
from veil.pir.layout import DIMENSION

SEED_BYTES = 32
BLOCK = PANEL  # rows that are expanded at a time, 5.5 MiB: those for the columns of a panel
_DOMAIN = b"veil pir public matrix 2"


def new_seed() -> bytes:
    """A new seed from the operating system. It is public, and one seed may serve all versions of all databases."""
    return os.urandom(SEED_BYTES)


def blocks(seed: bytes, columns: int) -> Iterator[tuple[slice, UInt32[np.ndarray, "block 1408"]]]:
    """The matrix, a row for each column of the records' matrix, in blocks of rows; each with the columns that it is for.

    Block b is SHAKE-256 of the domain, the seed and b as 8 bytes, read as integers of 32 bits, least byte first. Raises
    RangeError for a seed that is not 32 bytes.
    """
    if len(seed) != SEED_BYTES:
        raise RangeError(f"the seed of the public matrix has {SEED_BYTES} bytes, got {len(seed)}")
    for start in range(0, columns, BLOCK):
        rows = min(BLOCK, columns - start)
        stream = hashlib.shake_256(_DOMAIN + seed + (start // BLOCK).to_bytes(8, "little")).digest(4 * rows * DIMENSION)
        yield (
            slice(start, start + rows),
            np.frombuffer(stream, dtype="<u4").astype(np.uint32, copy=False).reshape(rows, DIMENSION),
        )

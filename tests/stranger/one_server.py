"""The exit by one server: learning with errors, as docs/reference/tiles.md has it."""

from __future__ import annotations

import hashlib
import math
import secrets
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from itertools import accumulate

import numpy as np

N, SIGMA, STEP = 1408, 6.4, 1 << 24
# Bits of the table of the noise's distribution, and how far it goes: weights beyond are below 2^-140.
DIGITS, REACH = 128, 90


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The server's facts about the exit, and the sizes that follow from them."""

    tiles: int
    record_bytes: int
    parts: int
    seed: bytes

    @property
    def rows(self) -> int:
        return -(-self.record_bytes // self.parts)

    @property
    def columns(self) -> int:
        return self.parts * self.tiles


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The queries for some tiles, as bytes, and what decodes their answers: secrets (queries, n), sums of noise (queries,)."""

    queries: bytes
    secrets: np.ndarray
    sums: np.ndarray


def require(exit: Exit) -> None:
    """Refuse an exit whose noise or security does not allow its number of columns."""
    most = (2**23 / (128 * SIGMA)) ** 2 / (2 * math.log(2 * exit.record_bytes * 2.0**40))
    if exit.columns > 2**21 or exit.columns >= most:
        raise ValueError(f"{exit.columns} columns are too many")


def public_matrix(exit: Exit) -> np.ndarray:
    """A, (columns, N)."""
    blocks = []
    for number, first in enumerate(range(0, exit.columns, 1024)):
        rows = min(1024, exit.columns - first)
        data = b"veil pir public matrix 2" + exit.seed + number.to_bytes(8, "little")
        blocks.append(np.frombuffer(hashlib.shake_256(data).digest(4 * N * rows), "<u4").reshape(rows, N))
    return np.concatenate(blocks).astype(np.uint32)


@cache
def distribution() -> tuple[int, ...]:
    """2^DIGITS times the probability of at most x, for x = -REACH, ..., REACH - 1."""
    with localcontext() as context:
        context.prec = 80
        weights = [(Decimal(-25 * x * x) / 2048).exp() for x in range(-REACH, REACH + 1)]
        total = sum(weights)
        return tuple(int(part * 2**DIGITS / total) for part in accumulate(weights[:-1]))


def noise(*shape: int) -> np.ndarray:
    """Discrete Gaussian noise."""
    table = distribution()
    drawn = [bisect_right(table, secrets.randbits(DIGITS)) - REACH for _ in range(math.prod(shape))]
    return np.array(drawn, dtype=np.int64).reshape(shape)


def ask(exit: Exit, tiles: list[int]) -> Asked:
    """Queries for some tiles, `parts` for each."""
    wanted = [tile * exit.parts + part for tile in tiles for part in range(exit.parts)]
    s = np.frombuffer(secrets.token_bytes(4 * N * len(wanted)), "<u4").reshape(-1, N).astype(np.uint32)
    e = noise(len(wanted), exit.columns)
    b = s @ public_matrix(exit).T + e.astype(np.uint32)  # products of u32 are modulo 2^32
    b[np.arange(len(wanted)), wanted] += np.uint32(STEP)
    return Asked(queries=b.astype("<u4").tobytes(), secrets=s, sums=e.sum(axis=1))


def records(exit: Exit, asked: Asked, answers: bytes, hint: bytes) -> list[bytes]:
    """The records that were asked for."""
    h = np.frombuffer(hint, "<u4").reshape(exit.rows, N).astype(np.uint32)
    v = np.frombuffer(answers, "<u4").reshape(len(asked.secrets), exit.rows).astype(np.uint32) - asked.secrets @ h.T
    v -= (128 * asked.sums).astype(np.uint32)[:, None]
    columns = ((v + np.uint32(STEP // 2)) // np.uint32(STEP)).astype(np.uint8)
    whole = columns.reshape(-1, exit.parts * exit.rows)
    return [record[: exit.record_bytes].tobytes() for record in whole]

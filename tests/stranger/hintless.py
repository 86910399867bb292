"""The exit by one server without a hint: ring learning with errors, as docs/reference/tiles.md has it."""

from __future__ import annotations

import hashlib
import math
import secrets

import numpy as np

from stranger.one_server import SIGMA, Asked, Exit, noise

D, Q = 2048, 2147389441
STEP, KEYS, DIGITS, UNIT = (Q - 1) // 256, 10, 5, 1 << 18


def most_columns(record_bytes: int) -> int:
    """The most columns whose noise is decoded: Eq. 19 and 20 of docs/theory/pir.md."""
    packing = D**2 * (DIGITS * (2.0**10 + 2) / 12 * SIGMA**2 + 2.0**12 / 18) + D * (Q / UNIT) ** 2 / 18
    bearable = (STEP / 2 * (1 - 2.0**-6 - 2.0**-9)) ** 2 / (2 * math.log(2 * record_bytes * 2.0**40))
    return math.ceil((bearable - 1.25**2 * packing) / (128 * SIGMA) ** 2) - 1


def require(exit: Exit) -> None:
    """Refuse an exit whose noise does not allow its number of columns."""
    if exit.columns > most_columns(exit.record_bytes):
        raise ValueError(f"{exit.columns} columns are too many")


def lengths(exit: Exit) -> tuple[int, int]:
    """Bytes of a query, and of its answer."""
    return 4 * (exit.columns + KEYS * D), 4 * D * -(-exit.rows // D)


def public(text: bytes, seed: bytes, number: int) -> np.ndarray:
    """A public polynomial."""
    stream = hashlib.shake_256(text + seed + number.to_bytes(8, "little")).digest(8 * D)
    drawn = np.frombuffer(stream, "<u4") & 0x7FFFFFFF
    kept = drawn[drawn < Q][:D]  # of twice as many as are needed, where one in 20,000 is left out
    assert len(kept) == D
    return kept.astype(np.int64)


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product modulo X^D + 1 and q: that of two long integers with a coefficient in each 96 bits."""
    one, two = (
        int.from_bytes(np.stack([factor % Q, 0 * factor, 0 * factor], axis=1).astype("<u4").tobytes(), "little")
        for factor in (left, right)
    )
    parts = np.frombuffer((one * two).to_bytes(24 * D, "little"), "<u4").astype(np.uint64).reshape(2 * D, 3)
    powers = np.array([1, 2**32 % Q, 2**64 % Q], dtype=np.uint64)
    whole = ((parts * powers % Q).sum(axis=1) % Q).astype(np.int64)
    return (whole[:D] - whole[D:]) % Q


def at_power(polynomial: np.ndarray, power: int) -> np.ndarray:
    """The polynomial at X^power."""
    out = np.zeros_like(polynomial)
    for place, value in enumerate(polynomial):
        turned = place * power % (2 * D)
        out[turned % D] = value if turned < D else -value
    return out


def ask(exit: Exit, tiles: list[int]) -> Asked:
    """Queries for some tiles, `parts` for each."""
    wanted = [tile * exit.parts + part for tile in tiles for part in range(exit.parts)]
    s = np.array([[secrets.randbelow(3) - 1 for _ in range(D)] for _ in wanted], dtype=np.int64)
    e = noise(len(wanted), exit.columns)
    columns = [public(b"veil pir ring columns 1", exit.seed, block) for block in range(-(-exit.columns // D))]
    keys = [public(b"veil pir ring keys 1", exit.seed, number) for number in range(KEYS)]
    queries = []
    for secret, own, column in zip(s, e, wanted, strict=True):
        masks = np.concatenate([product(a, secret) for a in columns])[: exit.columns]
        turned = [at_power(secret, 5), at_power(secret, -1)]
        multiples = [2 ** (6 + 5 * (j % DIGITS)) * turned[j // DIGITS] for j in range(KEYS)]
        ys = [product(w, secret) + noise(D) + multiple for w, multiple in zip(keys, multiples, strict=True)]
        b = masks + own + STEP * (np.arange(exit.columns) == column)
        queries.append((np.concatenate([b, *ys]) % Q).astype("<u4").tobytes())
    return Asked(queries=b"".join(queries), secrets=s, sums=e.sum(axis=1))


def records(exit: Exit, asked: Asked, answers: bytes) -> list[bytes]:
    """The records that were asked for."""
    words = np.frombuffer(answers, "<u4").astype(np.int64).reshape(len(asked.secrets), -1, D)
    columns = []
    for blocks, secret, total in zip(words, asked.secrets, asked.sums, strict=True):
        masks = np.stack([product(block % UNIT, secret) for block in blocks])
        masks = np.where(masks > Q // 2, masks - Q, masks)
        x = 16 * (blocks // UNIT) - masks - round(UNIT * 128 * int(total) / Q)
        columns.append((((x + 512) % UNIT) >> 10).astype(np.uint8).ravel()[: exit.rows])
    whole = np.stack(columns).reshape(-1, exit.parts * exit.rows)
    return [record[: exit.record_bytes].tobytes() for record in whole]

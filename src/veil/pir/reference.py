"""Slow references of private retrieval in Python's integers, by definition: what the compiled kernels are compared with."""

from __future__ import annotations

from collections.abc import Sequence

MODULUS = 1 << 32


def product(rows: Sequence[Sequence[int]], vector: Sequence[int]) -> list[int]:
    """The product of a matrix of bytes, given by its rows, and a vector, modulo 2^32."""
    return [sum(byte * factor for byte, factor in zip(row, vector, strict=True)) % MODULUS for row in rows]


def columns(records: Sequence[bytes], parts: int) -> list[bytes]:
    """The columns of SimplePIR's matrix: the parts of each record in order, the last of them filled up with zeros."""
    rows = -(-len(records[0]) // parts)
    filled = [record.ljust(parts * rows, b"\0") for record in records]
    return [record[part * rows : (part + 1) * rows] for record in filled for part in range(parts)]


def xor(records: Sequence[bytes], chosen: Sequence[bool]) -> bytes:
    """The XOR of the chosen records."""
    total = 0
    for record, is_chosen in zip(records, chosen, strict=True):
        if is_chosen:
            total ^= int.from_bytes(record, "little")
    return total.to_bytes(len(records[0]), "little")

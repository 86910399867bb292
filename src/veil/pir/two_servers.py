"""Private retrieval from servers that do not all collude: each XORs random records (docs/theory/pir.md, Eq. 1-2).

Chor, Goldreich, Kushilevitz and Sudan, FOCS 1995. All servers hold the same records. All but one get a uniformly random subset;
the last gets the sum of these (modulo 2), with the wanted record's membership flipped. Any servers but all together see
independent uniform subsets, whatever is wanted.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from functools import reduce

import numpy as np
from jaxtyping import Bool, UInt8

from veil.errors import PirError, RangeError
from veil.ldp.guarantee import PerfectPrivacy
from veil.pir import kernels
from veil.pir.matrix import shares
from veil.threads import shared

BLOCK_BYTES = 1 << 19  # of records that stay in a core's cache while all queries of a batch read them


def guarantee(servers: int = 2) -> PerfectPrivacy:
    """Privacy of a fetch from a number of servers: one of them must not collude with the others."""
    return PerfectPrivacy(non_colluding=1, of=servers, unit="session")


def query_bytes(records: int) -> int:
    """Length of a query to one server in bytes: one bit a record."""
    return -(-records // 8)


def queries(index: int, records: int, servers: int = 2) -> list[bytes]:
    """One query for each server, which together ask for record `index` of `records`.

    Bit i % 8 (from the lowest) of byte i // 8 says whether the server adds record i; bits after the last record are 0. They are
    drawn anew from the operating system each time: never send one of them twice, nor two of them to one server.

    Raises RangeError for an index outside 0..records-1, and for fewer than two servers.
    """
    if not 0 <= index < records:
        raise RangeError(f"there is no record {index!r} of {records!r}; give an index from 0 to records - 1")
    if not servers >= 2:
        raise RangeError(f"private retrieval without an assumption needs two servers or more, got {servers!r}; see one_server")
    size = query_bytes(records)
    last = (1 << records) - 1
    subsets = [int.from_bytes(os.urandom(size), "little") & last for _ in range(servers - 1)]
    subsets.append(reduce(operator.xor, subsets) ^ 1 << operator.index(index))  # NumPy's integers would lose the bit
    return [subset.to_bytes(size, "little") for subset in subsets]


def answer(records: UInt8[np.ndarray, "records size"], query: bytes) -> bytes:
    """The XOR of the records that a query chooses, as long as a record. Raises PirError for a query of other records."""
    return answers(records, [query])[0]


def answers(records: UInt8[np.ndarray, "records size"], messages: Sequence[bytes], threads: int = 1) -> list[bytes]:
    """The answer to each query, from one pass over the records by a number of threads; see `answer`."""
    count, size = records.shape
    chosen = np.zeros((len(messages), count), dtype=bool)
    for row, message in zip(chosen, messages, strict=True):
        row[:] = _chosen(message, count)
    out = np.zeros((len(messages), size), dtype=np.uint8)
    block = max(1, BLOCK_BYTES * threads // max(size, 1))

    def work(part: slice) -> None:
        kernels.xor_chosen(records, chosen, block, part.start, part.stop, out)

    list(shared(work, shares(size, threads), threads))
    return [row.tobytes() for row in out]


def decode(answers: Sequence[bytes]) -> bytes:
    """The record that was asked for, from the answers of all servers. Raises PirError unless they have one length."""
    if len(answers) < 2 or len({len(item) for item in answers}) != 1:
        lengths = [len(item) for item in answers]
        raise PirError(f"answers of all servers must have one length, got {lengths} bytes; ask servers of one version")
    return np.bitwise_xor.reduce([np.frombuffer(item, dtype=np.uint8) for item in answers]).tobytes()


def require_query(query: bytes, records: int) -> None:
    """Raise PirError for a query of another length than that for this number of records, or with bits after the last record."""
    _chosen(query, records)


def _chosen(query: bytes, records: int) -> Bool[np.ndarray, "records"]:
    """Whether each record is chosen. Raises PirError for a query of another length or with bits after the last record."""
    if len(query) != query_bytes(records):
        raise PirError(f"a query for {records} records has {query_bytes(records)} bytes, got {len(query)}")
    bits = np.unpackbits(np.frombuffer(query, dtype=np.uint8), bitorder="little").astype(bool)
    if bits[records:].any():
        raise PirError(f"a query for {records} records chooses none after the last; its padding must be 0")
    return bits[:records]

"""Ways to fetch tiles and their promises: everything, from two servers, from one with a hint or without one.

The page is docs/theory/tiles.md#fetching.

An exit fetches records of equal size by their indices. What reaches a server is made here and in `veil.pir`, from indices
alone: this file knows neither features nor poses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8, UInt32

from veil.errors import InputError, PirError
from veil.ldp.guarantee import ComputationalPrivacy, FetchGuarantee, PerfectPrivacy
from veil.pir import hintless, one_server, two_servers
from veil.pir.hintless_layout import HintlessLayout
from veil.pir.layout import Layout

# Carries messages to a server and brings its answers: one for each, in their order.
Transport = Callable[[Sequence[bytes]], Sequence[bytes]]
# What a server that gives away everything sees.
DOWNLOADED = ("that the whole map was downloaded", "when", "from which network address")


@runtime_checkable
class Exit(Protocol):
    """A way to fetch records, and what it promises."""

    @property
    def guarantee(self) -> FetchGuarantee:
        """Guarantee of a fetch: which information servers can and cannot learn from it."""
        ...

    def fetch(self, indices: Sequence[int]) -> list[bytes]:
        """The records of some indices, in their order. What is sent depends on the number of indices and on nothing else."""
        ...


@dataclass(kw_only=True, eq=False)
class Region:
    """All records at once: nothing that is sent depends on which are wanted. The best private retrieval for small maps.

    `read` gives all records; it is called once, at the first fetch, whatever that asks for.
    """

    read: Callable[[], UInt8[np.ndarray, "records size"]]
    _records: list[UInt8[np.ndarray, "records size"]] = field(default_factory=list, init=False, repr=False)

    @property
    def guarantee(self) -> PerfectPrivacy:
        """Perfect privacy that needs nobody's honesty."""
        return PerfectPrivacy(non_colluding=0, of=1, unit="session", learns=DOWNLOADED)

    def fetch(self, indices: Sequence[int]) -> list[bytes]:
        """The records of some indices, in their order."""
        if not self._records:
            self._records.append(self.read())
        (records,) = self._records
        return [records[index].tobytes() for index in indices]


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoServers:
    """Records from two or more servers that all hold them and do not all collude (docs/theory/pir.md, Eq. 1-2).

    - `records`, `size`: number of records, and bytes of each.
    - `transports`: to each server. All queries of a fetch travel together.
    """

    records: int
    size: int
    transports: tuple[Transport, ...]

    def __post_init__(self) -> None:
        if len(self.transports) < 2:
            raise InputError(f"this exit needs two servers or more, got {len(self.transports)}")

    @property
    def guarantee(self) -> PerfectPrivacy:
        """Perfect privacy while one of the servers keeps to itself what it receives."""
        return two_servers.guarantee(len(self.transports))

    def fetch(self, indices: Sequence[int]) -> list[bytes]:
        """The records of some indices, in their order. Raises PirError for answers of another number or length."""
        asked = [two_servers.queries(index, self.records, len(self.transports)) for index in indices]
        # All servers are asked at once, so that none waits for another, and whether one fails changes nothing for the others.
        with ThreadPoolExecutor(len(self.transports)) as pool:
            answers = [
                pool.submit(_answered, transport, [shares[number] for shares in asked], self.size)
                for number, transport in enumerate(self.transports)
            ]
        return [two_servers.decode(shares) for shares in zip(*(answer.result() for answer in answers), strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class OneServer:
    """Records from a single server, which only sees encrypted queries (SimplePIR; docs/theory/pir.md, Eq. 3-5).

    - `layout`: of the server's records.
    - `seed`, `hint`: what the server published with this version of the records.
    - `transport`: to the server. All queries of a fetch travel together.
    """

    layout: Layout
    seed: bytes
    hint: UInt32[np.ndarray, "rows 1408"]
    transport: Transport

    @property
    def guarantee(self) -> ComputationalPrivacy:
        """Privacy under the hardness of learning with errors."""
        return one_server.GUARANTEE

    def fetch(self, indices: Sequence[int]) -> list[bytes]:
        """The records of some indices, in their order. Raises PirError for answers of another number or length."""
        messages, pending = one_server.queries(indices, self.layout, self.seed)
        return one_server.decode(_answered(self.transport, messages, self.layout.answer_bytes), pending, self.hint)


@dataclass(frozen=True, kw_only=True, eq=False)
class Hintless:
    """Records from a single server, which only sees encrypted queries and packs its answers (docs/theory/pir.md, Eq. 13-18).

    - `layout`: of the server's records.
    - `seed`: what the server published with this version of the records.
    - `transport`: to the server. All queries of a fetch travel together.
    """

    layout: HintlessLayout
    seed: bytes
    transport: Transport

    @property
    def guarantee(self) -> ComputationalPrivacy:
        """Privacy under the hardness of ring learning with errors."""
        return hintless.GUARANTEE

    def fetch(self, indices: Sequence[int]) -> list[bytes]:
        """The records of some indices, in their order. Raises PirError for answers of another number or length."""
        messages, pending = hintless.queries(indices, self.layout, self.seed)
        return hintless.decode(_answered(self.transport, messages, self.layout.answer_bytes), pending)


def _answered(transport: Transport, messages: Sequence[bytes], size: int) -> list[bytes]:
    """The answers to some messages. Raises PirError unless there is one of `size` bytes for each."""
    answers = list(transport(messages))
    if len(answers) != len(messages) or any(len(answer) != size for answer in answers):
        raise PirError(
            f"{len(messages)} answers of {size} bytes were due, and the server sent {[len(item) for item in answers]}"
        )
    return answers

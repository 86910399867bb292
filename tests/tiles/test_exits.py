"""Exits: every tile by each of them, byte for byte, and what they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

from veil.errors import InputError, PirError
from veil.ldp.guarantee import ComputationalPrivacy, PerfectPrivacy
from veil.pir import hintless, one_server, two_servers
from veil.pir.hintless_layout import hintless_layout
from veil.pir.layout import Layout, best_layout
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.exits import Exit, Hintless, OneServer, Region, TwoServers
from veil.tiles.fetching import proved_tile
from worlds.tile_streets import street

SEED = bytes(range(32))


@cache
def made() -> CutMap:
    return cut(street("exits", cameras=16).scene, CutOptions(tile_bytes=6000, words=8, asked=3))


class Server:
    """A server in this process, which remembers what it is sent."""

    def __init__(self, records: np.ndarray, layout: Layout | None = None) -> None:
        self.records, self.layout = records, layout
        self.sent: list[list[bytes]] = []

    def __call__(self, messages: Sequence[bytes]) -> list[bytes]:
        self.sent.append(list(messages))
        if self.layout is None:
            return [two_servers.answer(self.records, message) for message in messages]
        return one_server.answers(one_server.arranged(self.records, self.layout), messages)


def region() -> tuple[Exit, list[Server]]:
    return Region(read=lambda: made().records), []


def two(servers: int = 2) -> tuple[Exit, list[Server]]:
    hosts = [Server(made().records) for _ in range(servers)]
    count, size = made().records.shape
    return TwoServers(records=count, size=size, transports=tuple(hosts)), hosts


def one() -> tuple[Exit, list[Server]]:
    count, size = made().records.shape
    layout = Layout(records=count, size=size, parts=4)
    host = Server(made().records, layout)
    hint = one_server.hint(one_server.arranged(made().records, layout), SEED)
    return OneServer(layout=layout, seed=SEED, hint=hint, transport=host), [host]


def without_a_hint() -> tuple[Exit, list[Server]]:
    layout = hintless_layout(*made().records.shape)
    matrix = hintless.arranged_rows(made().records, layout)
    prepared = hintless.prepared(matrix, layout, SEED)

    class Packing(Server):
        def __call__(self, messages: Sequence[bytes]) -> list[bytes]:
            self.sent.append(list(messages))
            return hintless.answers(matrix, prepared, layout, messages)

    host = Packing(made().records)
    return Hintless(layout=layout, seed=SEED, transport=host), [host]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [region, two, lambda: two(3), one, without_a_hint],
    ids=["region", "two servers", "three servers", "one server", "hintless"],
)
def test_every_tile_arrives_byte_for_byte(kind: Callable[[], tuple[Exit, list[Server]]]) -> None:
    """Oracle: the records themselves, and the Merkle root of the manifest."""
    exit, hosts = kind()
    count = len(made().manifest)
    assert count >= 6
    for start in range(0, count, 3):
        indices = [index % count for index in (start + 2, start, start + 1)]
        for index, record in zip(indices, exit.fetch(indices), strict=True):
            assert record == made().records[index].tobytes()
            assert proved_tile(made().manifest, index, record).index == index
    lengths = {tuple(len(message) for message in sent) for host in hosts for sent in host.sent}
    assert len(lengths) <= 1


def test_guarantees_say_what_each_exit_needs() -> None:
    guarantee = region()[0].guarantee
    assert isinstance(guarantee, PerfectPrivacy) and (guarantee.non_colluding, guarantee.of) == (0, 1)
    assert "whole map was downloaded" in guarantee.sentence
    guarantee = two(3)[0].guarantee
    assert isinstance(guarantee, PerfectPrivacy) and (guarantee.non_colluding, guarantee.of) == (1, 3)
    count, size = made().records.shape
    layout = Layout(records=count, size=size)
    nothing = np.zeros((layout.rows, 1408), dtype=np.uint32)
    exit = OneServer(layout=layout, seed=SEED, hint=nothing, transport=lambda messages: [])
    assert isinstance(exit.guarantee, ComputationalPrivacy)
    packed = Hintless(layout=hintless_layout(count, size), seed=SEED, transport=lambda messages: [])
    assert isinstance(packed.guarantee, ComputationalPrivacy) and "ring learning with errors" in packed.guarantee.sentence
    with pytest.raises(PirError, match="answers of"):
        packed.fetch([1])
    with pytest.raises(InputError, match="two servers"):
        TwoServers(records=count, size=size, transports=(Server(made().records),))


def test_the_region_is_read_once_whatever_is_wanted() -> None:
    reads: list[int] = []

    def read() -> np.ndarray:
        reads.append(1)
        return made().records

    exit = Region(read=read)
    for wanted in ([0], [1, 2], [0]):
        exit.fetch(wanted)
    assert reads == [1]


def test_answers_of_another_number_or_length_are_refused() -> None:
    count, size = made().records.shape
    for wrong in (
        lambda messages: [],
        lambda messages: [b"x" * (size - 1)] * len(messages),
        lambda messages: [b"x" * size] * 9,
    ):
        with pytest.raises(PirError, match="answers"):
            TwoServers(records=count, size=size, transports=(Server(made().records), wrong)).fetch([1, 2])


@pytest.mark.slow
def test_every_tile_of_a_thousand_arrives(unchecked: None) -> None:
    """A long street in more than 1,000 tiles, all of them fetched 32 at a time from two servers and from one, and proved."""
    long = cut(street("long", cameras=2048, density=3).scene, CutOptions(tile_bytes=500, axes=16, words=8, overlap=0.0))
    count, size = long.records.shape
    assert count > 1000
    layout = best_layout(count, size)
    matrix = one_server.arranged(long.records, layout)
    exits: list[Exit] = [
        TwoServers(records=count, size=size, transports=(Server(long.records), Server(long.records))),
        OneServer(
            layout=layout,
            seed=SEED,
            hint=one_server.hint(matrix, SEED),
            transport=lambda sent: one_server.answers(matrix, sent),
        ),
    ]
    for exit in exits:
        for start in range(0, count, 32):
            indices = list(range(start, min(start + 32, count)))
            for index, record in zip(indices, exit.fetch(indices), strict=True):
                assert record == long.records[index].tobytes()
                proved_tile(long.manifest, index, record)

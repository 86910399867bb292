"""Fetching tiles: a server's view is the same for all wanted tiles, for kept tiles, and after changes by the server."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import pytest
from scipy.stats import chi2

from veil.errors import PirError, RangeError
from veil.ldp.guarantee import PerfectPrivacy
from veil.pir import two_servers
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.exits import Region, TwoServers
from veil.tiles.fetching import Fetched, Fetcher, MemoryCache, proved_tile
from worlds.tile_streets import street


@cache
def made() -> CutMap:
    return cut(street("fetching", cameras=16).scene, CutOptions(tile_bytes=6000, words=8, asked=3))


class Watched:
    """An exit whose records may be changed, and that remembers which indices were asked for, as no server could."""

    guarantee = PerfectPrivacy(non_colluding=0, of=1, unit="session")

    def __init__(self, changed: Sequence[int] = ()) -> None:
        self.changed = set(changed)
        self.asked: list[list[int]] = []

    def fetch(self, indices: Sequence[int]) -> list[bytes]:
        self.asked.append(list(indices))
        records = [made().records[index].tobytes() for index in indices]
        return [
            bytes([record[0] ^ 1]) + record[1:] if i in self.changed else record
            for i, record in zip(indices, records, strict=True)
        ]


def test_wanted_tiles_come_proved_and_in_their_order() -> None:
    exit = Watched()
    fetched = Fetcher(made().manifest, exit).fetch([4, 1])
    assert [tile.index for tile in fetched.tiles] == [4, 1] and fetched.refused == {} and fetched.asked == 3
    (asked,) = exit.asked
    assert {4, 1} < set(asked) and len(set(asked)) == 3


@pytest.mark.parametrize("wanted", [[0, 0], [-1], [10**6], [0, 1, 2, 3]])
def test_what_cannot_be_wanted_is_refused_before_anything_is_sent(wanted: list[int]) -> None:
    exit = Watched()
    with pytest.raises(RangeError, match="can be wanted"):
        Fetcher(made().manifest, exit).fetch(wanted)
    assert exit.asked == []


def uniform_p(counts: Counter[int], places: Sequence[int]) -> float:
    """Probability that uniform draws spread as unevenly as these counts over the places, or more so."""
    observed = np.array([counts[place] for place in places])
    expected = observed.sum() / len(places)
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(places) - 1))


def test_dummies_and_their_places_are_uniform() -> None:
    """Statistics bounded on both sides. Broken twin: the first tiles that are not wanted as dummies."""
    exit, count = Watched(), len(made().manifest)
    fetcher = Fetcher(made().manifest, exit, draws=random.Random(5))
    for _ in range(3000):
        fetcher._asked_for([2])
    others = [index for index in range(count) if index != 2]
    dummies = Counter(index for asked in exit.asked for index in asked if index != 2)
    places = Counter(asked.index(2) for asked in exit.asked)
    assert 1e-4 < uniform_p(dummies, others) < 1 - 1e-4 and 1e-4 < uniform_p(places, range(3)) < 1 - 1e-4
    assert uniform_p(Counter(others[:2] * 3000), others) < 1e-9


# A server's view of a fetcher: the number of records of each fetch, in order.
View = list[int]
Run = Callable[[Watched, Sequence[Sequence[int]]], list[Fetched]]


def honest_run(exit: Watched, wishes: Sequence[Sequence[int]]) -> list[Fetched]:
    fetcher = Fetcher(made().manifest, exit, cache=MemoryCache())
    return [fetcher.fetch(wanted) for wanted in wishes]


def retrying_run(exit: Watched, wishes: Sequence[Sequence[int]]) -> list[Fetched]:
    """A broken twin that asks again for what was changed."""
    fetcher = Fetcher(made().manifest, exit)
    fetches = []
    for wanted in wishes:
        fetches.append(fetcher.fetch(wanted))
        if fetches[-1].refused:
            fetcher.fetch(list(fetches[-1].refused))
    return fetches


def saving_run(exit: Watched, wishes: Sequence[Sequence[int]]) -> list[Fetched]:
    """A broken twin that asks for nothing where all wanted tiles are kept."""
    cache = MemoryCache()
    version = made().manifest.version
    fetches = []
    for wanted in wishes:
        kept = all(cache.get(version, index) is not None for index in wanted)
        fetches.append(Fetcher(made().manifest, exit, cache=cache, offline=kept).fetch(wanted))
    return fetches


def bare_run(exit: Watched, wishes: Sequence[Sequence[int]]) -> list[Fetched]:
    """A broken twin without dummies."""
    fetches = []
    for wanted in wishes:
        tiles = tuple(
            proved_tile(made().manifest, index, record)
            for index, record in zip(wanted, exit.fetch(wanted), strict=True)
            if index not in exit.changed
        )
        fetches.append(Fetched(tiles=tiles, refused={}, asked=len(wanted)))
    return fetches


def views(run: Run) -> set[tuple[int, ...]]:
    """All that servers see over walks that want many, few and the same tiles, of servers that change no, some or all tiles."""
    walks = [[[0, 1, 2], [0, 1, 2], [3]], [[5], [5], [5]], [[0], [4, 5], [1, 2, 3]]]
    seen = set()
    for walk in walks:
        for changed in ([], [0], [5], range(len(made().manifest))):
            exit = Watched(changed)
            run(exit, walk)
            seen.add(tuple(len(asked) for asked in exit.asked))
    return seen


def test_the_server_sees_the_same_whatever_is_wanted_kept_or_changed() -> None:
    """Selective failure: a server that changes a tile sees nothing of whether it was wanted. Three broken twins are caught."""
    assert views(honest_run) == {(3, 3, 3)}
    for twin in (retrying_run, saving_run, bare_run):
        assert len(views(twin)) > 1


def answered(messages: Sequence[bytes], *, lies: bool, log: list[tuple[int, ...]]) -> list[bytes]:
    """Answers of one of two servers, changed if it lies, and in `log` the lengths of what it was sent."""
    log.append(tuple(map(len, messages)))
    answers = [two_servers.answer(made().records, message) for message in messages]
    return [bytes([answer[0] ^ 1]) + answer[1:] for answer in answers] if lies else answers


def test_the_attack_fails_against_two_servers() -> None:
    """One of two servers changes all its answers: all messages keep their number and length, and every change is noticed.

    Oracle: the lengths of what an honest server is sent for the same walk.
    """
    lengths = {}
    for lying in (False, True):
        sent: list[tuple[int, ...]] = []
        servers = (partial(answered, lies=lying, log=sent), partial(answered, lies=False, log=sent))
        exit = TwoServers(records=len(made().records), size=made().records.shape[1], transports=servers)
        fetcher = Fetcher(made().manifest, exit)
        fetches = [fetcher.fetch(wanted) for wanted in ([0, 1], [2], [0, 1])]
        assert [len(item.tiles) for item in fetches] == ([0, 0, 0] if lying else [2, 1, 2])
        assert [set(item.refused) for item in fetches] == ([{0, 1}, {2}, {0, 1}] if lying else [set()] * 3)
        lengths[lying] = sent
    assert lengths[True] == lengths[False]


def test_every_change_of_a_record_is_noticed_and_told() -> None:
    for place in (0, 100, made().manifest.tile_bytes - 1, made().manifest.tile_bytes, made().manifest.record_bytes - 1):

        class Liar(Watched):
            def fetch(self, indices: Sequence[int], place: int = place) -> list[bytes]:
                changed = [bytearray(record) for record in super().fetch(indices)]
                for record in changed:
                    record[place] ^= 4
                return [bytes(record) for record in changed]

        fetched = Fetcher(made().manifest, Liar()).fetch([1, 2])
        assert fetched.tiles == () and set(fetched.refused) == {1, 2}

    class Swapper(Watched):
        def fetch(self, indices: Sequence[int]) -> list[bytes]:
            return super().fetch([(index + 1) % len(made().manifest) for index in indices])

    assert set(Fetcher(made().manifest, Swapper()).fetch([1]).refused) == {1}

    class Short(Watched):
        def fetch(self, indices: Sequence[int]) -> list[bytes]:
            return [record[:-1] for record in super().fetch(indices)]

    assert "bytes came" in Fetcher(made().manifest, Short()).fetch([1]).refused[1]


def test_what_is_kept_stands_in_and_changes_nothing_that_is_asked() -> None:
    cache, honest = MemoryCache(), Watched()
    Fetcher(made().manifest, honest, cache=cache).fetch([1, 2])
    liar = Watched(range(len(made().manifest)))
    fetched = Fetcher(made().manifest, liar, cache=cache).fetch([1, 2])
    assert [tile.index for tile in fetched.tiles] == [1, 2] and set(fetched.refused) == {1, 2}
    assert [len(asked) for asked in liar.asked] == [3] and {1, 2} < set(liar.asked[0])
    cache.put(made().manifest.version, 1, b"damaged")
    assert Fetcher(made().manifest, Watched([1]), cache=cache).fetch([1]).tiles == ()
    cache.put("0" * 64, 1, b"of another version")
    assert cache.get(made().manifest.version, 2) is None


def test_offline_sends_nothing() -> None:
    cache, exit = MemoryCache(), Watched()
    Fetcher(made().manifest, Region(read=lambda: made().records), cache=cache).fetch([1])
    fetched = Fetcher(made().manifest, exit, cache=cache, offline=True).fetch([1])
    assert [tile.index for tile in fetched.tiles] == [1] and fetched.asked == 0
    missing = next(index for index in range(len(made().manifest)) if cache.get(made().manifest.version, index) is None)
    assert "not kept" in Fetcher(made().manifest, exit, cache=cache, offline=True).fetch([missing]).refused[missing]
    assert exit.asked == []


def test_a_fetch_that_fails_is_not_tried_again() -> None:
    class Away(Watched):
        def fetch(self, indices: Sequence[int]) -> list[bytes]:
            super().fetch(indices)
            raise PirError("the server is away")

    exit = Away()
    with pytest.raises(PirError, match="away"):
        Fetcher(made().manifest, exit).fetch([1])
    assert len(exit.asked) == 1

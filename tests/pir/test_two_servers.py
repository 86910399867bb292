"""Two or more servers: every record comes back, and what a server sees has one law for all of them."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import combinations, product

import numpy as np
import pytest

from veil.errors import PirError, RangeError
from veil.pir import two_servers
from worlds import generator
from worlds.power import require_even

Queries = Callable[[int, int, int], list[bytes]]


def database(records: int, size: int) -> np.ndarray:
    return generator(f"records {records} {size}").integers(0, 256, (records, size), dtype=np.uint8)


@pytest.mark.parametrize(("records", "size"), [(1, 1), (1, 0), (2, 3), (8, 16), (9, 5), (64, 33)])
@pytest.mark.parametrize("servers", [2, 3, 5])
def test_every_record_comes_back(records: int, size: int, servers: int) -> None:
    """Oracle: the records."""
    data = database(records, size)
    for index in range(records):
        answers = [two_servers.answer(data, query) for query in two_servers.queries(index, records, servers)]
        assert two_servers.decode(answers) == data[index].tobytes()


def test_every_record_of_a_thousand_comes_back_from_batches() -> None:
    """Oracle: the records; each server answers all queries in one pass, by one thread and by two."""
    data = database(1000, 2000)
    for threads in (1, 2):
        asked = [two_servers.queries(index, 1000) for index in range(1000)]
        answered = [two_servers.answers(data, [pair[server] for pair in asked], threads) for server in (0, 1)]
        assert [two_servers.decode(pair) for pair in zip(*answered, strict=True)] == [record.tobytes() for record in data]
    assert two_servers.answers(data, []) == []


class Every:
    """An `os.urandom` that gives each combination of bytes below `below` in turn."""

    def __init__(self, below: int, draws: int) -> None:
        self.all = list(product(range(below), repeat=draws))
        self.now: Iterator[int] = iter(())

    def __call__(self, size: int) -> bytes:
        assert size == 1
        return bytes([next(self.now)])


def views(queries: Queries, random: Every, index: int, records: int, servers: int) -> list[Counter[tuple[bytes, ...]]]:
    """For each set of all servers but one, the number of times that each view occurs, over all random bytes."""
    seen: list[Counter[tuple[bytes, ...]]] = [Counter() for _ in range(servers)]
    for draws in random.all:
        random.now = iter(draws)
        sent = queries(index, records, servers)
        for counter, colluding in zip(seen, combinations(sent, servers - 1), strict=True):
            counter[colluding] += 1
    return seen


def require_perfect(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the joint view of any servers but one is uniform for each index: all subsets, equally often."""
    for records, servers in ((1, 2), (3, 2), (3, 3), (2, 4), (5, 2)):
        random = Every(1 << records, servers - 1)
        monkeypatch.setattr(os, "urandom", random)
        for index in range(records):
            for seen in views(queries, random, index, records, servers):
                assert len(seen) == (1 << records) ** (servers - 1)
                assert set(seen.values()) == {1}


def test_servers_that_collude_but_for_one_see_uniform_subsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: enumeration of all random bytes, which is a proof for these sizes. Broken twins: a subset that always holds the
    record, one that never does, and the same subset to all servers but the last.
    """
    require_perfect(two_servers.queries, monkeypatch)

    def changed(change: Callable[[int, int], int]) -> Queries:
        def twin(index: int, records: int, servers: int) -> list[bytes]:
            sent = [int.from_bytes(query, "little") for query in two_servers.queries(index, records, servers)]
            biased = change(sent[0], index)
            sent[-1] ^= sent[0] ^ biased
            return [item.to_bytes(1, "little") for item in [biased, *sent[1:]]]

        return twin

    def repeated(index: int, records: int, servers: int) -> list[bytes]:
        sent = two_servers.queries(index, records, 2)
        return [sent[0]] * (servers - 1) + [sent[1]]

    for twin in (changed(lambda bits, index: bits | 1 << index), changed(lambda bits, index: bits & ~(1 << index)), repeated):
        with pytest.raises(AssertionError):
            require_perfect(twin, monkeypatch)


@pytest.mark.parametrize("index", [0, 4])
def test_views_are_even_with_the_systems_randomness(index: int) -> None:
    """Oracle: chi-square bounded on both sides over the 32 subsets of five records, at each of three servers."""
    sent = [two_servers.queries(index, 5, 3) for _ in range(20_000)]
    for server in range(3):
        require_even(np.bincount([queries[server][0] for queries in sent], minlength=32), sees=0.08)


@pytest.mark.parametrize("servers", [2, 3])
def test_servers_that_all_collude_learn_the_record(servers: int) -> None:
    """Limit of the scheme: the sum of all subsets is the wanted record alone."""
    for index in (0, 17, 99):
        subsets = [int.from_bytes(query, "little") for query in two_servers.queries(index, 100, servers)]
        assert reduce(operator.xor, subsets) == 1 << index


@pytest.mark.usefixtures("unchecked")
def test_an_integer_of_numpy_asks_for_its_record() -> None:
    """Oracle: the record. NumPy would shift a bit beyond the 64th out of its integer."""
    data = database(200, 3)
    answers = [two_servers.answer(data, query) for query in two_servers.queries(np.int64(150), 200)]  # type: ignore[arg-type]
    assert two_servers.decode(answers) == data[150].tobytes()


def test_padding_is_0_and_queries_never_repeat() -> None:
    sent = [query for _ in range(200) for query in two_servers.queries(9, 43)]
    assert {len(query) for query in sent} == {6}
    assert max(query[-1] for query in sent) < 8
    assert len(set(sent)) == len(sent)


@pytest.mark.parametrize(("index", "records", "servers"), [(-1, 3, 2), (3, 3, 2), (0, 0, 2), (0, 3, 1), (0, 3, 0)])
def test_questions_without_an_answer_are_refused(index: int, records: int, servers: int) -> None:
    with pytest.raises(RangeError, match=r"there is no record|needs two servers"):
        two_servers.queries(index, records, servers)


def test_hostile_queries_and_answers() -> None:
    data = database(9, 4)
    for query in (b"", b"\0", b"\0\0\0"):
        with pytest.raises(PirError, match="has 2 bytes"):
            two_servers.answer(data, query)
    with pytest.raises(PirError, match="padding must be 0"):
        two_servers.answer(data, b"\0\2")
    assert two_servers.answer(data, b"\0\1") == data[8].tobytes()
    for answers in ([], [b"abc"], [b"abc", b"ab"], [b"abc", b"abc", b""]):
        with pytest.raises(PirError, match="one length"):
            two_servers.decode(answers)
    assert two_servers.guarantee(3).of == 3

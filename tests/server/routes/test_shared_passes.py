"""Requests that come during a pass share the next one, and each gets its own answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from veil.server.jobs.processes import Busy
from veil.server.routes.tiles import SharedPasses


class Work:
    """Answers a query by its bytes in reverse, remembers each pass, and waits in the first one until it is let go."""

    def __init__(self) -> None:
        self.passes: list[list[bytes]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, queries: Sequence[bytes]) -> list[bytes]:
        self.passes.append(list(queries))
        self.begun.set()
        assert self.go.wait(10)
        return [query[::-1] for query in queries]


def asked(passes: SharedPasses, requests: Sequence[Sequence[bytes]], work: Work) -> list[list[bytes]]:
    """Answers to requests, of which all but the first come while the first is answered."""
    answers: dict[int, list[bytes]] = {}

    def ask(number: int) -> None:
        answers[number] = passes.answers(requests[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(requests))]
    threads[0].start()
    assert work.begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(passes._waiting) < len(requests):
        pass
    work.go.set()
    for thread in threads:
        thread.join()
    return [answers[number] for number in range(len(requests))]


def test_waiting_requests_share_a_pass() -> None:
    work = Work()
    requests = [[b"ab"], [b"cd", b"ef"], [b"gh"], [b"ij"]]
    answers = asked(SharedPasses(work), requests, work)
    assert answers == [[query[::-1] for query in request] for request in requests]
    assert len(work.passes) == 2 and sorted(work.passes[1]) == [b"cd", b"ef", b"gh", b"ij"]


def test_a_pass_has_no_more_queries_than_it_may() -> None:
    work = Work()
    requests = [[b"ab"], *([bytes([number, 0]), bytes([number, 1])] for number in range(5))]
    answers = asked(SharedPasses(work, most_queries=4), requests, work)
    assert answers == [[query[::-1] for query in request] for request in requests]
    assert [len(queries) for queries in work.passes] == [1, 4, 4, 2]


def test_too_many_are_told_to_come_again_and_a_failed_pass_blocks_nobody() -> None:
    def fails(queries: Sequence[bytes]) -> list[bytes]:
        if b"bad" in queries:
            raise ValueError("bad")
        return list(queries)

    passes = SharedPasses(fails, most_waiting=1)
    with pytest.raises(ValueError, match="bad"):
        passes.answers([b"bad"])
    assert passes.answers([b"good"]) == [b"good"]
    work = Work()
    full = SharedPasses(work, most_waiting=1)
    thread = threading.Thread(target=full.answers, args=([b"ab"],))
    thread.start()
    assert work.begun.wait(10)
    with pytest.raises(Busy):
        full.answers([b"cd"])
    work.go.set()
    thread.join()
    assert full.answers([b"cd"]) == [b"dc"]

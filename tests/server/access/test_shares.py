"""Shares, turns and pools by holder: who has most loses, and there is room for whoever comes next."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

import pytest

from veil.errors import StorageTrouble
from veil.server.access import shares
from veil.server.access.shares import Seats, Shares
from veil.server.http import connections, entrance
from veil.server.http.connections import GRACE_S, ConnectionPool
from veil.server.http.entrance import Turns
from veil.server.jobs import processes
from veil.server.jobs.processes import Busy, Worker, WorkerPool
from veil.server.routes import health
from veil.server.routes.health import Readiness
from worlds import server_tasks as tasks


def test_a_holder_has_no_more_than_is_free() -> None:
    """Fixed point of the law: n holders who take all they can have a part of n + 1 each, and as much is free."""
    for holders in (1, 2, 5):
        shares = Shares(60)
        while any([shares.take(f"holder {number}") for number in range(holders)]):
            pass
        held = [shares.held(f"holder {number}") for number in range(holders)]
        assert max(held) - min(held) <= 1 and abs(held[0] - 60 / (holders + 1)) <= 1, held
        assert shares.take("another one")
    shares.give("holder 0", shares.held("holder 0"))
    assert shares.held("holder 0") == 0 and shares.take("holder 0")


def test_amounts_are_bounded_and_nothing_costs_nothing() -> None:
    shares = Shares(100, least=3)
    assert shares.take("a", 50) and not shares.take("a", 1) and shares.take("a", 0)
    assert shares.take("b", 25) and shares.take("c", 25) and not shares.take("d", 1)
    shares.give("b", 25)
    assert shares.take("d", 3) and shares.take("d", 19)
    with pytest.raises(Busy, match="full"), shares.taken("a", 1, "full"):
        raise AssertionError("it was let in")
    lone = Shares(2, least=2)
    assert lone.take("a") and lone.take("a") and not lone.take("a")


def test_one_holder_cannot_fill_the_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tasks of one holder that wait: four sit, five are told, and another holder's runs at once."""
    monkeypatch.setattr(shares, "PAUSE_S", 0.01)
    go = threading.Event()

    async def all_of_them() -> None:
        seats = Seats(8, least=2)
        greedy = [asyncio.create_task(seats.run("greedy", go.wait, 30)) for _ in range(9)]
        done, waiting = await asyncio.wait(greedy, timeout=1.0)
        assert len(waiting) == 4 and all(isinstance(task.exception(), Busy) for task in done)
        assert await seats.run("modest", lambda: "served") == "served"
        go.set()
        assert all(await asyncio.gather(*waiting)) and seats.shares.held("greedy") == 0

    asyncio.run(all_of_them())


@pytest.mark.parametrize(("most", "each"), [(3, 2), (1, 1)])
def test_holders_come_in_by_turns(most: int, each: int) -> None:
    """A hundred requests of one and three of another: these are among the first that come in; nobody has more than `each`."""

    async def all_of_them() -> list[str]:
        turns, order, inside = Turns(most=most, each=each, rate=1e6, burst=1000), [], Counter[str]()

        async def ask(holder: str) -> None:
            await turns.take(holder)
            order.append(holder)
            inside[holder] += 1
            assert inside[holder] <= each and inside.total() <= most
            await asyncio.sleep(0)
            inside[holder] -= 1
            turns.give(holder)

        await asyncio.gather(*(ask("greedy") for _ in range(100)), *(ask("modest") for _ in range(3)))
        return order

    order = asyncio.run(all_of_them())
    assert len(order) == 103 and [at for at, name in enumerate(order) if name == "modest"][-1] < 12


def test_turns_have_a_rate_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst of five, a hundred a second: eleven take 0.06 s at least. Who does not come in is Busy."""
    monkeypatch.setattr(entrance, "TURN_S", 0.05)

    async def paced() -> float:
        turns, begun = Turns(most=100, each=100, rate=100.0, burst=5), time.monotonic()
        monkeypatch.setattr(entrance, "TURN_S", 10.0)
        await asyncio.gather(*(turns.take("a") for _ in range(11)))
        return time.monotonic() - begun

    async def ended() -> None:
        turns = Turns(most=1, each=1, rate=1e6, burst=10)
        await turns.take("a")
        with pytest.raises(Busy):
            await turns.take("b")
        turns.give("a")
        await turns.take("b")

    asyncio.run(ended())
    assert asyncio.run(paced()) >= 0.055


@dataclass(eq=False)
class Held:
    """A connection that is none."""

    is_asked: bool = False
    since: float = 0.0
    lost: bool = field(default=False)

    def lose(self) -> None:
        self.lost = True


def test_who_has_most_connections_loses_one() -> None:
    """A hundred of one address, then one of another: it stays, and of the hundred the longest idle goes first."""
    pool = ConnectionPool(100, spare=0)
    greedy = [Held(is_asked=number < 5, since=float(number)) for number in range(100)]
    for item in greedy:
        pool.add("greedy", item, 200.0)
    modest = Held(since=300.0)
    pool.add("modest", modest, 300.0)
    assert not modest.lost and [at for at, item in enumerate(greedy) if item.lost] == [5]
    for number in range(150):
        pool.add("greedy", Held(since=301.0 + number), 301.0 + number)
    assert not modest.lost and pool.count("greedy") == 99 and pool.count("modest") == 1
    assert sum(item.lost for item in greedy[:5]) == 0 and all(item.lost for item in greedy[5:])
    pool.remove(modest)
    pool.remove(modest)
    assert pool.count("modest") == 0


def test_a_connection_counts_for_its_last_holder_and_has_a_moment() -> None:
    pool = ConnectionPool(2, spare=2)
    first = Held()
    pool.add("address", first, 0.0)
    pool.add("token", first, 0.0)
    assert (pool.count("address"), pool.count("token")) == (0, 1)
    more = [Held() for _ in range(3)]
    for item in more:
        pool.add("address", item, 0.5 * GRACE_S)
    assert not any(item.lost for item in [first, *more])  # within the spare ones, as they are young
    pool.add("address", Held(since=2 * GRACE_S), 2 * GRACE_S)
    assert [item.lost for item in more] == [True, True, True] and not first.lost


def test_of_those_who_hold_as_much_the_newcomer_is_not_the_loser() -> None:
    """Two that wait for an answer for long, two of another that came just now: one of the first goes, though it is further."""
    pool = ConnectionPool(3, spare=0)
    old, young = [Held(is_asked=True, since=0.0) for _ in "ab"], [Held(since=10.0) for _ in "ab"]
    for name, item in zip(["greedy", "greedy", "modest", "modest"], [*old, *young], strict=True):
        pool.add(name, item, 10.0)
    assert sum(item.lost for item in old) == 1 and not any(item.lost for item in young)
    pool, old = ConnectionPool(3, spare=0), [Held(is_asked=True, since=0.0) for _ in "ab"]
    for name, item in zip(["greedy", "greedy", "modest", "modest"], [*old, *young], strict=True):
        pool.add(name, item, 10.0 + 2 * GRACE_S)  # a server that is slow to hear them
    assert sum(item.lost for item in old) == 1 and not any(item.lost for item in young)


def test_a_process_with_fewer_files_has_fewer_connections() -> None:
    """Connections and spares of a process take 0.5 to 0.6 of its files, for limits of 512 to 65,536 files."""
    for files in (512, 1024, 4096, 65536):
        pools = connections.Pools.of(files)
        most = pools.of_tokens._most + pools.of_addresses._most + pools.of_addresses._spare
        assert 0.5 * min(files, connections.FILES) < most < 0.6 * min(files, connections.FILES)


@pytest.mark.slow
def test_waiting_tasks_are_done_in_turn_by_whose_they_are() -> None:
    """Ten tasks of one wait for one process; those of two others come later and are done before its second. Broken twin: all of
    one name are done as they came."""

    def order(names: dict[str, str]) -> list[str]:
        pool, done, lock = WorkerPool(1, waiting=20), [], threading.Lock()

        def ask(name: str) -> None:
            pool.call(tasks.sleep, 0.05, deadline_s=30.0, whose=names[name])
            with lock:
                done.append(name)

        try:
            pool.warm(tasks.pid)
            threads = [threading.Thread(target=ask, args=(name,)) for name in ["greedy"] * 10 + ["b", "c"]]
            for thread in threads:
                thread.start()
                while not (pool._working or pool._waiting):
                    time.sleep(0.001)
            for thread in threads:
                thread.join()
        finally:
            pool.close()
        assert not pool._waiting and not pool._working
        return done

    fair = order({"greedy": "greedy", "b": "b", "c": "c"})
    assert max(fair.index("b"), fair.index("c")) <= 4
    assert min((unfair := order({"greedy": "", "b": "", "c": ""})).index("b"), unfair.index("c")) >= 8


def test_next_is_whoever_has_the_fewest_processes() -> None:
    """Planted: who waits longer has one process already, the other none."""
    pool, seats = WorkerPool(3), [queue.SimpleQueue[Worker]() for _ in range(2)]
    pool._free, pool._working = pool.workers[:1], Counter({"greedy": 1})
    pool._waiting = OrderedDict(greedy=deque(seats[:1]), modest=deque(seats[1:]))
    pool._hand_over()
    assert seats[0].empty() and seats[1].get_nowait() is pool.workers[0] and list(pool._waiting) == ["greedy"]


@pytest.mark.slow
def test_one_process_is_kept_from_who_has_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two processes one name has both while it is alone, and one once another has asked; the other's task finds one free."""
    pool = WorkerPool(2, waiting=20)
    stop, most = threading.Event(), [0]

    def ask() -> None:
        while not stop.is_set():
            pool.call(tasks.sleep, 0.02, deadline_s=30.0, whose="greedy")

    def seen() -> int:
        most[0] = 0
        for _ in range(100):
            most[0] = max(most[0], pool._working["greedy"])
            time.sleep(0.005)
        return most[0]

    threads = [threading.Thread(target=ask) for _ in range(6)]
    try:
        pool.warm(tasks.pid)
        for thread in threads:
            thread.start()
        assert seen() == 2
        assert pool.call(tasks.double, 4, deadline_s=30.0, whose="modest") == 8
        time.sleep(0.3)
        assert seen() == 1 and len(pool._free) == 1
        monkeypatch.setattr(processes, "COMPANY_S", 0.1)
        assert seen() == 2
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        pool.close()
    assert not pool._waiting and not pool._working


def test_readiness_is_looked_at_once_a_second_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty who ask at once cost one look; what it raises they all hear; a look that hangs is an answer, too."""
    looked, go, wrong = [0], threading.Event(), [False]

    def look() -> None:
        looked[0] += 1
        assert go.wait(10)
        if wrong[0]:
            raise StorageTrouble("away")

    async def all_of_them() -> None:
        go.set()
        ready = Readiness(look)
        await asyncio.gather(*(ready.look() for _ in range(50)))
        assert looked[0] == 1
        monkeypatch.setattr(health, "KEPT_S", -1.0)
        wrong[0] = True
        with pytest.raises(StorageTrouble, match="away"):
            await ready.look()
        monkeypatch.setattr(health, "LOOK_S", 0.05)
        go.clear()
        for _ in range(3):
            with pytest.raises(StorageTrouble, match="does not answer"):
                await ready.look()
        assert looked[0] == 3
        go.set()

    asyncio.run(all_of_them())

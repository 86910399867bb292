"""Properties of every engine: results of map, errors that name items, lost workers, shared values, laziness, cancellation."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veil.codebooks.shards import train_sharded
from veil.engine import Engine, check_engine, open_engine
from veil.engine.local import LocalEngine
from veil.errors import Cancelled, EngineError, InputError, RangeError, Remedy, TaskError
from worlds import engine_tasks as tasks
from worlds.shards import Rows


@pytest.fixture(scope="module", params=["here", "local", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """One engine of each kind: tasks in this process, in two local ones, and in a Dask cluster of two."""
    if request.param == "dask":
        pytest.importorskip("distributed", reason="Dask is not installed: pip install 'veil[cluster]'")
    with open_engine("dask" if request.param == "dask" else "local", workers=1 if request.param == "here" else 2) as opened:
        yield opened


@pytest.fixture
def apart(engine: Engine) -> Engine:
    """Engines whose tasks run in other processes."""
    if engine.workers == 1:
        pytest.skip("with one worker, tasks run in this process")
    return engine


def running(folder: Path) -> list[int]:
    """Processes noted in a folder that have not ended."""
    return [pid for pid in (int(path.name[4:]) for path in folder.glob("pid-*")) if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_results_are_those_of_map(engine: Engine) -> None:
    """Second method: the built-in map. Progress counts every result once."""
    told: list[tuple[int, int]] = []
    results = list(engine.map(tasks.square, range(12), progress=lambda done, total: told.append((done, total))))
    assert sorted(results) == list(enumerate(map(tasks.square, range(12))))
    assert told == [(done, 12) for done in range(1, 13)]
    assert list(engine.map(tasks.square, [])) == []
    assert list(engine.map(tasks.square, [7])) == [(0, 49)]


@pytest.mark.slow
def test_a_result_comes_as_soon_as_it_is_there(apart: Engine) -> None:
    """Planted: the first item takes far longer than the others, and does not hold them up."""
    arrived = [index for index, _ in apart.map(tasks.slow_square, [(0, 0.2), (1, 0.0), (2, 0.0)])]
    assert arrived[-1] == 0
    assert sorted(arrived) == [0, 1, 2]


@pytest.mark.slow
def test_an_error_names_the_item_and_keeps_its_kind(engine: Engine) -> None:
    """Planted: item 3 of a thousand is refused; what is not needed any more is not begun."""
    with pytest.raises(TaskError, match=r"refuse_three of 3 failed: ValueError: three is refused .*engine_tasks\.py") as caught:
        list(engine.map(tasks.refuse_three, range(1000)))
    assert isinstance(caught.value.__cause__, ValueError)
    assert sorted(engine.map(tasks.square, range(3))) == [(0, 0), (1, 1), (2, 4)]


def test_what_cannot_travel_is_an_error_and_no_hang(apart: Engine) -> None:
    """Planted: an error that cannot be unpickled, a result and a task that cannot be pickled."""
    with pytest.raises(TaskError, match=r"awkward of 1 failed: .*1 and 2"):
        list(apart.map(tasks.awkward, [1, 1]))
    with pytest.raises(TaskError, match="a result cannot be sent back"):
        list(apart.map(tasks.untold, [1, 1]))
    with pytest.raises(InputError, match="cannot be sent to a worker"):
        apart.map(lambda item: item, [1, 2])
    with pytest.raises(InputError, match="items must be small and picklable"):
        list(apart.map(tasks.square, [lambda: 1, lambda: 2]))


def test_an_error_keeps_cause_facts_and_remedy(engine: Engine) -> None:
    """Planted: an error of veil, one with a fact that cannot be pickled, and one of a class that only its process has."""
    for task, item, facts in ((tasks.advise, 1, True), (tasks.advise, 2, engine.workers == 1), (tasks.advise_here, 1, True)):
        with pytest.raises(TaskError) as caught:
            list(engine.map(task, [item, item]))
        error, cause = caught.value, caught.value.__cause__
        assert isinstance(cause, InputError) and cause.cause == "it is too small"
        assert error.remedy == cause.remedy == (Remedy("raise", "advise.item", "3"),)
        assert error.cause.startswith(f"{task.__name__} of {item} failed: ") and "give a larger" not in error.cause
        assert error.facts == cause.facts and error.facts.get("number") == (item if facts else None)


@pytest.mark.slow
def test_a_killed_worker_costs_only_what_it_was_at(apart: Engine, tmp_path: Path) -> None:
    """Planted: the first call for number 2 kills its process with signal 9. All results come; 2 was called twice."""
    items = [(number, str(tmp_path)) for number in range(6)]
    assert sorted(apart.map(tasks.killed_once, items)) == [(number, number) for number in range(6)]
    calls = Counter(map(int, (tmp_path / "calls").read_text().split()))
    assert set(calls) == set(range(6))
    assert calls[2] == 2
    assert calls.total() <= 8  # of Dask: beside the killed call, results that a lost worker had not handed over


@pytest.mark.slow
def test_a_task_that_always_kills_ends_with_its_name(apart: Engine, tmp_path: Path) -> None:
    """Planted: number 1 kills its process each time. It is begun three times, then named; results before that came.

    Dask counts the end of a worker against all tasks that wait there. Where both wait on one it may name the other one.
    """
    items = [(number, str(tmp_path)) for number in range(2)]
    results: list[int] = []
    named, first = (r"\(1, ", [[0]]) if isinstance(apart, LocalEngine) else (r"\([01], ", [[0], []])
    with pytest.raises(EngineError, match=rf"always_killed of {named}.*ended its worker.* 3 times"):
        for index, _ in apart.map(tasks.always_killed, items):
            results.append(index)
    calls = Counter(map(int, (tmp_path / "calls").read_text().split()))
    assert calls[1] == 3
    assert results in first


@pytest.mark.slow
def test_shared_values_follow_the_item_and_are_read_only(engine: Engine) -> None:
    """Planted: a table and an offset, in tasks of every worker; released values are refused."""
    table = np.arange(1000) ** 2
    with engine.scatter(table) as first, engine.scatter(5) as second:
        results = list(engine.map(tasks.weighed, range(20), shared=(first, second)))
        assert sorted((index, value) for index, (value, _, _) in results) == [(i, i * i + 5) for i in range(20)]
        assert not any(writeable for _, (_, _, writeable) in results)
    table[0] = 1  # the caller's own array is as it was
    with pytest.raises(InputError, match="released"):
        engine.map(tasks.weighed, range(2), shared=(first, second))


def test_a_shared_value_is_sent_to_each_worker_once(apart: Engine, tmp_path: Path) -> None:
    """Counts: each worker unpickles the value once, in however many calls it is named. (On Dask, views are made for each.)"""
    if not isinstance(apart, LocalEngine):
        pytest.skip("Dask's workers keep the bytes")
    with apart.scatter(tasks.Loaded(str(tmp_path))) as value:
        used = Counter(process for _, process in apart.map(tasks.process_of, range(12), shared=(value,)))
    assert Counter(map(int, (tmp_path / "loaded").read_text().split())) == Counter(list(used))
    assert used.total() == 12


@pytest.mark.slow
def test_items_are_drawn_as_workers_become_free(engine: Engine) -> None:
    """Bound: of endless items, no more are drawn than results were taken, plus two for each worker."""
    drawn: list[int] = []

    def items() -> Iterator[int]:
        while True:
            drawn.append(len(drawn))
            yield drawn[-1]

    results = engine.map(tasks.square, items())
    for taken in range(1, 15):
        next(results)
        assert len(drawn) <= taken + 2 * engine.workers
    results.close()  # type: ignore[attr-defined]
    assert sorted(engine.map(tasks.square, range(2))) == [(0, 0), (1, 1)]


@pytest.mark.slow
def test_a_closed_iterator_leaves_nothing_running(apart: Engine, tmp_path: Path) -> None:
    """Planted: tasks that sleep for ten minutes. Their processes are gone after the iterator is closed."""
    results = apart.map(tasks.begun, [(number, str(tmp_path)) for number in range(50)])
    assert next(results) == (0, 0)
    until = time.monotonic() + 20
    while not list(tmp_path.glob("pid-*")) and time.monotonic() < until:
        time.sleep(0.02)
    assert running(tmp_path)
    results.close()  # type: ignore[attr-defined]
    while running(tmp_path) and time.monotonic() < until:
        time.sleep(0.02)
    begun = len(list(tmp_path.glob("pid-*")))
    assert running(tmp_path) == []
    assert 1 <= begun <= 2
    if isinstance(apart, LocalEngine):  # its tasks are told to end before they are killed, and remove what they began
        assert not list(tmp_path.glob("held-*"))
    assert sorted(apart.map(tasks.square, range(3))) == [(0, 0), (1, 1), (2, 4)]
    assert len(list(tmp_path.glob("pid-*"))) == begun


def test_cancel_ends_the_map(engine: Engine) -> None:
    """Planted: `cancel` at the third of endless results; the iterator then raises, and the engine can be used again."""

    def stop(done: int, total: int) -> None:
        if done == 3:
            engine.cancel()

    results: list[int] = []
    with pytest.raises(Cancelled):
        for index, _ in engine.map(tasks.square, iter(int, 1), progress=stop):
            results.append(index)
    assert 3 <= len(results) <= 3 + engine.workers
    assert list(engine.map(tasks.square, [3])) == [(0, 9)]


def test_one_map_runs_at_a_time(engine: Engine) -> None:
    """Planted: a second map inside of the first, whose results go on."""
    outer = engine.map(tasks.square, range(3))
    first = next(outer)
    with pytest.raises(EngineError, match="one map runs at a time"):
        list(engine.map(tasks.square, range(3)))
    assert sorted([first, *outer]) == [(0, 0), (1, 1), (2, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["", "dusk", "local:2", "dask:", "dask:host", "dask:host:0", "dask:host:99999", "dask:ftp://h:1"]
)
def test_other_texts_are_refused(text: str) -> None:
    """Planted: texts that name no engine, or no address; those that do are told apart without a connection."""
    with pytest.raises(InputError, match=r"engine"):
        open_engine(text)
    assert check_engine("dask:tcp://10.0.0.5:8786") == "dask:tcp://10.0.0.5:8786"
    assert check_engine("dask:[::1]:8786") == "dask:[::1]:8786"
    with pytest.raises(RangeError, match="workers"):
        open_engine("local", workers=0)


@pytest.mark.slow
def test_tasks_run_elsewhere_or_here_as_promised(engine: Engine) -> None:
    """Definition: with one worker, this process; with two, other processes of one thread each, in BLAS and OpenMP too."""
    results = [result for _, result in engine.map(tasks.settings, range(4))]
    if engine.workers == 1:
        assert {(process, threads) for process, threads, _ in results} == {(os.getpid(), 1)}
    else:
        assert os.getpid() not in {process for process, _, _ in results}
        assert {threads for _, threads, _ in results} == {1}
        assert set().union(*(pools for _, _, pools in results)) == {1}


@pytest.mark.slow
def test_words_of_kmeans_have_the_same_bits_on_every_engine(apart: Engine) -> None:
    """Second method: the same shards in this process, one after the other. Broken twin: other shards give other bits."""
    parts = [Rows(seed=seed, count=300) for seed in range(7)]
    with open_engine("local", workers=1) as engine:
        here = train_sharded(parts, 50, iterations=3, engine=engine)
    there = train_sharded(parts, 50, iterations=3, engine=apart)
    assert here.tobytes() == there.tobytes()
    other = train_sharded([*parts[1:], parts[0]], 50, iterations=3, engine=apart)
    assert here.tobytes() != other.tobytes()

"""Dask: a scheduler and two workers as processes of their own, killed one after the other, and clear errors in bounded time."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from veil.engine import open_engine
from veil.errors import EngineError, InputError
from worlds import engine_tasks as tasks
from worlds.ports import free_port

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'veil[cluster]'")

from veil.engine import dask_cluster, dask_engine, dask_worker  # noqa: E402  (needs Dask)
from veil.engine.task import Call, Failed, PackedValue  # noqa: E402

Process = subprocess.Popen[bytes]


def started(program: str, *words: str) -> Process:
    """A process of Dask's own command line, on 127.0.0.1."""
    places = os.pathsep.join(place for place in sys.path if place)
    command = [sys.executable, "-m", f"distributed.cli.{program}", *words, "--host", "127.0.0.1", "--no-dashboard"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": places}, stdout=quiet, stderr=quiet)


def worker(address: str) -> Process:
    """A worker with one thread and nobody who starts it anew."""
    return started("dask_worker", address, "--nthreads", "1", "--no-nanny")


@pytest.fixture
def cluster() -> Iterator[tuple[str, Process, list[Process]]]:
    """The address of a scheduler, its process, and those of two workers."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = started("dask_scheduler", "--port", str(port), "--dashboard-address", "127.0.0.1:0")
    workers = [worker(address) for _ in range(2)]
    yield address, scheduler, workers
    for each in (scheduler, *workers):
        each.kill()
        each.wait()


@pytest.mark.slow
def test_a_scheduler_and_two_workers_of_which_any_may_be_killed(
    cluster: tuple[str, Process, list[Process]], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a worker is killed with signal 9, then the scheduler. All results come; then an error within seconds.

    A shared value reaches both workers, tasks of another veil are refused by name, and nothing of Dask's logs is printed.
    """
    address, scheduler, workers = cluster
    with open_engine(f"dask:{address}") as engine:
        until = time.monotonic() + 20
        while engine.workers < 2 and time.monotonic() < until:
            engine._cluster.look()  # type: ignore[attr-defined]  # again, and now
            time.sleep(0.05)
        with engine.scatter(np.arange(100) ** 2) as table, engine.scatter(7) as offset:
            weighed = dict(engine.map(tasks.weighed, range(20), shared=(table, offset)))
            processes = {process for _, process, _ in weighed.values()}
            assert processes == {each.pid for each in workers}
            results = engine.map(tasks.slow_weighed, range(20), shared=(table, offset))
            first = [next(results), next(results)]
            workers[0].kill()
            assert sorted([*first, *results]) == [(i, i * i + 7) for i in range(20)]
        with monkeypatch.context() as other:
            other.setattr(dask_engine.Sender, "here", classmethod(lambda cls: cls(veil="0.0.9", python=("3", "1"))))
            with pytest.raises(EngineError, match=r"tasks come from veil 0\.0\.9 on Python 3\.1; install the same"):
                list(engine.map(tasks.square, range(3)))
            with pytest.raises(EngineError, match=r"worker at tcp://.* does not have veil 0\.0\.9"):
                open_engine(f"dask:{address}")
        waiting = engine.map(tasks.slow_square, [(0, 0.0), (1, 30.0), (2, 30.0)])
        assert next(waiting) == (0, 0)
        scheduler.kill()
        begun = time.monotonic()
        with pytest.raises(EngineError, match=r"connection to the Dask scheduler .* was lost; start it again"):
            list(waiting)
        with pytest.raises(EngineError, match="was lost"):
            list(engine.map(tasks.square, range(3)))
        assert time.monotonic() - begun < 10
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_or_has_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a port that nobody listens on, then a scheduler without workers: errors within the stated times."""
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.3)
    begun = time.monotonic()
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1"):
        open_engine(f"dask:tcp://127.0.0.1:{free_port()}")
    assert time.monotonic() - begun < 5
    monkeypatch.setattr(dask_cluster, "NO_WORKERS_S", 0.3)
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 5.0)
    settings = {"n_workers": 0, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as empty, open_engine(f"dask:{empty.scheduler_address}") as engine:
        with pytest.raises(EngineError, match="has had no worker"):
            list(engine.map(tasks.square, range(3)))
        assert engine.workers == 1


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a Python in which `import distributed` fails. Other engines work there."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    for module in ("dask_cluster", "dask_engine"):
        monkeypatch.delitem(sys.modules, f"veil.engine.{module}")
    with pytest.raises(InputError, match=r"pip install 'veil\[cluster\]'"):
        open_engine("dask", workers=2)
    with open_engine("local", workers=1) as engine:
        assert list(engine.map(tasks.square, [3])) == [(0, 9)]


def test_a_call_of_another_version_is_refused_by_the_worker() -> None:
    """Planted: a sender of the next version, and one of this version as the twin that is served."""
    packed = Call(index=0, task=tasks.weighed, item=3, keys=()).packed()
    here = dask_worker.Sender.here()
    outcome = pickle.loads(dask_worker.run_call(("99.0", here.python), packed, ()))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, EngineError)
    assert "tasks come from veil 99.0" in str(outcome.error)
    for key, value in (("a", np.arange(5)), ("b", 1)):
        dask_worker.KeptValue(key, PackedValue.of(value)).setup(None)
    served = pickle.loads(dask_worker.run_call((here.veil, here.python), packed, ("a", "b")))
    assert served.result == (4, os.getpid(), False)
    dask_worker._values.clear()


def test_a_shared_value_that_does_not_come_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a key that no plugin brought."""
    monkeypatch.setattr(dask_worker, "_VALUE_S", 0.0)
    here = dask_worker.Sender.here()
    packed = Call(index=0, task=tasks.weighed, item=3, keys=("gone",)).packed()
    outcome = pickle.loads(dask_worker.run_call((here.veil, here.python), packed, ("gone",)))
    assert "did not reach the worker" in str(outcome.error)

"""Code that runs on Dask's workers: one packed call, and the shared values that a plugin keeps there."""

from __future__ import annotations

import pickle
import platform
import time
from dataclasses import dataclass

from distributed.diagnostics.plugin import WorkerPlugin

from veil.engine.task import Failed, PackedValue, perform_packed
from veil.errors import EngineError
from veil.version import __version__

# How long a call waits for a shared value that is still on its way to its worker.
_VALUE_S = 60.0
_values: dict[str, PackedValue] = {}


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The versions of veil and Python that sent a call."""

    veil: str
    python: tuple[str, str]

    @classmethod
    def here(cls) -> Sender:
        """The versions of this process."""
        major, minor, _ = platform.python_version_tuple()
        return cls(veil=__version__, python=(major, minor))

    def __str__(self) -> str:
        return f"veil {self.veil} on Python {'.'.join(self.python)}"


class KeptValue(WorkerPlugin):
    """A plugin of Dask's workers, running and future ones, by which each is sent a shared value once."""

    def __init__(self, key: str, packed: PackedValue) -> None:
        self.name = key
        self._packed = packed

    def setup(self, worker: object) -> None:
        """Keep the value on a worker."""
        _values[self.name] = self._packed

    def teardown(self, worker: object) -> None:
        """Forget it."""
        _values.pop(self.name, None)


def run_call(sender: tuple[str, tuple[str, str]], packed: bytes, keys: tuple[str, ...]) -> bytes:
    """Result of a call (`veil.engine.task.perform_packed`), if this worker has the sender's versions."""
    from veil.threads import settle

    settle()
    try:
        theirs, here = Sender(veil=sender[0], python=sender[1]), Sender.here()
        if theirs != here:
            raise EngineError(
                f"the worker on {platform.node()} has {here}, and the tasks come from {theirs}; install the same everywhere"
            )
        values = [_value(key).value() for key in keys]
    except Exception as error:
        return pickle.dumps(Failed(error=error, trace=""), protocol=5)
    return perform_packed(packed, values)


def _value(key: str) -> PackedValue:
    """A shared value of this worker, waited for if it is on its way."""
    until = time.monotonic() + _VALUE_S
    while key not in _values:
        if time.monotonic() > until:
            raise EngineError(f"a shared value did not reach the worker on {platform.node()} within {_VALUE_S:.0f} s")
        time.sleep(0.05)
    return _values[key]

"""Where tasks run: `open_engine("local")` on this machine, `"dask"` and `"dask:ADDRESS"` on Dask (docs/reference/engine.md).

`protocol` is what every engine does, `task` one call. `local` runs tasks in `processes`, whose program is `worker`.
`dask_engine` runs them by `dask_cluster` on machines, where `dask_worker` receives them.
"""

from __future__ import annotations

import re

from veil.engine.protocol import Engine, Shared
from veil.engine.task import task_threads
from veil.errors import InputError, RangeError

__all__ = ["ENGINES", "Engine", "Shared", "check_engine", "open_engine", "task_threads"]

ENGINES = "local, dask or dask:ADDRESS"
# A host by name or number, or an IPv6 address in brackets, and a port; over TCP unless another way is named.
_ADDRESS = re.compile(r"(?:(?:tcp|tls)://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", re.ASCII)


def check_engine(text: str) -> str:
    """The text, if it names an engine. Raises InputError if it does not; nothing is started or connected."""
    if text in ("local", "dask"):
        return text
    kind, _, address = text.partition(":")
    if kind != "dask":
        raise InputError(f"engine must be {ENGINES}, got {text!r}")
    match = _ADDRESS.fullmatch(address)
    if not match or not 0 < int(match[1]) < 65536:
        raise InputError(f"engine {text!r} needs the address of a Dask scheduler, as in dask:tcp://10.0.0.5:8786")
    return text


def open_engine(text: str = "local", *, workers: int | None = None) -> Engine:
    """Open the engine that `text` names; close it after use, or use it in a `with`.

    - `text`: "local": processes of this machine (`veil.engine.local`). "dask": a Dask cluster on this machine, made here and
      ended with the engine. "dask:ADDRESS": a Dask scheduler that runs already, as "dask:tcp://10.0.0.5:8786".
    - `workers`: number of worker processes; by default one for each core. A scheduler that runs already has its own: then it is
      not used.

    Raises InputError for another text and where Dask is not installed, RangeError for less than one worker, and EngineError for
    a scheduler that cannot be reached.
    """
    check_engine(text)
    if workers is not None and workers < 1:
        raise RangeError(f"workers must be at least 1, got {workers!r}")
    if text == "local":
        from veil.engine.local import LocalEngine

        return LocalEngine(workers)
    from veil.engine.dask_engine import DaskEngine

    return DaskEngine.start(workers) if text == "dask" else DaskEngine.connect(text.partition(":")[2])

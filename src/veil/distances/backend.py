"""Choice of the backend that computes distances: by name, by the environment, or by what this machine can run.

Where "auto" was asked for and the compiler fails, NumPy computes instead.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Literal, TypeVar

from veil.distances.cpu import candidates
from veil.distances.cpu import compile as compiler
from veil.distances.sets import FeatureSet, dimension
from veil.errors import RangeError, VeilError, VeilWarning

Backend = Literal["auto", "reference", "numpy", "cpu", "gpu"]
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "numpy", "cpu", "gpu")
# The environment variable that names the backend which "auto" uses, where that one serves the dimensions.
PREFERRED = "VEIL_BACKEND"
Result = TypeVar("Result")
# Reasons why NumPy computes in the place of the compiled kernel that this process has warned of: one warning for each.
_warned: set[str] = set()


def resolve(backend: str, left_m: int = 1, right_m: int = 1, dim: int = 128) -> Backend:
    """Name of the backend that will compute distances between sets of these dimensions; a named one is never replaced.

    `backend` is one of `BACKENDS`. "cpu" is the kernel compiled for this processor. "gpu" compares all pairs on a graphics
    processor and decides between candidates on this one. "numpy" needs nothing but NumPy, "reference" is float64 and slow.
    "auto" is the backend that the environment variable VEIL_BACKEND names, else "cpu", where that serves these dimensions, and
    "numpy" elsewhere; it never chooses a graphics processor on its own. Where the compiler then fails on a kernel, "auto"
    computes with "numpy" after all and warns once (`VeilWarning`).

    `left_m` and `right_m` are the dimensions of the subspaces of both sets (0: points), `dim` is the length of a descriptor.
    Returns one of `BACKENDS`, never "auto". Raises RangeError if `backend` or VEIL_BACKEND is no name of a backend, and
    VeilError if the backend that either names cannot run on this machine or, for `backend`, does not serve these dimensions.
    """
    name, source = (os.environ.get(PREFERRED, "auto"), PREFERRED) if backend == "auto" else (backend, "backend")
    for known in BACKENDS:
        if name == known:
            break
    else:
        raise RangeError(f"{source} must be one of {', '.join(map(repr, BACKENDS))}, got {name!r}")
    if known in ("reference", "numpy"):
        return known
    candidate: Backend = "cpu" if known == "auto" else known
    obstacle, refusal = _refusals(candidate, left_m, right_m, dim)
    if not (obstacle or refusal):
        return candidate
    if backend == "auto" and (known == "auto" or not obstacle):
        return "numpy"
    raise VeilError(f"backend {candidate!r} cannot serve: {refusal or obstacle}")


def _refusals(backend: Backend, left_m: int, right_m: int, dim: int) -> tuple[str | None, str | None]:
    """Reason why a backend cannot run on this machine, and reason why it does not serve these dimensions; None: it does."""
    obstacle, refusal = compiler.obstacle(), candidates.refusal(left_m, right_m, dim)
    if backend == "gpu":
        from veil.distances.gpu import device

        obstacle, refusal = obstacle or device.obstacle(), refusal or device.refusal(left_m, right_m)
    return obstacle, refusal


def served(backend: Backend, sets: tuple[FeatureSet, FeatureSet], work: Callable[[Backend], Result]) -> Result:
    """Result of `work` with the backend that `resolve` chooses for these sets.

    With "auto" NumPy computes where the compiler fails; a warning (`VeilWarning`) says so once for each reason.
    """
    m, n = (dimension(side) for side in sets)
    chosen = resolve(backend, m, n, sets[0][0].shape[1])
    free = backend == "auto" and os.environ.get(PREFERRED, "auto") == "auto"
    if free and chosen == "cpu":
        try:
            return work(chosen)
        except compiler.CompileError:
            chosen = resolve(backend, m, n, sets[0][0].shape[1])
    reason = compiler.obstacle() if free else None
    if reason and reason not in _warned:
        _warned.add(reason)
        text = f"distances are computed by NumPy, several times slower: {reason} (VEIL_BACKEND=numpy: that is meant)"
        warnings.warn(text, VeilWarning, stacklevel=3)
    return work(chosen)

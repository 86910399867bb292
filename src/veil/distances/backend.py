"""Which backend computes distances: what this machine offers and the environment prefers, NumPy where a compiler fails."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float

from veil.distances.cpu import candidates
from veil.distances.cpu import compile as compiler
from veil.errors import RangeError, VeilError, VeilWarning

Backend = Literal["auto", "reference", "numpy", "cpu", "gpu"]
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "numpy", "cpu", "gpu")
# The environment variable that says what "auto" takes where that serves.
PREFERRED = "VEIL_BACKEND"
# A set of features: origins (N, dim), and bases (N, m, dim) unless they are points.
Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
Result = TypeVar("Result")
# Reasons for which NumPy serves unasked that were told: each is told once.
_told: set[str] = set()


def resolve(backend: str, left_m: int = 1, right_m: int = 1, dim: int = 128) -> Backend:
    """The backend that will serve sets of these dimensions (points: 0); never another one than was named.

    "cpu" is the kernel compiled for this processor, "gpu" sweeps on a graphics processor and decides on this one, "numpy"
    needs nothing but NumPy, "reference" is float64 and slow. "auto" is what the environment variable VEIL_BACKEND names, else
    "cpu", where that serves these dimensions, and "numpy" elsewhere; it never takes a graphics processor unasked.
    Where the compiler then fails on a kernel, "auto" computes with "numpy" after all and warns once (`VeilWarning`).
    Raises VeilError if the named one cannot serve.
    """
    name, source = (os.environ.get(PREFERRED, "auto"), PREFERRED) if backend == "auto" else (backend, "backend")
    for known in BACKENDS:
        if name == known:
            break
    else:
        raise RangeError(f"{source} must be one of {', '.join(map(repr, BACKENDS))}, got {name!r}")
    if known in ("reference", "numpy"):
        return known
    wanted: Backend = "cpu" if known == "auto" else known
    here, refusal = _refusals(wanted, left_m, right_m, dim)
    if not (here or refusal):
        return wanted
    if backend == "auto" and (known == "auto" or not here):
        return "numpy"
    raise VeilError(f"backend {wanted!r} cannot serve: {refusal or here}")


def _refusals(backend: Backend, left_m: int, right_m: int, dim: int) -> tuple[str | None, str | None]:
    """Why this machine, and why these dimensions, are not served."""
    here, refusal = compiler.obstacle(), candidates.refusal(left_m, right_m, dim)
    if backend == "gpu":
        from veil.distances.gpu import device

        here, refusal = here or device.obstacle(), refusal or device.refusal(left_m, right_m)
    return here, refusal


def served(backend: Backend, sets: tuple[Set, Set], work: Callable[[Backend], Result]) -> Result:
    """What the backend returns that serves these sets; with "auto" NumPy's where the compiler fails, which is told once."""
    m, n = (0 if basis is None else basis.shape[1] for _, basis in sets)
    chosen = resolve(backend, m, n, sets[0][0].shape[1])
    free = backend == "auto" and os.environ.get(PREFERRED, "auto") == "auto"
    if free and chosen == "cpu":
        try:
            return work(chosen)
        except compiler.CompileError:
            chosen = resolve(backend, m, n, sets[0][0].shape[1])
    reason = compiler.obstacle() if free else None
    if reason and reason not in _told:
        _told.add(reason)
        text = f"distances are computed by NumPy, several times slower: {reason} (VEIL_BACKEND=numpy: that is meant)"
        warnings.warn(text, VeilWarning, stacklevel=3)
    return work(chosen)

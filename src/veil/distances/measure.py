"""Which backends run on this machine, and how fast they are beside the matrix product that the distances contain.

A file of its own: it times the room through its door, which no other file of the room imports.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from veil import distances
from veil.distances import Backend
from veil.distances.cpu.compile import has_vnni, host_lanes, trial
from veil.distances.gpu import device

# Number and length of the descriptors of a measurement, which are isotropic, so that nothing is pruned.
FEATURES, DIM = 600, 128


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Whether a backend runs on this machine: `refusal` is empty or the reason why not, `detail` is how it runs."""

    backend: Backend
    refusal: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Wall seconds of `nearest_two` of `features` against as many, subspaces of dimension m on both sides.

    `product_seconds` are those of the float32 Gram matrix of all origins and directions alone.
    """

    backend: Backend
    m: int
    features: int
    seconds: float
    product_seconds: float

    @property
    def share(self) -> float:
        """Speed relative to the matrix product alone: 1 is the time of that product, more is faster."""
        return self.product_seconds / self.seconds


def offers() -> list[Offer]:
    """Every backend, the slowest first, with whether it runs here; a few kernels are compiled to see whether that works."""
    refusal = trial() or ""
    lanes = "" if refusal else f"compiled for vectors of {host_lanes()} floats"
    if lanes and has_vnni(host_lanes()):
        lanes += ", sweeps in 16 bits (VNNI)"
    barred = device.obstacle() or refusal
    means = "" if barred else "Triton's interpreter, for tests: slow" if device.interpreted() else "Triton on a CUDA device"
    return [
        Offer(backend="reference", refusal="", detail="float64 least squares: slow, for checks"),
        Offer(backend="numpy", refusal="", detail="float32 planes"),
        Offer(backend="cpu", refusal=refusal, detail=lanes),
        Offer(backend="gpu", refusal=barred, detail=means),
    ]


def measure(backend: Backend, m: int, *, threads: int = 1, seconds: float = 1.0) -> Rate:
    """Best wall time of as many runs as fit in `seconds`, in turn with the matrix product alone, both with `threads` threads.

    `m` is the dimension of the subspaces. The first run, which compiles, is not timed.
    """
    random = np.random.default_rng(m)
    sides = [_lifted(random, m) for _ in range(2)]
    rows = [np.concatenate([origin[:, None], basis], axis=1).reshape(-1, DIM) for origin, basis in sides]
    out = np.empty((len(rows[0]), len(rows[1])), dtype=np.float32)
    works: list[Callable[[], object]] = [
        lambda: distances.nearest_two(*sides, backend=backend, threads=threads),
        lambda: np.matmul(rows[0], rows[1].T, out=out),
    ]
    best, end = [np.inf, np.inf], time.perf_counter() + seconds
    with threadpool_limits(threads):
        works[0]()  # compiles
        while not np.isfinite(best[1]) or time.perf_counter() < end:
            for k, work in enumerate(works):
                start = time.perf_counter()
                work()
                best[k] = min(best[k], time.perf_counter() - start)
    return Rate(backend=backend, m=m, features=FEATURES, seconds=best[0], product_seconds=best[1])


def _lifted(random: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Origins and orthonormal bases of random subspaces; origins are about as far apart as descriptors of unit length."""
    origin = random.normal(size=(FEATURES, DIM)) / np.sqrt(DIM)
    basis = np.linalg.qr(random.normal(size=(FEATURES, DIM, m)))[0]
    return origin.astype(np.float32), np.ascontiguousarray(np.swapaxes(basis, 1, 2), dtype=np.float32)

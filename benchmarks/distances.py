"""Time of the distance kernels as a share of the matrix product that they contain, and against textbook code.

    python benchmarks/distances.py [--features 1000] [--dims 2 4 8 16] [--seconds 4] [--threads 1]

The floor is the float32 Gram matrix of all components, alone and into memory at hand, by the fastest BLAS of the same run:
NumPy's, and torch's where torch is importable. 100 % means that all distances, with best and second best in both directions,
take the time of that product; more is faster. `kernel` is the sweep of packed sets, `whole` is `nearest_two` with packing and
float64 included. The repeats are short and interleaved, the best of each counts. Times are those of the processor if one thread
works (other programs count less), of the clock otherwise and under `(wall)`. A kernel that disagrees with the float64 reference
is not timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from veil import kernels
from veil.kernels.jit import serve, sweep
from worlds import affine_set, generator, sift_like, unit

try:
    import torch
except ImportError:
    torch = None

Set = tuple[np.ndarray, np.ndarray | None]
# Pairs per side of what is compared with the reference, and of the textbook code, whose time is scaled up.
CHECKED, TEXTBOOK = 20, 60
WIDTHS = (8, 6, 11, 6, 6, 10, 6, 12, 6, 10, 7)


def main() -> int:
    """Print one table for each distance; exit code 1 if a kernel is red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each line of a table")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if torch is not None:
        torch.set_num_threads(arguments.threads)
    print(f"{arguments.features} x {arguments.features} features of 128-D, {arguments.threads} thread(s)")
    for words in (
        ("floor", "by", "cpu kernel", "floor", "floor", "cpu whole", "floor", "numpy whole", "floor", "textbook/", "max"),
        (*("ms", "", "ms", "share", "(wall)", "ms", "share", "ms", "share", "kernel", "error"),),
    ):
        print("      " + " ".join(f"{word:>{width}}" for word, width in zip(words, WIDTHS, strict=True)))
    with threadpool_limits(arguments.threads):
        return max(
            _line(name, m, arguments.features, arguments.seconds, arguments.threads)
            for name in ("s2s", "p2s")
            for m in arguments.dims
        )


def _line(name: str, m: int, count: int, seconds: float, threads: int) -> int:
    random = generator(f"benchmark {m}")
    left, right = _set(random, count, m if name == "s2s" else 0), _set(random, count, m)
    error = _error(left, right)
    if not error < 1e-6:
        print(f"{name} m = {m}: red, error {error:.1e}; not timed")
        return 1
    both = serve.compared(left, right, 0.5 * (left[0].mean(axis=0) + right[0].mean(axis=0)).astype(np.float64))
    a, b = both.first, both.second
    panels = sweep.packed(a, b, both.shape)
    works = {
        **_grams(*(np.stack(side.components).astype(np.float32) for side in (a, b))),
        "kernel": lambda: sweep.best_two(*panels, both.shape, serve.REACHES[0] * serve.size(a, b), threads),
        "whole": lambda: kernels.nearest_two(left, right, backend="cpu", threads=threads),
        "numpy": lambda: kernels.nearest_two(left, right, backend="numpy", threads=threads),
        "textbook": lambda: _textbook(_head(left, TEXTBOOK), _head(right, TEXTBOOK)),
    }
    times = _interleaved(works, seconds)
    best, wall = ({key: value[clock] for key, value in times.items()} for clock in (0 if threads == 1 else 1, 1))
    blas = min(("NumPy", "torch"), key=lambda library: best.get(library, np.inf))
    floor = best[blas]
    textbook = best["textbook"] * (count / TEXTBOOK) ** 2 / best["kernel"]
    shares = [text for key in ("kernel", "whole", "numpy") for text in (f"{1e3 * best[key]:.2f}", f"{floor / best[key]:.0%}")]
    shares.insert(2, f"{min(wall.get(library, np.inf) for library in ('NumPy', 'torch')) / wall['kernel']:.0%}")
    words = (f"{1e3 * floor:.2f}", blas, *shares, f"{textbook:.0f}", f"{error:.0e}")
    line = " ".join(f"{word:>{width}}" for word, width in zip(words, WIDTHS, strict=True))
    print(f"{name}{m:3d}{line}", flush=True)
    return 0


def _set(random: np.random.Generator, count: int, m: int) -> Set:
    inside = unit(sift_like(random, count))
    if m == 0:
        return inside.astype(np.float32), None
    origin, basis = affine_set(random, inside, m)
    return origin.astype(np.float32), basis.astype(np.float32)


def _head(side: Set, count: int) -> Set:
    return side[0][:count], None if side[1] is None else side[1][:count]


def _error(left: Set, right: Set) -> float:
    """Largest error of the dense and of the reported distances; infinite where a neighbor is the wrong one."""
    left, right = _head(left, CHECKED), _head(right, CHECKED)
    truth = kernels.distances(left, right, backend="reference")
    worst = 0.0
    for backend in ("cpu", "numpy"):
        found = kernels.nearest_two(left, right, backend=backend)  # type: ignore[arg-type]
        order = np.argsort(truth, axis=1)[:, :2]
        if not (found.right_of_left == order).all() or not (found.left_of_right == np.argsort(truth.T, axis=1)[:, :2]).all():
            return np.inf
        reported = np.abs(found.left_distance - np.take_along_axis(truth, order, axis=1)).max()
        dense = np.abs(kernels.distances(left, right, backend=backend) - truth).max()  # type: ignore[arg-type]
        worst = max(worst, float(reported), float(dense))
    return worst


def _grams(a: np.ndarray, b: np.ndarray) -> dict[str, Callable[[], object]]:
    """The product alone, all rows by all rows, into memory that is there already."""
    rows, columns = (np.ascontiguousarray(planes.reshape(-1, planes.shape[2])) for planes in (a, b))
    out = np.empty((len(rows), len(columns)), dtype=np.float32)
    works: dict[str, Callable[[], object]] = {"NumPy": lambda: np.matmul(rows, columns.T, out=out)}
    if torch is not None:
        x, y, z = (torch.from_numpy(part) for part in (rows, columns, out))
        works["torch"] = lambda: torch.mm(x, y.T, out=z)
    return works


def _interleaved(works: dict[str, Callable[[], object]], seconds: float) -> dict[str, tuple[float, float]]:
    """Best seconds of the processor and of the clock."""
    best = {name: (np.inf, np.inf) for name in works}
    slow = {"textbook", "numpy"}  # not what is judged; thrice is enough
    end, turn = time.perf_counter() + seconds, 0
    while turn < 3 or time.perf_counter() < end:
        for name, work in works.items():
            if turn < 3 or name not in slow:
                start = time.process_time(), time.perf_counter()
                work()
                spent = time.process_time() - start[0], time.perf_counter() - start[1]
                best[name] = min(best[name][0], spent[0]), min(best[name][1], spent[1])
        turn += 1
    return best


def _textbook(left: Set, right: Set) -> None:
    """Eq. 7 of Dusmanu et al. 2021 as one would write it: all 2m x 2m systems, batched solve; projections for points."""
    if left[1] is None or right[1] is None:
        points, (origin, basis) = left[0], right
        offset = points[:, None] - origin[None]
        projected = np.einsum("jmk,ijk->ijm", basis, offset)
        np.linalg.norm(offset - np.einsum("ijm,jmk->ijk", projected, basis), axis=2)
        return
    if torch is not None:
        _textbook_torch(*(torch.from_numpy(part) for part in (*left, *right)))  # type: ignore[arg-type]
        return
    (d0, d), (e0, e) = left, right
    m, n = d.shape[1], e.shape[1]
    system = np.zeros((len(d), len(e), m + n, m + n), dtype=np.float32)
    system[..., :m, :m], system[..., m:, m:] = np.eye(m), -np.eye(n)
    coupling = np.einsum("imk,jnk->ijmn", d, e)
    system[..., :m, m:], system[..., m:, :m] = -coupling, np.swapaxes(coupling, 2, 3)
    offset = e0[None] - d0[:, None]
    right_side = np.concatenate([np.einsum("imk,ijk->ijm", d, offset), np.einsum("jnk,ijk->ijn", e, offset)], axis=2)
    found = np.linalg.solve(system, right_side[..., None])[..., 0]
    np.linalg.norm(offset + np.einsum("ijn,jnk->ijk", found[..., m:], e) - np.einsum("ijm,imk->ijk", found[..., :m], d), axis=2)


def _textbook_torch(d0, d, e0, e) -> None:  # type: ignore[no-untyped-def]
    """The same in torch."""
    m, n = d.shape[1], e.shape[1]
    system = torch.zeros((len(d), len(e), m + n, m + n))
    system[..., :m, :m], system[..., m:, m:] = torch.eye(m), -torch.eye(n)
    coupling = torch.einsum("imk,jnk->ijmn", d, e)
    system[..., :m, m:], system[..., m:, :m] = -coupling, coupling.transpose(2, 3)
    offset = e0[None] - d0[:, None]
    right_side = torch.cat([torch.einsum("imk,ijk->ijm", d, offset), torch.einsum("jnk,ijk->ijn", e, offset)], dim=2)
    found = torch.linalg.solve(system, right_side[..., None])[..., 0]
    x, y = torch.einsum("ijm,imk->ijk", found[..., :m], d), torch.einsum("ijn,jnk->ijk", found[..., m:], e)
    torch.linalg.norm(offset + y - x, dim=2)


if __name__ == "__main__":
    sys.exit(main())

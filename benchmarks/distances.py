"""Time of the distance kernels as a ratio to the matrix product that they contain, and to textbook NumPy.

    python benchmarks/distances.py [--features 1000] [--dims 2 4 8 16]

The reference is the float32 Gram matrix of all components by the BLAS of this NumPy in the same run: the floor of any
method that forms it. A kernel whose distances disagree with the float64 reference is not timed.
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
from veil.kernels import reference
from worlds import affine_set, generator, sift_like, unit


def main() -> int:
    """Print one line a dimension; exit code 1 if a kernel is red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{arguments.features} x {arguments.features} features of 128-D, one thread, best of {arguments.repeats}")
    print(f"{'m':>3} {'gram s':>8} {'p2s/gram':>9} {'s2s/gram':>9} {'textbook/s2s':>13} {'max error':>10}")
    with threadpool_limits(1):
        for m in arguments.dims:
            if not _run(m, arguments.features, arguments.repeats):
                return 1
    return 0


def _run(m: int, count: int, repeats: int) -> bool:
    random = generator(f"benchmark {m}")
    left, right = ((o.astype(np.float32), b.astype(np.float32)) for o, b in _sets(random, count, m))
    few = slice(0, 20)
    small = [(side[0][few], side[1][few]) for side in (left, right)]
    error = np.abs(kernels.distances(*small) - reference.subspace_to_subspace(*small)).max()
    if not error < 1e-6:
        print(f"m = {m}: red, error {error:.1e}; not timed")
        return False
    planes = [np.concatenate([o[:, None], b], axis=1).reshape(-1, o.shape[1]) for o, b in (left, right)]
    gram = _best(lambda: _blocked_gram(*planes), repeats)
    subspace = _best(lambda: kernels.nearest_two(left, right), repeats)
    point = _best(lambda: kernels.nearest_two((left[0], None), right), repeats)
    sample = 60
    textbook = _best(lambda: _textbook(*((o[:sample], b[:sample]) for o, b in (left, right))), 1) * (count / sample) ** 2
    print(f"{m:3d} {gram:8.3f} {point / gram:9.2f} {subspace / gram:9.2f} {textbook / subspace:13.1f} {error:10.1e}")
    return True


def _sets(random: np.random.Generator, count: int, m: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [affine_set(random, unit(sift_like(random, count)), m) for _ in range(2)]


def _blocked_gram(a: np.ndarray, b: np.ndarray) -> None:
    for start in range(0, len(a), 1024):
        a[start : start + 1024] @ b.T


def _textbook(left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray]) -> None:
    """Eq. 7 of Dusmanu et al. 2021 as one would write it: all 2m x 2m systems, batched solve."""
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


def _best(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())

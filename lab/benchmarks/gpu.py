"""Time of the distance kernels on a graphics processor, as a share of its measured matrix rate, beside torch and the paper.

    python lab/benchmarks/gpu.py [--features 1000 8000] [--dims 2 4 8 16] [--repeats 20]
    python lab/benchmarks/gpu.py --features 8000 --dims 8 --chunks 22 23 24 --programs 256 1024 4096

The rate is that of the same matrix product alone: all components of both sides, each coordinate as three products of 11-bit
halves, by torch. `share` is the product's time over that of `best_two`, which includes it. `torch` is a batched product with a
batched Cholesky solve, in slices, scaled to all pairs. Times are those of the device, after a first call that compiles;
a kernel that disagrees with float64 is not timed. Table 1 of Dusmanu et al. 2021 (NVIDIA RTX 2080 Ti) is printed beside
1,000 x 1,000. --chunks and --programs time `best_two` in chunks of 2^N Gram entries with some programs each, beside its
products alone. Needs the extra veil[gpu] and a CUDA device; where there is none, exit code 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np

from distances import _error_of, _pools, _set
from veil.distances.cpu import candidates
from veil.distances.gpu import device
from veil.distances.gpu.device import Planes, Processor, obstacle, planes, tensor_products
from veil.distances.gpu.source import COLUMNS, ROWS

# Milliseconds of Table 1, 1,000 x 1,000 subspaces by m; m = 8 was not available there.
PAPER = {2: 2.02, 4: 6.02}
# Left features of one slice of the batched solve.
SLICE = 64


def main() -> int:
    """Print one line for each dimension and size; exit code 1 if a kernel is red, 2 without a device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[1000, 8000])
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--chunks", type=int, nargs="+", default=[], metavar="N")
    parser.add_argument("--programs", type=int, nargs="+", default=[device.PROGRAMS], metavar="N")
    arguments = parser.parse_args()
    reason = obstacle()
    if reason:
        print(f"no device: {reason}")
        return 2
    import torch

    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "Triton's interpreter: times mean nothing")
    print(f"{'':14}{'product ms':>11}{'TFLOP/s':>9}{'best two ms':>12}{'share':>7}{'torch ms':>10}{'paper ms':>9}{'error':>9}")
    pools, red = _pools(), 0
    for count in arguments.features:
        for m in arguments.dims:
            red += _line(pools, count, m, arguments)
    return int(red > 0)


def _line(pools: list[np.ndarray], count: int, m: int, arguments: argparse.Namespace) -> int:
    """Measure and print one line, and those of the chunks asked for; 1 if the kernel is red, else 0."""
    repeats = arguments.repeats
    random = np.random.default_rng(m)
    left, right = _set(random, pools[:2], count, m), _set(random, pools[2:], count, m)
    error = _error_of("gpu", left, right)
    if not error < 1e-6:
        print(f"s2s m ={m:3d} {count:5d} red, error {error:.1e}; not timed")
        return 1
    both = candidates.compared(left, right, 0.5 * (left[0].mean(axis=0) + right[0].mean(axis=0)).astype(np.float64))
    a, b, engine = both.first, both.second, Processor(both.first, both.second)
    left_planes, right_planes = planes(a, ROWS, "hhl"), planes(b, COLUMNS, "hlh")
    flat = [side.values.reshape(-1, side.values.shape[2]) for side in (left_planes, right_planes)]

    def product() -> None:
        with tensor_products():
            for start in range(0, len(flat[0]), 4096):
                flat[0][start : start + 4096] @ flat[1].T

    product_ms = _milliseconds(product, repeats)
    reach = candidates.REACHES[0] * candidates.squared_scale(a, b)
    best_ms = _milliseconds(lambda: engine.swept(left_planes, right_planes, reach), repeats)
    some = tuple(part[:SLICE] for part in left)
    torch_ms = _milliseconds(_textbook(some, right), 3) * count / SLICE
    rate = 2 * len(flat[0]) * len(flat[1]) * flat[0].shape[1] / product_ms / 1e9
    paper = f"{PAPER[m]:.2f}" if count == 1000 and m in PAPER else "-"
    print(
        f"s2s m ={m:3d} {count:5d}{product_ms:11.2f}{rate:9.0f}{best_ms:12.2f}{product_ms / best_ms:7.0%}"
        f"{torch_ms:10.1f}{paper:>9}{error:9.0e}",
        flush=True,
    )
    for log in arguments.chunks:
        _chunks(both, left_planes, right_planes, reach, log, arguments)
    return 0


def _chunks(
    both: candidates.Compared, left: Planes, right: Planes, reach: float, log: int, arguments: argparse.Namespace
) -> None:
    """Print the time of the products of chunks of 2^log Gram entries, and of `best_two` with each number of programs."""
    before = device.CHUNK_FLOATS, device.PROGRAMS
    try:
        device.CHUNK_FLOATS = 1 << log
        engine = Processor(both.first, both.second)
        products = _milliseconds(lambda: [None for _ in engine._chunks(left, right)], arguments.repeats)
        print(f"    chunks of 2^{log}: products {products:.2f} ms", end="")
        for device.PROGRAMS in arguments.programs:
            best = _milliseconds(lambda: engine.swept(left, right, reach), arguments.repeats)
            print(f", {device.PROGRAMS} programs {best:.2f} ms", end="", flush=True)
        print()
    finally:
        device.CHUNK_FLOATS, device.PROGRAMS = before


def _milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Best of some repeats in milliseconds on the device's own clock, after one call that compiles."""
    import time

    import torch

    work()
    best = np.inf
    for _ in range(repeats):
        if torch.cuda.is_available():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            best = min(best, start.elapsed_time(end))
        else:
            begun = time.perf_counter()
            work()
            best = min(best, 1e3 * (time.perf_counter() - begun))
    return float(best)


def _textbook(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> Callable[[], object]:
    """Work that compares all pairs by one batched product and batched Cholesky solves (docs/theory/distances.md, Eq. 4-5)."""
    import torch

    where = "cuda" if torch.cuda.is_available() else "cpu"
    d0, d, e0, e = (torch.from_numpy(part).to(where) for part in (*left, *right))
    eye = torch.eye(d.shape[1], device=where) * (1 + 1e-6)

    def work() -> object:
        c = torch.einsum("imk,jnk->ijmn", d, e)
        u, v = torch.einsum("imk,jk->ijm", d, e0), torch.einsum("jnk,ik->ijn", e, d0)
        w = u + torch.einsum("ijmn,ijn->ijm", c, v)
        factor = torch.linalg.cholesky(eye - c @ c.transpose(2, 3))
        y = torch.linalg.solve_triangular(factor, w[..., None], upper=False)[..., 0]
        base = (d0**2).sum(1)[:, None] + (e0**2).sum(1)[None] - 2 * d0 @ e0.T
        return (base - (v**2).sum(2) - (y**2).sum(2)).clamp(min=0).topk(2, dim=1, largest=False)

    return work


if __name__ == "__main__":
    sys.exit(main())

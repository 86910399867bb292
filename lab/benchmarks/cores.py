"""Matrix products by every core type that NumPy's OpenBLAS has for this processor, each in a process of its own.

OpenBLAS chooses its kernels by the processor's name, and takes those of an older one where it does not know it, which may be
twice too slow. `OPENBLAS_CORETYPE` chooses others, but only before the library is loaded.

    python lab/benchmarks/cores.py        prints the core types and their speed
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Names that OpenBLAS gives its kernels; others are slower wherever one of these runs. A library has some of them, and a
# processor stops at an instruction that it lacks: what does not answer is left out.
CORE_TYPES = {
    "x86_64": ("Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"),
    "aarch64": ("ARMV8", "CORTEXA57", "NEOVERSEN1", "NEOVERSEV1", "NEOVERSEN2", "VORTEX", "ARMV8SVE", "A64FX"),
}
OTHER_NAMES = {"AMD64": "x86_64", "arm64": "aarch64"}
# Rows, columns and length of the product that sorts them out, and what is kept: as fast as this share of the fastest.
TRIAL, KEPT = (3000, 3000, 128), 0.8


class Core:
    """A process whose OpenBLAS has the kernels of one core type; None: those that it chooses itself."""

    def __init__(self, name: str | None, threads: int) -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        environment |= {} if name is None else {"OPENBLAS_CORETYPE": name}
        # The interpreter of this process with its packages; messages of a library that lacks the name are no concern.
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.name = self._line() or ""

    def product(self, rows: int, columns: int, dim: int) -> tuple[float, float]:
        """Seconds of the processor and of the clock for one float32 product, of random numbers; infinite if it cannot."""
        try:
            print(rows, columns, dim, file=self._process.stdin, flush=True)
            return tuple(float(word) for word in self._line().split()) or (float("inf"),) * 2  # type: ignore[return-value]
        except OSError:
            return float("inf"), float("inf")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def core_types(threads: int) -> Iterator[list[Core]]:
    """Those of the library that are nearly as fast as the fastest, each once; none where NumPy has another library."""
    cores: list[Core] = []
    try:
        machine = platform.machine()
        for name in (None, *CORE_TYPES.get(OTHER_NAMES.get(machine, machine), ())):
            core = Core(name, threads)
            cores.append(core)  # closed below, whatever it is
            if name is not None and core.name.lower() != name.lower():
                core.name = ""  # the library fell back to another
            if any(core.name == other.name for other in cores[:-1]):
                core.name = ""
        times = {core.name: min(core.product(*TRIAL) for _ in range(5))[threads > 1] for core in cores if core.name}
        best = min(times.values(), default=0.0)
        yield [core for core in cores if core.name and best >= KEPT * times[core.name]]
    finally:
        for core in cores:
            core.close()


def _serve() -> int:
    """Say which core type was loaded; then one line of times for each line of sizes."""
    import numpy as np
    from threadpoolctl import threadpool_info

    architectures = {item.get("architecture") or "" for item in threadpool_info() if item["internal_api"] == "openblas"}
    print(*sorted(architectures)[:1], flush=True)
    known, random = None, np.random.default_rng(0)
    for line in sys.stdin:
        sizes = tuple(int(word) for word in line.split())
        if sizes != known:
            rows, columns, dim = known = sizes
            a, b = (random.normal(size=(count, dim)).astype(np.float32) for count in (rows, columns))
            step = max(1, (1 << 28) // columns)
            out = np.empty((min(step, rows), columns), dtype=np.float32)
            np.matmul(a[:step], b.T, out=out)
        start = time.process_time(), time.perf_counter()
        for first in range(0, rows, step):
            part = a[first : first + step]
            np.matmul(part, b.T, out=out[: len(part)])
        print(time.process_time() - start[0], time.perf_counter() - start[1], flush=True)
    return 0


def main() -> int:
    """Print the speed of each core type on one thread."""
    if sys.argv[1:] == ["--serve"]:
        return _serve()
    with core_types(1) as cores:
        for core in cores:
            seconds = min(core.product(*TRIAL)[0] for _ in range(20))
            print(f"{core.name:16} {2e-9 * TRIAL[0] * TRIAL[1] * TRIAL[2] / seconds:7.1f} GFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Time of the distance kernels as a share of the matrix product that they contain, and against textbook code.

    python lab/benchmarks/distances.py [--features 1000 6000] [--dims 2 4 8 16] [--seconds 4] [--threads 1] [--figure FILE]

Real SIFT descriptors of the bundled photographs, left and right of different ones, lifted with half of the decoys from either
half of the bundled pool. The floor is the float32 Gram matrix of all components, alone and into memory at hand, by the fastest
BLAS of the same run: NumPy's, torch's where torch is importable, and every core type that NumPy's OpenBLAS has, each in a
process of its own (`lab/benchmarks/cores.py`), as OpenBLAS may choose a slower core type by itself. 100 % means that all
distances, with best and second best in both directions, take the time of that product; more is faster. `float` sweeps all
pairs of packed sets in single precision, `fixed` in 16 bits where the processor multiplies pairs of these (VNNI); `search` is
what `nearest_two` does before float64 decides: it tests whether pruning pays, packs, and prunes or sweeps; `whole` is all of
`nearest_two`, float64 included, and `MB` its memory beyond the inputs. The repeats are short and interleaved, the best of each
counts. Times are those of the processor if one thread works (other programs count less), of the clock otherwise. A kernel that
disagrees with the float64 reference is not timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from cores import Core, core_types
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil import distances
from veil.distances import FeatureSet
from veil.distances.cpu import candidates
from veil.distances.cpu.compile import has_vnni
from veil.distances.cpu.prune import axes_worth_it
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.codebooks import bundled_decoys
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.mechanisms.public import publish
from veil.report.figures import BLACK, BLUE, GRAY, GREEN, PURPLE, VERMILION, drawn, legend_below
from worlds import generator

try:
    import torch
except ImportError:
    torch = None

# Features of each side that are compared with the reference, and that the textbook code takes, whose time is scaled up.
CHECKED, TEXTBOOK = 20, 60
# Floats of the Gram matrix that are held at a time.
GRAM_FLOATS = 1 << 28
# Least number of turns; repeats of each work in a turn.
LEAST, REPEATS = 2, 3
# Seconds after which threads of a BLAS stop waiting in a loop for more work (MKL: 0.2), which takes a core from others.
SETTLED = 0.25
HEADS = ("floor ms", "by", "float", "fixed", "search", "whole ms", "whole", "numpy", "textbook", "pruned to", "MB", "max error")


def main() -> int:
    """Print one line for each distance, dimension and size; exit code 1 if a kernel is red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[1000, 6000])
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--distances", choices=("s2s", "p2s"), nargs="+", default=["s2s", "p2s"])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each line of the table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as records")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the shares (.png or .svg)")
    arguments = parser.parse_args()
    if torch is not None:
        torch.set_num_threads(arguments.threads)
    pools = _pools()
    print(f"{arguments.threads} thread(s); shares of the floor, 100 % is as fast as the matrix product alone, more is faster")
    records, red = [], 0
    with threadpool_limits(arguments.threads), core_types(arguments.threads) as cores:
        print(
            "floors by",
            ", ".join([*("OpenBLAS " + core.name for core in cores), "NumPy as it is", *["torch"] * (torch is not None)]),
        )
        print(f"{'':14}" + " ".join(f"{word:>9}" for word in HEADS))
        for count in arguments.features:
            for name in arguments.distances:
                for m in arguments.dims:
                    record = _line(name, m, count, pools, cores, arguments.seconds, arguments.threads)
                    records.append(record)
                    red += "floor_ms" not in record
    if arguments.json:
        arguments.json.write_text(json.dumps({"threads": arguments.threads, "rows": records}, indent=2) + "\n")
    if arguments.figure:
        _draw(arguments.figure, records, arguments.threads)
    return int(red > 0)


def _line(
    name: str, m: int, count: int, pools: list[np.ndarray], cores: list[Core], seconds: float, threads: int
) -> dict[str, object]:
    """Measure and print one line of the table; the record lacks times where a kernel is red."""
    random = generator(f"benchmark {m}")
    left, right = (_set(random, side, count, m if name == "s2s" or k else 0) for k, side in enumerate((pools[:2], pools[2:])))
    record: dict[str, object] = {"distance": name, "m": m, "features": count, "error": _error(left, right)}
    if not record["error"] < 1e-6:  # type: ignore[operator]
        print(f"{name} m ={m:3d} {count:5d} red, error {record['error']:.1e}; not timed")
        return record
    both = candidates.compared(left, right, 0.5 * (left[0].mean(axis=0) + right[0].mean(axis=0)).astype(np.float64))
    a, b = both.first, both.second
    axes = axes_worth_it(a, b, candidates.sweep_shape(both))
    scale = candidates.squared_scale(a, b)
    engines = {name: candidates.Compiled(a, b, replace(both.shape, fixed=name == "fixed"), threads) for name in _engines(both)}
    planes = [np.stack(side.components).astype(np.float32) for side in (a, b)]
    rows, columns = (part.shape[0] * part.shape[1] for part in planes)
    floors = {core.name: partial(core.product, rows, columns, planes[0].shape[2]) for core in cores}
    works = {
        **_grams(*planes),
        **{name: partial(engine.best_two, engine.reaches[0] * scale) for name, engine in engines.items()},
        "search": lambda: candidates.candidates(both, threads),
        "whole": lambda: distances.nearest_two(left, right, backend="cpu", threads=threads),
        "numpy": lambda: distances.nearest_two(left, right, backend="numpy", threads=threads),
        "textbook": lambda: _textbook(_head(left, TEXTBOOK), _head(right, TEXTBOOK)),
    }
    timed = floors | {key: partial(_timed, work) for key, work in works.items()}
    loud = {*timed} - {*engines, "search", "whole"} if threads > 1 else set()
    best = {key: value[0 if threads == 1 else 1] for key, value in _interleaved(timed, seconds, loud).items()}
    blas = min((*floors, "NumPy", "torch"), key=lambda library: best.get(library, np.inf))
    floor, whole = best[blas], best["whole"]
    record |= {"blas": blas, "floor_ms": 1e3 * floor, "whole_ms": 1e3 * whole, "axes": None if axes is None else len(axes)}
    record |= {f"{key}_share": floor / best[key] for key in (*engines, "search", "whole", "numpy")}
    record["textbook_ratio"] = best["textbook"] * (count / TEXTBOOK) ** 2 / whole
    record["megabytes"] = _megabytes(works["whole"])
    words = (
        *(f"{record['floor_ms']:.1f}", blas),
        *(f"{record[key]:.0%}" if key in record else "-" for key in ("float_share", "fixed_share", "search_share")),
        *(f"{record['whole_ms']:.1f}", f"{record['whole_share']:.0%}", f"{record['numpy_share']:.0%}"),
        *(
            f"{record['textbook_ratio']:.0f}x",
            str(record["axes"] or "-"),
            f"{record['megabytes']:.0f}",
            f"{record['error']:.0e}",
        ),
    )
    print(f"{name} m ={m:3d} {count:5d}" + " ".join(f"{word:>9}" for word in words), flush=True)
    return record


def _engines(both: candidates.Compared) -> tuple[str, ...]:
    """Names of the precisions that this processor can sweep in."""
    return ("float", "fixed") if has_vnni(both.shape.lanes) else ("float",)


def _megabytes(work: Callable[[], object]) -> float:
    """Peak memory in MB that Python and NumPy allocated during `work`, beyond what they held before."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def _pools() -> list[np.ndarray]:
    """Descriptors and decoys of the left side, then those of the right one, of other photographs and the pool's other half."""
    import pycolmap

    pycolmap.logging.minloglevel = 3
    with lund_door() as example:
        names = sorted(example.poses)
        images = [extract_sift(read_picture(example.folder / name), SiftOptions(max_features=3000)) for name in names]
    vectors = [publish(image).vectors.astype(np.float64) for image in images]
    decoys = bundled_decoys().vectors.astype(np.float64)
    half = len(decoys) // 2
    return [np.concatenate(vectors[::2]), decoys[:half], np.concatenate(vectors[1::2]), decoys[half:]]


def _set(random: np.random.Generator, side: list[np.ndarray], count: int, m: int) -> FeatureSet:
    """Features drawn from the photographs, lifted so that half the directions lead to decoys and half are random.

    Points where m is 0.
    """
    inside = side[0][random.permutation(len(side[0]))[:count]]
    if m == 0:
        return inside.astype(np.float32), None
    decoys = side[1][random.integers(0, len(side[1]), size=(count, m // 2))]
    directions = np.concatenate([decoys - inside[:, None], random.normal(size=(count, m - m // 2, inside.shape[1]))], axis=1)
    basis = np.swapaxes(np.linalg.qr(np.swapaxes(directions, 1, 2))[0], 1, 2)
    origin = inside - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", basis, inside), basis)
    return origin.astype(np.float32), np.ascontiguousarray(basis, dtype=np.float32)


def _draw(path: Path, records: list[dict[str, object]], threads: int) -> None:
    """Draw the shares by dimension, one panel for each size and distance."""
    cells = list(dict.fromkeys((r["features"], r["distance"]) for r in records if "floor_ms" in r))
    names = {"s2s": "subspace to subspace", "p2s": "point to subspace"}
    with drawn(path, 1, len(cells), size=(3.4 * len(cells), 3.4), grid="y", sharey=True) as (figure, panels):
        for panel, (count, name) in zip(panels[0], cells, strict=True):
            rows = [r for r in records if (r["features"], r["distance"]) == (count, name) and "floor_ms" in r]
            for key, label, color in (
                ("float_share", "all pairs, single precision", BLUE),
                ("fixed_share", "all pairs, 16 bits", PURPLE),
                ("search_share", "as searched (pruned where it pays)", GREEN),
                ("whole_share", "with packing and float64", VERMILION),
                ("numpy_share", "NumPy planes", GRAY),
            ):
                values = [100 * float(r.get(key, np.nan)) for r in rows]  # type: ignore[arg-type]
                panel.plot(range(len(rows)), values, "o-", color=color, label=label)
            panel.axhline(100, color=BLACK, linewidth=0.8, linestyle=":")
            panel.set_xticks(range(len(rows)), [str(r["m"]) for r in rows])
            panel.set_xlabel("m")
            panel.set_title(f"{names[str(name)]}\n{count} x {count}")
        panels[0, 0].set_ylim(bottom=0)  # of all, as they share it
        panels[0, 0].set_ylabel(f"% of the speed of the matrix\nproduct alone, {threads} thread(s)")
        legend_below(figure, columns=5)


def _head(side: FeatureSet, count: int) -> FeatureSet:
    return side[0][:count], None if side[1] is None else side[1][:count]


def _error(left: FeatureSet, right: FeatureSet) -> float:
    """Larger error of the backends `cpu` and `numpy`."""
    return max(_error_of(backend, left, right) for backend in ("cpu", "numpy"))


def _error_of(backend: str, left: FeatureSet, right: FeatureSet) -> float:
    """Largest error of the dense and of the reported distances; infinite where a neighbor is the wrong one."""
    left, right = _head(left, CHECKED), _head(right, CHECKED)
    truth = distances.pairwise(left, right, backend="reference")
    nearest = distances.nearest_two(left, right, backend=backend)  # type: ignore[arg-type]
    order = np.argsort(truth, axis=1)[:, :2]
    if not (nearest.right_of_left == order).all() or not (nearest.left_of_right == np.argsort(truth.T, axis=1)[:, :2]).all():
        return np.inf
    reported = np.abs(nearest.left_distance - np.take_along_axis(truth, order, axis=1)).max()
    dense = np.abs(distances.pairwise(left, right, backend=backend) - truth).max()  # type: ignore[arg-type]
    return max(float(reported), float(dense))


def _grams(a: np.ndarray, b: np.ndarray) -> dict[str, Callable[[], object]]:
    """Works that compute the Gram matrix alone, by NumPy and torch, into memory allocated before.

    They take a slice of rows at a time where the matrix is large.
    """
    rows, columns = (np.ascontiguousarray(planes.reshape(-1, planes.shape[2])) for planes in (a, b))
    step = max(1, GRAM_FLOATS // len(columns))
    out = np.empty((min(step, len(rows)), len(columns)), dtype=np.float32)
    slices = [rows[start : start + step] for start in range(0, len(rows), step)]

    def by_numpy() -> None:
        for part in slices:
            np.matmul(part, columns.T, out=out[: len(part)])

    works: dict[str, Callable[[], object]] = {"NumPy": by_numpy}
    if torch is not None:
        y, z = torch.from_numpy(columns), torch.from_numpy(out)

        def by_torch() -> None:
            for part in slices:
                torch.mm(torch.from_numpy(part), y.T, out=z[: len(part)])

        works["torch"] = by_torch
    return works


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the processor, and of the clock, that `work` takes."""
    start = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - start[0], time.perf_counter() - start[1]


def _interleaved(
    works: dict[str, Callable[[], tuple[float, float]]], seconds: float, loud: set[str]
) -> dict[str, tuple[float, float]]:
    """Best seconds of the processor, and of the clock, of each work.

    After works that are `loud`, whose BLAS threads wait in loops, there is a pause until these sleep.
    """
    best = {name: (np.inf, np.inf) for name in works}
    slow = {"numpy"}  # run once only: its time is not what this benchmark is about
    end, turn = time.perf_counter() + seconds, 0
    while turn < LEAST or time.perf_counter() < end:
        for name, work in works.items():
            for _ in range((turn < 1) if name in slow else REPEATS):
                spent = work()
                best[name] = min(best[name][0], spent[0]), min(best[name][1], spent[1])
            time.sleep(SETTLED if name in loud else 0)
        turn += 1
    return best


def _textbook(left: FeatureSet, right: FeatureSet) -> None:
    """Compute Dusmanu et al. 2021, Eq. 7 as in a textbook: batched solve of all 2m x 2m systems; projections for points."""
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
    solution = np.linalg.solve(system, right_side[..., None])[..., 0]
    np.linalg.norm(
        offset + np.einsum("ijn,jnk->ijk", solution[..., m:], e) - np.einsum("ijm,imk->ijk", solution[..., :m], d), axis=2
    )


def _textbook_torch(d0, d, e0, e) -> None:  # type: ignore[no-untyped-def]
    """Compute the textbook solution of `_textbook` with torch."""
    m, n = d.shape[1], e.shape[1]
    system = torch.zeros((len(d), len(e), m + n, m + n))
    system[..., :m, :m], system[..., m:, m:] = torch.eye(m), -torch.eye(n)
    coupling = torch.einsum("imk,jnk->ijmn", d, e)
    system[..., :m, m:], system[..., m:, :m] = -coupling, coupling.transpose(2, 3)
    offset = e0[None] - d0[:, None]
    right_side = torch.cat([torch.einsum("imk,ijk->ijm", d, offset), torch.einsum("jnk,ijk->ijn", e, offset)], dim=2)
    solution = torch.linalg.solve(system, right_side[..., None])[..., 0]
    x, y = torch.einsum("ijm,imk->ijk", solution[..., :m], d), torch.einsum("ijn,jnk->ijk", solution[..., m:], e)
    torch.linalg.norm(offset + y - x, dim=2)


if __name__ == "__main__":
    sys.exit(main())

"""Time of one identification among many face templates, as a multiple of reading their bases once.

    python lab/benchmarks/identify.py [--people 100000] [--dim 512] [--m 4] [--top 1] [--repeats 5] [--threads 1] [--json FILE]

Probes are compared by p2s with all templates of a purpose. Descriptors are random unit vectors, no faces, and directions are
random: the times depend on sizes only, but real faces lie closer together. The templates are written in the format of the store
in one transaction, as 100,000 enrollments would each wait for the disk. What is timed, in turns, the best of each, in time of
the processor if one thread works (other programs count less), else of the clock:

floor     the float32 product of a matrix of all origins and bases, in memory, with the probe (BLAS): reading it once
kernel    the compiled point-to-subspace pass alone, which yields bounds of all distances and decides nothing
written   the distances by textbook NumPy in float32: offsets, projections, |d|^2 - |D d|^2, no check, no float64
nearest   `distances.nearest` of one probe in templates in memory, whose answer is that of an exhaustive float64 search
numpy     `distances.nearest` without the compiler
distances `distances.pairwise` of the probe and all templates, near ones evaluated in float64 (run twice at most)
read      `FaceStore.templates`: from the file, which the system has in memory, to arrays; seal and tags are checked
identify  all of `veil faces identify` but the start of Python and making the probe: the store opened, read, searched

One probe is a second descriptor of one enrolled person. Answers that differ from float64 are not timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from veil import distances
from veil.distances import few_queries
from veil.distances.pairs import exact
from veil.randomness import Secret
from veil.space import Space
from veil_faces.files.face_facts import opened, read_contents, write_facts, write_line
from veil_faces.files.face_home import FaceHome
from veil_faces.files.face_store import FaceStore
from veil_faces.seal import Line, Sealer
from veil_faces.template import TemplateScheme

# Templates that are made at a time; templates among which the answer is compared with float64; and the target, the time of an
# identification over that of the kernel alone.
MADE, CHECKED = 2000, 20_000
TARGET = 1.1
# Works that are run twice at most.
SLOW = ("distances", "read", "identify")


def main() -> int:
    """Print one line for each; exit code 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--m", type=int, default=4)
    parser.add_argument("--top", type=int, default=1, help="candidates asked for")
    parser.add_argument("--repeats", type=int, default=5, help="of what takes no file; the rest is repeated twice")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as records")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(arguments.threads):
        path = Path(folder) / "faces.store"
        probe = _filled(path, arguments, random)
        _, templates = FaceStore(path, _home(path)).templates("door")
        assert templates is not None
        gallery = templates.origin, templates.basis
        if not _right(probe, gallery, arguments):
            print("red: the answers differ from float64; not timed")
            return 1
        clock = time.process_time if arguments.threads == 1 else time.perf_counter
        best = _timed(_works(path, probe, gallery, arguments), arguments.repeats, clock)
    print(f"{arguments.people} templates, {arguments.dim}-D, m = {arguments.m}, {arguments.threads} thread(s)")
    print(f"{'':10}{'ms':>9}{'x floor':>9}")
    for name, seconds in best.items():
        print(f"{name:10}{1e3 * seconds:9.1f}{seconds / best['floor']:9.2f}")
    share = best["nearest"] / best["kernel"]
    verdict = "met" if share <= TARGET else "missed"
    print(f"identification in memory takes {share:.2f} times the kernel alone: the target of {TARGET} is {verdict}")
    if arguments.json:
        sizes = {name: getattr(arguments, name) for name in ("people", "dim", "m", "top", "threads")}
        record = {**sizes, "seconds": best, "share": share}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def _filled(path: Path, arguments: argparse.Namespace, random: np.random.Generator) -> distances.FeatureSet:
    """Probe of the person in the middle of a store, whose templates are written to `path`."""
    space = Space(descriptor="synthetic-face", normalization="L2", dim=arguments.dim)
    home = _home(path)
    FaceStore.create(
        path, TemplateScheme(strategy="random", m=arguments.m, comparison="p2s", space=space, decoys="0" * 64), home
    )
    inside = _unit(random.standard_normal((arguments.people, arguments.dim), dtype=np.float32))
    with opened(path) as connection:
        contents, sealer = read_contents(connection, path), Sealer.of(home.secret)
        for person, *numbers in _rows(inside, arguments.m, random):
            line = Line(person=person, purpose="door", version=1, generation=2, enrolled_at=0.0, revoked_at=None)
            write_line(connection, contents, line, sealer, *numbers)
        contents.facts["generation"] = "2"
        write_facts(connection, contents, sealer)
    noise = random.standard_normal(arguments.dim, dtype=np.float32) * np.float32(0.7 / np.sqrt(arguments.dim))
    return _unit((inside[arguments.people // 2] + noise)[None]), None


def _home(path: Path) -> FaceHome:
    return FaceHome(folder=path.parent / "home", secret=Secret(b"benchmark" + bytes(23)))


def _rows(inside: np.ndarray, m: int, random: np.random.Generator) -> Iterator[tuple[str, bytes, bytes]]:
    """Subspaces through descriptors along random orthonormal directions (Gram-Schmidt twice, in float64)."""
    for first in range(0, len(inside), MADE):
        part = inside[first : first + MADE].astype(np.float64)
        basis = random.standard_normal((len(part), m, part.shape[1]))
        for k in (*range(m), *range(m)):
            others = basis[:, :k]
            row = basis[:, k] - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", others, basis[:, k]), others)
            basis[:, k] = _unit(row)
        origin = part - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", basis, part), basis)
        for k in range(len(part)):
            yield f"{first + k:09d}", origin[k].astype("<f4").tobytes(), basis[k].astype("<f4").tobytes()


def _unit(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def _works(
    path: Path, probe: distances.FeatureSet, gallery: distances.FeatureSet, arguments: argparse.Namespace
) -> dict[str, Callable[[], object]]:
    """Works of the table, by name."""
    origin, basis = gallery
    assert basis is not None
    rows = np.concatenate([origin[:, None], basis], axis=1).reshape(-1, arguments.dim)
    point, top, threads = probe[0][0], arguments.top, arguments.threads

    def written() -> np.ndarray:
        offset = point - origin
        inside = np.matmul(basis, offset[:, :, None])[:, :, 0]
        return np.einsum("fn,fn->f", offset, offset) - np.einsum("fm,fm->f", inside, inside)

    def kernel() -> None:
        for first in range(0, len(origin), few_queries.CHUNK):
            part = slice(first, first + few_queries.CHUNK)
            few_queries.pass_compiled(probe[0], origin[part], basis[part])

    def identify() -> None:
        _, templates = FaceStore(path, _home(path)).templates("door")
        assert templates is not None
        distances.nearest(probe, (templates.origin, templates.basis), top)

    return {
        "floor": lambda: rows @ point,
        "kernel": kernel,
        "written": written,
        "nearest": lambda: distances.nearest(probe, gallery, top, backend="cpu", threads=threads),
        "numpy": lambda: distances.nearest(probe, gallery, top, backend="numpy", threads=threads),
        "distances": lambda: distances.pairwise(probe, gallery, backend="cpu", threads=threads),
        "read": lambda: FaceStore(path, _home(path)).templates("door"),
        "identify": identify,
    }


def _timed(works: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Best seconds of each work."""
    best: dict[str, float] = {}
    for turn in range(repeats):
        for name, work in works.items():
            if name not in SLOW or turn < 2:
                start = clock()
                work()
                best[name] = min(best.get(name, np.inf), clock() - start)
    return best


def _right(probe: distances.FeatureSet, gallery: distances.FeatureSet, arguments: argparse.Namespace) -> bool:
    """Whether the person is found, and the nearest among some of the templates are those of float64."""
    if distances.nearest(probe, gallery, 1).index[0, 0] != arguments.people // 2:
        return False
    some = gallery[0][:CHECKED], None if gallery[1] is None else gallery[1][:CHECKED]
    columns = np.arange(len(some[0]))
    truth = np.argsort(exact(probe, some, np.zeros_like(columns), columns), kind="stable")[: arguments.top]
    backends: tuple[distances.Backend, ...] = ("cpu", "numpy")
    return all((distances.nearest(probe, some, arguments.top, backend=name).index[0] == truth).all() for name in backends)


if __name__ == "__main__":
    sys.exit(main())

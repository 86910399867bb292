"""Speed and noise of private retrieval: passes over a gigabyte of records beside a plain sum of the same bytes.

    python lab/benchmarks/pir.py                  records of 32 KiB, 1 GiB of them, on one thread
    python lab/benchmarks/pir.py --noise 100000   the noise of this number of random queries to 1,000 records, too

`sum` adds the records' bytes as integers of 64 bits, by a compiled loop: the speed at which one core reads memory. `one query`
and `16 queries` are passes of SimplePIR's server, `two servers` of theirs (which read the half of the records that a query
chooses): the bytes of all records times the number of queries in a second. `in cache` is the same kernel on 1 MiB again and
again, which reads no memory. `hint` is the bytes of records whose hint is computed in a second, with the public matrix.

`hintless` is a query to a server without a hint: a product modulo a prime of 31 bits, and the products of weights and keys that
pack the answer, for all rows. Weights are random here, as no time depends on them. `hintless preparation` is the bytes of
records for which a server computes in a second what it keeps: measured with 2,048 rows, in 1 column and in 4,096.

Records are read in pieces of 4 MiB, all pieces by one kernel and then by the next, several times over; a pass counts the best
time of each piece, so that what other programs took is left out where they left a piece alone once. `client` and `hintless
preparation` are processor time of the calls.

It prints tables for a record, and as the last line one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from veil.compiled import compiled
from veil.pir import hintless, kernels, one_server, public_matrix, two_servers
from veil.pir.hintless_layout import DIGITS, PUBLIC_BITS, HintlessLayout
from veil.pir.layout import DIMENSION, STEP, Layout
from veil.pir.matrix import ByteRows, Matrix, add_panel, aligned
from veil.pir.packing import PreparedPacking, finished, prepared_shapes, read_keys
from veil.pir.ring import DEGREE, MODULUS
from veil.pir.two_servers import BLOCK_BYTES

PIECE_BYTES = 1 << 22
BATCH = 16
CACHED_GROUPS = 256  # words of four rows that are multiplied in the cache: 1 MiB
HINT_GROUPS, HINT_VECTORS = 128, 64  # words of four rows, and columns of the public matrix, of a piece of the hint
# GB/s and MB/s a core of the authors' Go code, on an AWS c5n.metal, and what was asked of veil.
PUBLISHED: dict[str, Any] = {"one query GB/s": (10, 13), "hint MB/s": 3.7}
WANTED = {"one query of sum": 0.8, "16 queries to one": 4.0, "hint to published": 10.0, "hintless, one query GB/s": 1.0}


CLIENT = ("client query", "client decode")
Works = list[Callable[[], object]]


@compiled
def total(words: np.ndarray) -> np.uint64:
    """The sum of integers of 64 bits."""
    result = np.uint64(0)
    for index in range(words.shape[0]):
        result += words[index]
    return result


def processor() -> str:
    """The processor's name as the system knows it."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    )
    return names[0] if names else platform.processor()


def best_passes(works: dict[str, Works], repetitions: int) -> dict[str, float]:
    """Seconds of a pass of each work: the best time of each of its pieces over all repetitions, added up."""
    best = {name: np.full(len(pieces), np.inf) for name, pieces in works.items()}
    for pieces in works.values():
        pieces[0]()  # compiles
    for _ in range(repetitions):
        for name, pieces in works.items():
            for index, piece in enumerate(pieces):
                start = time.perf_counter()
                piece()
                best[name][index] = min(best[name][index], time.perf_counter() - start)
    return {name: float(times.sum()) for name, times in best.items()}


def passes(matrix: Matrix) -> dict[str, Works]:
    """Passes over the matrix in pieces: a plain sum, one query, and a batch."""
    vectors = np.random.default_rng(1).integers(0, 1 << 32, (BATCH, matrix.layout.columns), dtype=np.uint32)
    out = aligned((BATCH, 4 * matrix.groups))
    works: dict[str, Works] = {"sum": [], "one": [], "batch": []}
    for columns, panel in matrix.panels():
        piece = aligned((BATCH, panel.shape[1]))
        piece[:] = vectors[:, columns]
        step = PIECE_BYTES // (4 * panel.shape[1])
        for first in range(0, matrix.groups, step):
            some, rows = panel[first : first + step], slice(4 * first, 4 * (first + step))
            works["sum"].append(partial(total, some.reshape(-1).view(np.uint64)))
            works["one"].append(partial(add_panel, some, piece[:1], out[:1, rows]))
            works["batch"].append(partial(add_panel, some, piece, out[:, rows]))
    return works


def in_cache(panel: np.ndarray) -> dict[str, Works]:
    """A batch, again and again on a piece of a panel that stays in the cache; and some words' hint, a few columns at a time."""
    random = np.random.default_rng(2)
    width = panel.shape[1]
    batch, public = aligned((BATCH, width)), aligned((DIMENSION, width))
    for vectors in (batch, public):
        vectors[:] = random.integers(0, 1 << 32, vectors.shape, dtype=np.uint32)
    out, wide = aligned((BATCH, 4 * CACHED_GROUPS)), aligned((DIMENSION, 4 * HINT_GROUPS))
    some = [slice(first, first + HINT_VECTORS) for first in range(0, DIMENSION, HINT_VECTORS)]
    return {
        "batch in cache": [partial(add_panel, panel[:CACHED_GROUPS], batch, out)] * 100,
        "hint": [partial(add_panel, panel[:HINT_GROUPS], public[part], wide[part]) for part in some],
    }


def xors(records: np.ndarray) -> dict[str, Works]:
    """Passes over the records in pieces for two servers' queries, one and a batch."""
    count, size = records.shape
    chosen = np.random.default_rng(3).integers(0, 2, (BATCH, count)).astype(bool)
    out, step, block = np.zeros((BATCH, size), dtype=np.uint8), max(1, PIECE_BYTES // size), max(1, BLOCK_BYTES // size)

    def work(some: slice, queries: int) -> Callable[[], object]:
        return partial(kernels.xor_chosen, records[some], chosen[:queries, some], block, 0, size, out[:queries])

    pieces = [slice(first, first + step) for first in range(0, count, step)]
    return {name: [work(some, n) for some in pieces] for name, n in (("xor one", 1), ("xor batch", BATCH))}


def server(layout: Layout, words: np.ndarray, repetitions: int) -> dict[str, float]:
    """Rates of the servers' passes in GB/s, and of the hint in MB/s."""
    matrix = Matrix(layout=layout, words=words)
    panel = next(matrix.panels())[1]
    expand: dict[str, Works] = {"expansion": [lambda: next(public_matrix.blocks(bytes(32), kernels.PANEL))]}
    works = passes(matrix) | in_cache(panel) | xors(words.view(np.uint8).reshape(layout.records, layout.size)) | expand
    packs = HintlessLayout(records=layout.records, size=layout.size)
    works |= packing_passes(packs, ByteRows(layout=packs, values=words.view(np.uint8)))
    took, gigabytes = best_passes(works, repetitions), words.nbytes / 1e9
    hint = took["hint"] * words.nbytes / panel[:HINT_GROUPS].nbytes + took["expansion"] * layout.columns / kernels.PANEL
    return {
        "sum GB/s": gigabytes / took["sum"],
        "one query GB/s": gigabytes / took["one"],
        "16 queries GB/s": BATCH * gigabytes / took["batch"],
        "16 queries in cache GB/s": 100 * BATCH * panel[:CACHED_GROUPS].nbytes / took["batch in cache"] / 1e9,
        "two servers, one query GB/s": gigabytes / took["xor one"],
        "two servers, 16 queries GB/s": BATCH * gigabytes / took["xor batch"],
        "hint MB/s": 1e3 * gigabytes / hint,
        "hintless, product GB/s": gigabytes / took["hintless product"],
        "hintless, packing s": took["hintless packing"],
        "hintless, one query GB/s": gigabytes / (took["hintless product"] + took["hintless packing"]),
    }


def packing_passes(layout: HintlessLayout, matrix: ByteRows) -> dict[str, Works]:
    """Passes of the hintless server: over the matrix in pieces, and over the digits of each polynomial of an answer."""
    random = np.random.default_rng(4)
    halves = random.integers(-(1 << 15), 1 << 15, (1, 2, layout.columns), dtype=np.int16)
    out = np.zeros((1, layout.rows), dtype=np.int64)
    works: dict[str, Works] = {"hintless product": [], "hintless packing": []}
    for columns, panel in matrix.panels():
        piece, step = np.ascontiguousarray(halves[:, :, columns]), PIECE_BYTES // panel.shape[1]
        for first in range(0, layout.rows, step):
            some = panel[first : first + step]
            works["hintless product"].append(partial(kernels.add_exact_products, some, piece, out[:, first : first + step]))
    of_weights, of_last, of_public = prepared_shapes(layout)
    weights = random.integers(-1000, 1000, of_weights[1:], dtype=np.int16)
    last = random.integers(0, MODULUS, of_last[1:], dtype=np.uint32)
    keys = random.integers(0, MODULUS, (1, 2 * DIGITS, layout.degree), dtype=np.uint32)
    values = random.integers(0, MODULUS, (1, layout.degree), dtype=np.uint32)
    read, sums = read_keys(keys), np.zeros((1, layout.degree), dtype=np.int64)
    works["hintless packing"].append(partial(read_keys, keys))
    for _ in range(layout.blocks):
        part, some = np.zeros((1, *of_public[1:]), dtype=np.uint32), weights.copy()
        made = PreparedPacking(seed=bytes(32), weights=some[None], last=last[None], public=part)
        for digit in range(DIGITS):
            works["hintless packing"].append(partial(kernels.add_exact_products, some[digit], read.halves[:, digit], sums))
        works["hintless packing"].append(partial(finished, values, sums, read, made, 0))
    return works


def preparation(layout: HintlessLayout) -> dict[str, float]:
    """Processor seconds that a server takes once for what it keeps, and bytes of records a second."""
    seconds = []
    for columns in (1, 4096):
        few = HintlessLayout(records=columns, size=DEGREE)
        matrix = hintless.arranged_rows(np.full((columns, DEGREE), 7, dtype=np.uint8), few)
        hintless.prepared(matrix, few, bytes(32))
        times = []
        for _ in range(3):
            start = time.process_time()
            hintless.prepared(matrix, few, bytes(32))
            times.append(time.process_time() - start)
        seconds.append(min(times))
    once, whole = seconds
    total = layout.blocks * once + layout.records * layout.size * (whole - once) / (4095 * DEGREE)
    return {"hintless preparation s": total, "hintless preparation MB/s": layout.records * layout.size / total / 1e6}


def hintless_client(layout: HintlessLayout) -> dict[str, float]:
    """Processor seconds of a client's calls for one record, and bytes."""
    hintless.queries([0], HintlessLayout(records=1, size=1), bytes(32))  # compiles
    times = [time.process_time()]
    messages, pending = hintless.queries([5], layout, bytes(32))
    times.append(time.process_time())
    hintless.decode([bytes(layout.answer_bytes)] * len(messages), pending)  # the time does not hang on what it holds
    times.append(time.process_time())
    asking, decoding = np.diff(times).tolist()
    return {
        "hintless client query s": asking,
        "hintless client decode s": decoding,
        "hintless query bytes": layout.parts * layout.query_bytes,
        "hintless answer bytes": layout.parts * layout.answer_bytes,
        "hintless kept bytes": layout.server_bytes,
    }


def client(layout: Layout, words: np.ndarray) -> dict[str, float]:
    """Processor seconds of a client's calls for one record, and bytes."""
    matrix = Matrix(layout=layout, words=words)
    hint = np.ones((layout.rows, DIMENSION), dtype=np.uint32)  # the time does not hang on what it holds

    one_server.queries([0], Layout(records=1, size=1), bytes(32))  # compiles
    times = [time.process_time()]
    messages, pending = one_server.queries([5], layout, bytes(32))
    times.append(time.process_time())
    answers = one_server.answers(matrix, messages)
    times.append(time.process_time())
    one_server.decode(answers, pending, hint)
    times.append(time.process_time())
    two_servers.queries(5, layout.records)
    times.append(time.process_time())
    asking, _, decoding, asking_two = np.diff(times).tolist()
    return {
        "client query s": asking,
        "client decode s": decoding,
        "client two-server query s": asking_two,
        "hint bytes": layout.hint_bytes,
        "query bytes": layout.parts * layout.query_bytes,
        "answer bytes": layout.parts * layout.answer_bytes,
    }


def noise(count: int) -> dict[str, float]:
    """The worst noise of a number of random queries to 1,000 records of 32 random bytes, all decoded and compared."""
    random = np.random.default_rng(2)
    records = random.integers(0, 256, (1000, 32), dtype=np.uint8)
    layout = Layout(records=1000, size=32)
    matrix = one_server.arranged(records, layout)
    seed = public_matrix.new_seed()
    hint, worst, wrong, done = one_server.hint(matrix, seed), 0, 0, 0
    while done < count:
        indices = random.integers(0, 1000, min(400, count - done)).tolist()
        messages, pending = one_server.queries(indices, layout, seed)
        symbols, errors = one_server.rounded(one_server.answers(matrix, messages), pending.take(), hint)
        wrong += int((symbols != records[indices]).sum())
        worst = max(worst, int(np.abs(errors).max()))
        done += len(indices)
    return {
        "queries": count,
        "wrong bytes": wrong,
        "worst noise of what decoding bears": worst / (STEP / 2),
        "worst noise of the bound at 2^-40": worst / layout.noise_bound,
    }


def hintless_noise(count: int) -> dict[str, float]:
    """The same without a hint, of queries to 1,000 records of 2,048 random bytes, which fill a polynomial."""
    random = np.random.default_rng(3)
    records = random.integers(0, 256, (1000, 2048), dtype=np.uint8)
    layout = HintlessLayout(records=1000, size=2048)
    matrix, seed = hintless.arranged_rows(records, layout), public_matrix.new_seed()
    made, worst, wrong, done = hintless.prepared(matrix, layout, seed), 0, 0, 0
    while done < count:
        indices = random.integers(0, 1000, min(50, count - done)).tolist()
        messages, pending = hintless.queries(indices, layout, seed)
        symbols, errors = hintless.rounded(hintless.answers(matrix, made, layout, messages), pending.take())
        wrong += int((symbols != records[indices]).sum())
        worst = max(worst, int(np.abs(errors).max()))
        done += len(indices)
    return {
        "hintless queries": count,
        "hintless wrong bytes": wrong,
        "hintless worst noise of what decoding bears": worst / ((1 << PUBLIC_BITS) / 512),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=32_768)
    parser.add_argument("--size", type=int, default=32_768, help="bytes of a record, a multiple of 4")
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--noise", type=int, default=0, metavar="QUERIES", help="with a hint (default: none)")
    parser.add_argument("--hintless-noise", type=int, default=0, metavar="QUERIES", help="without a hint (default: none)")
    arguments = parser.parse_args()
    layout = Layout(records=arguments.records, size=arguments.size)
    words = aligned((layout.columns * layout.size // 4,))
    words[:] = np.random.default_rng(0).integers(0, 1 << 32, len(words), dtype=np.uint32)
    result: dict[str, Any] = {"processor": processor(), "bytes": words.nbytes}
    rates = server(layout, words, arguments.repetitions)
    ratios = {
        "one query of sum": rates["one query GB/s"] / rates["sum GB/s"],
        "16 queries to one": rates["16 queries GB/s"] / rates["one query GB/s"],
        "hintless to one query": rates["hintless, one query GB/s"] / rates["one query GB/s"],
        "hint to published": rates["hint MB/s"] / PUBLISHED["hint MB/s"],
    }
    packs = HintlessLayout(records=arguments.records, size=arguments.size)
    result |= rates | ratios | client(layout, words) | preparation(packs) | hintless_client(packs)
    if arguments.noise:
        result |= noise(arguments.noise)
    if arguments.hintless_noise:
        result |= hintless_noise(arguments.hintless_noise)
    for lines in tables(result, arguments.records, arguments.size):
        print("\n".join(lines), end="\n\n")
    for name, least in WANTED.items():
        print(f"{name}: {result[name]:.3g}, wanted {least:g}")
    print(json.dumps(result | {"published": PUBLISHED}))


def tables(result: dict[str, Any], records: int, size: int) -> Iterator[list[str]]:
    """Markdown tables of what was measured: passes of servers, costs of a fetch, and noise."""
    low, high = PUBLISHED["one query GB/s"]
    total, one, batch, packs, two, two_batch = (
        result[f"{name} GB/s"]
        for name in (
            "sum",
            "one query",
            "16 queries",
            "hintless, one query",
            "two servers, one query",
            "two servers, 16 queries",
        )
    )
    product = result["hintless, product GB/s"]
    weighed, packing = result["hintless kept bytes"] / result["hintless, packing s"] / 1e9, 1 - packs / product
    yield table(
        ("pass over all records", "GB/s, times queries", "against"),
        ("plain sum of 64-bit integers", f"{total:.1f}", ""),
        (
            "one server, one query",
            f"{one:.1f}",
            f"{one / total:.2f} of the sum; SimplePIR's Go code {low} to {high} on a c5n.metal",
        ),
        ("one server, 16 queries", f"{batch:.0f}", f"{batch / one:.1f} times one query"),
        ("the same 16 on 1 MiB in the cache", f"{result['16 queries in cache GB/s']:.0f}", ""),
        ("hintless, one query", f"{packs:.1f}", f"{packs / one:.2f} of one query with a hint"),
        ("its product alone", f"{product:.1f}", f"{1 - packing:.2f} of its time"),
        ("its packing alone, of what is kept", f"{weighed:.1f}", f"{packing:.2f} of its time"),
        ("two servers, one query each", f"{two:.0f}", f"{two / total:.1f} times the sum, as a query reads half of the records"),
        ("two servers, 16 queries each", f"{two_batch:.0f}", f"{two_batch / two:.1f} times one query"),
    )
    up, down, hint, kept = (
        sized(result[f"{name} bytes"]) for name in ("hintless query", "hintless answer", "hint", "hintless kept")
    )
    seconds = {name: f"{result[f'{name} s']:.2g}" for name in (*CLIENT, *(f"hintless {name}" for name in CLIENT))}
    yield table(
        ("cost", "one server", "hintless", "two servers"),
        ("query, up", sized(result["query bytes"]), up, f"{sized((records + 7) // 8)} to each"),
        ("answer, down", sized(result["answer bytes"]), down, f"{sized(size)} from each"),
        ("hint, down once", hint, "-", "-"),
        ("kept by the server beside the records", hint, kept, "-"),
        ("prepared by a core, MB/s", f"{result['hint MB/s']:.0f}", f"{result['hintless preparation MB/s']:.0f}", "-"),
        (
            "seconds of the device for a query",
            seconds["client query"],
            seconds["hintless client query"],
            f"{result['client two-server query s']:.2g}",
        ),
        ("seconds of the device for decoding", seconds["client decode"], seconds["hintless client decode"], "-"),
    )
    measured = {"records": f"{sized(records * size)}, {records:,} of {sized(size)}", "machine": result["processor"]}
    if "queries" in result:
        measured |= {
            "queries to 1,000 records of 32 bytes, with a hint": f"{result['queries']:,}",
            "wrong bytes": f"{result['wrong bytes']}",
            "worst noise, of what decoding bears": f"{100 * result['worst noise of what decoding bears']:.1f} %",
            "worst noise, of the bound that holds but for 2^-40": f"{result['worst noise of the bound at 2^-40']:.2f}",
        }
    if "hintless queries" in result:
        measured |= {
            "queries to 1,000 records of 2,048 bytes, without a hint": f"{result['hintless queries']:,}",
            "their wrong bytes": f"{result['hintless wrong bytes']}",
            "their worst noise, of what decoding bears": (
                f"{100 * result['hintless worst noise of what decoding bears']:.1f} %"
            ),
        }
    yield table(("what", "value"), *measured.items())


def table(*rows: tuple[str, ...]) -> list[str]:
    """A Markdown table of its heads and rows."""
    heads, *others = ("| " + " | ".join(row) + " |" for row in rows)
    return [heads, "|" + " --- |" * len(rows[0]), *others]


def sized(count: int) -> str:
    """A number of bytes in units of powers of ten."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count} bytes"


if __name__ == "__main__":
    main()

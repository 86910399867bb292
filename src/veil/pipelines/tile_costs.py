"""What a server's work for private fetches takes on this machine, measured on random records for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from veil.pir import one_server, public_matrix, two_servers
from veil.pir.layout import Layout
from veil.tiles.plans import ServerCosts, TileNumbers, one_server_layout

# Records of so many bytes together do not fit into a processor's caches, and take little time.
SAMPLE_BYTES = 64 << 20
# The hint takes a thousand times the work of a query.
HINT_BYTES = 4 << 20


def measured_server_costs(numbers: TileNumbers, localizations: int, *, seconds: float = 3.0, seed: int = 0) -> ServerCosts:
    """Seconds of one core a byte of the records, measured with queries as a localization sends them.

    - `numbers`: of the map's tiles; random records of their size take their place.
    - `localizations`: of one device, from which the layout of the one-server exit follows.
    - `seconds`: for each of the three measurements, about.
    """
    random = np.random.default_rng(seed)
    layout = one_server_layout(numbers, localizations)
    count = min(numbers.tiles, max(1, SAMPLE_BYTES // numbers.record_bytes))
    records = random.integers(0, 256, (count, numbers.record_bytes), dtype=np.uint8)
    wanted = [index % count for index in range(numbers.asked)]
    to_one = [two_servers.queries(index, count)[0] for index in wanted]
    xor_s = _seconds(lambda: two_servers.answers(records, to_one), seconds) / (records.size * len(wanted))
    if layout is None:
        return ServerCosts(xor_s=xor_s, product_s=0.0, hint_s=0.0)
    parts = Layout(records=count, size=numbers.record_bytes, parts=min(layout.parts, numbers.record_bytes))
    matrix = one_server.arranged(records, parts)
    messages = [random.bytes(parts.query_bytes) for _ in range(numbers.asked * parts.parts)]
    product_s = _seconds(lambda: one_server.answers(matrix, messages), seconds) / (records.size * len(messages))
    few = records[: max(1, HINT_BYTES // numbers.record_bytes)]
    small = one_server.arranged(few, Layout(records=len(few), size=numbers.record_bytes, parts=parts.parts))
    hint_s = _seconds(lambda: one_server.hint(small, public_matrix.new_seed()), seconds) / few.size
    return ServerCosts(xor_s=xor_s, product_s=product_s, hint_s=hint_s)


def _seconds(work: Callable[[], object], least: float) -> float:
    """The least time that some work takes, repeated for `least` seconds after a first time, which may compile it."""
    work()
    times: list[float] = []
    while not times or sum(times) < least:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)

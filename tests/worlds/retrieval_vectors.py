"""Known answers of private retrieval: small databases with all that is drawn, sent and answered, as files of hex strings.

`python -m worlds.retrieval_vectors` in `tests/` writes them anew, to the tests of the client in TypeScript, which shares them.
Random bytes are a stream of SHAKE-256, so that the files are always the same. docs/reference/tiles.md says what the numbers
mean.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from veil.pir import gaussian, one_server, two_servers
from veil.pir.layout import DIMENSION, Layout

FOLDER = Path(__file__).parents[2] / "clients" / "typescript" / "tests" / "retrieval"
SEED = bytes(range(32))


def stream(name: str) -> Callable[[int], bytes]:
    """A source of bytes that are always the same."""
    calls = iter(range(1 << 30))
    return lambda count: hashlib.shake_256(f"{name} {next(calls)}".encode()).digest(count)


@contextmanager
def planted_randomness(name: str) -> Iterator[list[bytes]]:
    """Give the protocols a stream in place of the operating system's generator; gathers what they take."""
    source, taken = stream(name), []
    sample = gaussian.sample

    def draw(count: int) -> bytes:
        taken.append(source(count))
        return taken[-1]

    with mock.patch("os.urandom", draw), mock.patch.object(gaussian, "sample", lambda count: sample(count, source)):
        yield taken


def database(name: str, records: int, size: int) -> np.ndarray:
    """Records of random bytes; the first are extremes."""
    data = np.frombuffer(stream(name)(records * size), dtype=np.uint8).reshape(records, size).copy()
    data[0], data[1] = 0, 255
    return data


def hexed(items: list[bytes]) -> list[str]:
    """Hex strings of some bytes."""
    return [item.hex() for item in items]


def of_two_servers() -> list[dict[str, Any]]:
    """Fetches of one record from two servers, and from three."""
    vectors = []
    for servers, records, index in ((2, 7, 4), (2, 16, 15), (3, 19, 0)):
        data = database(f"two servers {records}", records, 5)
        with planted_randomness(f"two servers {servers} {records}") as random:
            queries = two_servers.queries(index, records, servers)
        vectors.append(
            {
                "records": hexed([record.tobytes() for record in data]),
                "index": index,
                "random": hexed(random),
                "queries": hexed(queries),
                "answers": hexed([two_servers.answer(data, query) for query in queries]),
            }
        )
    return vectors


def of_one_server() -> list[dict[str, Any]]:
    """Fetches from one server with a hint: the columns of one record, cut in two, and of one that is whole."""
    vectors = []
    for records, size, parts, index in ((4, 5, 2, 3), (6, 2, 1, 1)):
        data = database(f"one server {records}", records, size)
        layout = Layout(records=records, size=size, parts=parts)
        matrix = one_server.arranged(data, layout)
        with planted_randomness(f"one server {records}") as random:
            queries, pending = one_server.queries([index], layout, SEED)
        secrets = np.frombuffer(b"".join(random), dtype="<u4").reshape(-1, DIMENSION)
        assert np.array_equal(secrets, pending.peek().secrets)
        vectors.append(
            {
                "records": hexed([record.tobytes() for record in data]),
                "parts": parts,
                "seed": SEED.hex(),
                "index": index,
                "secrets": hexed([secret.astype("<u4").tobytes() for secret in secrets]),
                "noise_sums": pending.peek().noise_sums.tolist(),
                "queries": hexed(queries),
                "hint": one_server.hint(matrix, SEED).astype("<u4").tobytes().hex(),
                "answers": hexed(one_server.answers(matrix, queries)),
            }
        )
    return vectors


MAKERS: dict[str, Callable[[], list[dict[str, Any]]]] = {"two_servers": of_two_servers, "one_server": of_one_server}


def written(name: str) -> str:
    """The text of a file of vectors, as it has to be."""
    return json.dumps(MAKERS[name](), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in MAKERS:
        (FOLDER / f"{name}.json").write_text(written(name))

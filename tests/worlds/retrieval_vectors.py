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

from veil.pir import gaussian, hintless, one_server, two_servers
from veil.pir.hintless_layout import HintlessLayout
from veil.pir.layout import DIMENSION, Layout

FOLDER = Path(__file__).parents[2] / "clients" / "typescript" / "tests" / "retrieval"
SEED = bytes(range(32))


def stream(name: str) -> Callable[[int], bytes]:
    """A source of bytes that are always the same."""
    calls = iter(range(1 << 30))
    return lambda count: hashlib.shake_256(f"{name} {next(calls)}".encode()).digest(count)


@contextmanager
def planted_randomness(name: str) -> Iterator[tuple[list[bytes], list[int]]]:
    """Give the protocols a stream in place of the system's generator; gathers the bytes and the noise that they take."""
    source, taken, noise = stream(name), [], []
    sample = gaussian.sample

    def sampled(count: int) -> np.ndarray:
        drawn = sample(count, source)
        noise.extend(drawn.tolist())
        return drawn

    def draw(count: int) -> bytes:
        taken.append(source(count))
        return taken[-1]

    with mock.patch("os.urandom", draw), mock.patch.object(gaussian, "sample", sampled):
        yield taken, noise


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
        with planted_randomness(f"two servers {servers} {records}") as (random, _):
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
        one_server.queries([index], layout, SEED)  # compiles, and to keep what was compiled draws from the system, too
        with planted_randomness(f"one server {records}") as (random, _):
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


def of_hintless() -> list[dict[str, Any]]:
    """Fetches from one server without a hint: in one block of columns and rows, and in two of each."""
    vectors = []
    for records, size, parts, index in ((5, 7, 1, 3), (1030, 4100, 2, 1029)):
        data = database(f"hintless {records}", records, size)
        layout = HintlessLayout(records=records, size=size, parts=parts)
        matrix = hintless.arranged_rows(data, layout)
        made = hintless.prepared(matrix, layout, SEED)
        with planted_randomness(f"hintless {records}") as (_, noise):
            queries, pending = hintless.queries([index], layout, SEED)
        cut = parts * layout.columns
        vectors.append(
            {
                "records": records,
                "size": size,
                "parts": parts,
                "seed": SEED.hex(),
                "index": index,
                "record": data[index].tobytes().hex(),
                "secrets": hexed([(secret + 1).astype(np.uint8).tobytes() for secret in pending.peek().secrets]),
                "noise": np.array(noise[:cut]).astype(np.int8).tobytes().hex(),
                "key_noise": np.array(noise[cut:]).astype(np.int8).tobytes().hex(),
                "query_sha256": [hashlib.sha256(query).hexdigest() for query in queries],
                "answers": hexed(hintless.answers(matrix, made, layout, queries)),
            }
        )
    return vectors


MAKERS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "two_servers": of_two_servers,
    "one_server": of_one_server,
    "hintless": of_hintless,
}


def written(name: str) -> str:
    """The text of a file of vectors, as it has to be."""
    return json.dumps(MAKERS[name](), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in MAKERS:
        (FOLDER / f"{name}.json").write_text(written(name))

"""One server: every record comes back, with noise far below its bound, and hostile messages are refused."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from veil.errors import PirError, RangeError
from veil.pir import one_server, public_matrix, reference
from veil.pir.layout import DIMENSION, SIGMA, STEP, Layout
from worlds import generator
from worlds.power import require_mean

SEED = bytes(range(32))


def database(records: int, size: int) -> np.ndarray:
    return generator(f"records {records} {size}").integers(0, 256, (records, size), dtype=np.uint8)


def served(data: np.ndarray, parts: int = 1) -> tuple[Layout, one_server.Matrix, np.ndarray]:
    layout = Layout(records=data.shape[0], size=data.shape[1], parts=parts)
    matrix = one_server.arranged(data, layout)
    return layout, matrix, one_server.hint(matrix, SEED)


@pytest.mark.slow
@pytest.mark.parametrize(("records", "size", "parts"), [(1, 1, 1), (2, 3, 1), (9, 5, 2), (30, 8, 8), (17, 11, 3)])
def test_every_record_comes_back(records: int, size: int, parts: int) -> None:
    """Oracle: the records; and records of extremes, which weigh noise most."""
    for data in (database(records, size), np.full((records, size), 255, np.uint8), np.zeros((records, size), np.uint8)):
        layout, matrix, hint = served(data, parts)
        messages, pending = one_server.queries(range(records), layout, SEED)
        assert {len(message) for message in messages} == {layout.query_bytes}
        assert len(messages) == records * parts
        assert one_server.decode(one_server.answers(matrix, messages), pending, hint) == [item.tobytes() for item in data]


@pytest.mark.slow
def test_every_record_of_a_thousand_comes_back() -> None:
    """Oracle: the records, in batches, and one after the other by a thread more."""
    data = database(1000, 60)
    layout, matrix, hint = served(data, 2)
    np.testing.assert_array_equal(one_server.hint(matrix, SEED, threads=2), hint)
    for first in range(0, 1000, 100):
        indices = list(range(first, first + 100))
        messages, pending = one_server.queries(indices, layout, SEED)
        answers = one_server.answers(matrix, messages[:1]) + one_server.answers(matrix, messages[1:], threads=2)
        assert one_server.decode(answers, pending, hint) == [data[index].tobytes() for index in indices]


def test_the_hint_and_the_queries_are_those_of_the_definition() -> None:
    """Oracle: the definitions in Python's integers: D A, and A s + e + Delta u with noise that is small."""
    data = database(6, 5)
    layout, _, hint = served(data, 2)
    ((columns, block),) = public_matrix.blocks(SEED, layout.columns)
    assert (columns, block.shape) == (slice(0, 12), (12, DIMENSION))
    rows = [list(row) for row in zip(*reference.columns([item.tobytes() for item in data], 2), strict=True)]
    for dimension in (0, 1, 500, DIMENSION - 1):
        assert hint[:, dimension].tolist() == reference.product(rows, block[:, dimension].tolist())
    messages, pending = one_server.queries([4], layout, SEED)
    for part, (message, secret) in enumerate(zip(messages, pending.peek().secrets.tolist(), strict=True)):
        for place, value in enumerate(np.frombuffer(message, dtype="<u4").tolist()):
            sent = value - sum(map(int.__mul__, block[place].tolist(), secret)) - STEP * (place == 8 + part)
            noise = (sent + 2**31) % 2**32 - 2**31
            assert abs(noise) < 10 * SIGMA


@pytest.mark.slow
def test_noise_is_what_the_bound_is_made_of() -> None:
    """Oracle: the variance sigma^2 |d|^2 of each row; the bound; and a third of what decoding bears, which is never reached."""
    data = database(600, 24)
    layout, matrix, hint = served(data)
    spread = np.sqrt((data.astype(float) - 128).__pow__(2).sum(axis=0)) * SIGMA
    scaled, worst = [], 0.0
    for _ in range(8):
        messages, pending = one_server.queries([3] * 300, layout, SEED)
        symbols, noise = one_server.rounded(one_server.answers(matrix, messages), pending.take(), hint)
        assert (symbols == data[3]).all()
        worst = max(worst, float(np.abs(noise).max()))
        scaled.append(noise / spread)
    require_mean((np.concatenate(scaled) ** 2).ravel(), 1.0, sees=0.06)
    assert worst < layout.noise_bound < STEP / 2
    assert worst < STEP / 2 / 3


def test_a_seed_gives_one_public_matrix() -> None:
    """Oracle: SHAKE-256 of the documented bytes; blocks do not depend on the number of columns."""
    import hashlib

    both = list(public_matrix.blocks(SEED, public_matrix.BLOCK + 2))
    assert [columns for columns, _ in both] == [slice(0, 1024), slice(1024, 1026)]
    stream = hashlib.shake_256(b"veil pir public matrix 2" + SEED + (1).to_bytes(8, "little")).digest(8)
    assert both[1][1][0, :2].tolist() == [int.from_bytes(stream[:4], "little"), int.from_bytes(stream[4:], "little")]
    np.testing.assert_array_equal(both[0][1][:3], next(public_matrix.blocks(SEED, 3))[1])
    assert len(public_matrix.new_seed()) == 32
    assert public_matrix.new_seed() != public_matrix.new_seed()
    with pytest.raises(RangeError, match="32 bytes"):
        next(public_matrix.blocks(b"short", 3))


def test_secrets_are_used_once_and_stay_where_they_are() -> None:
    layout, matrix, hint = served(database(4, 3))
    messages, pending = one_server.queries([2], layout, SEED)
    received = one_server.answers(matrix, messages)
    assert repr(pending) == "<Pending: waiting>"
    for leak in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or stored"):
            leak(pending)
    one_server.decode(received, pending, hint)
    assert repr(pending) == "<Pending: decoded>"
    with pytest.raises(PirError, match="used once"):
        one_server.decode(received, pending, hint)


def test_hostile_messages_are_refused_and_leave_the_secrets() -> None:
    data = database(5, 6)
    layout, matrix, hint = served(data, 2)
    messages, pending = one_server.queries([1], layout, SEED)
    for wrong in ([messages[0][:-1]], [messages[0] + b"\0"], [b""], [*messages, b"x"]):
        with pytest.raises(PirError, match="has 40 bytes"):
            one_server.answers(matrix, wrong)
    received = one_server.answers(matrix, messages)
    for answers in ([], received[:1], [*received, received[0]]):
        with pytest.raises(PirError, match="2 queries were made"):
            one_server.decode(answers, pending, hint)
    with pytest.raises(PirError, match="have 12 bytes"):
        one_server.decode([received[0], received[1][:-4]], pending, hint)
    for wrong_hint in (hint[:-1], hint[:, :-1], np.zeros((0, DIMENSION), np.uint32)):
        with pytest.raises(PirError, match="download it again"):
            one_server.decode(received, pending, wrong_hint)
    written = hint.astype("<u4").tobytes()
    for cut in (written[:-1], written + b"\0", b""):
        with pytest.raises(PirError, match=f"has {4 * 3 * 1408} bytes"):
            one_server.read_hint(cut, layout)
    assert one_server.decode(received, pending, one_server.read_hint(written, layout)) == [data[1].tobytes()]
    assert one_server.answers(matrix, []) == []


@pytest.mark.parametrize("indices", [[], [-1], [5], [0, 5]])
def test_records_that_are_not_there_are_refused(indices: list[int]) -> None:
    with pytest.raises(RangeError, match="between 0 and 4"):
        one_server.queries(indices, Layout(records=5, size=2), SEED)


def test_the_guarantee() -> None:
    """Oracle: the sentence, written out. The counts are those of `test_security.py`."""
    assert one_server.GUARANTEE.sentence.startswith(
        "To learn which record a query fetched, the server needs an estimated 2^146 operations (counted as classical core-SVP; "
        "quantum core-SVP counts 2^132, and the homomorphic encryption standard 2^176; learning with errors in dimension 1408 "
        "modulo 2^32, Gaussian noise (sigma 6.4), uniform secret); each server learns"
    )
    assert math.isclose(STEP * 256, 2**32)

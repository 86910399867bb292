"""One server without a hint: every record comes back, packing is that of its definition, and hostile messages are refused."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from veil.errors import InputError, PirError, RangeError
from veil.pir import hintless, packing, reference
from veil.pir.hintless_layout import (
    BEARABLE,
    COST,
    DIGITS,
    GADGET,
    MARGIN,
    MOST_ROWS,
    PUBLIC_BITS,
    SECRET_BITS,
    STEP,
    HintlessLayout,
    hintless_layout,
    most_hintless_columns,
    packing_deviation,
)
from veil.pir.layout import CENTER, SIGMA
from veil.pir.packing import PreparedPacking, packed
from veil.pir.ring import DEGREE, MODULUS, residues
from worlds import generator

SEED = bytes(range(32))


def database(records: int, size: int) -> np.ndarray:
    """Random records, among them extremes."""
    data = generator(f"hintless {records} {size}").integers(0, 256, (records, size), dtype=np.uint8)
    data[0] = 255
    data[-1] = 0
    return data


def served(data: np.ndarray, degree: int, parts: int = 1) -> tuple[HintlessLayout, hintless.ByteRows, PreparedPacking]:
    layout = HintlessLayout(records=data.shape[0], size=data.shape[1], parts=parts, degree=degree)
    matrix = hintless.arranged_rows(data, layout)
    return layout, matrix, hintless.prepared(matrix, layout, SEED)


# Rows and columns that fill blocks of the ring or do not, one and several of them.
SHAPES = [(1, 1, 1, 16), (5, 16, 1, 16), (40, 33, 3, 16), (16, 40, 2, 32), (70, 130, 1, 64), (600, 30, 2, 256)]


@pytest.mark.slow
@pytest.mark.parametrize(("records", "size", "parts", "degree"), SHAPES)
def test_every_record_comes_back(records: int, size: int, parts: int, degree: int) -> None:
    """Oracle: the records."""
    data = database(records, size)
    layout, matrix, made = served(data, degree, parts)
    messages, pending = hintless.queries(range(records), layout, SEED)
    assert {len(message) for message in messages} == {layout.query_bytes} and len(messages) == records * parts
    received = hintless.answers(matrix, made, layout, messages)
    assert {len(answer) for answer in received} == {layout.answer_bytes}
    assert hintless.decode(received, pending) == [item.tobytes() for item in data]


@pytest.mark.slow
def test_every_byte_comes_back_in_the_whole_degree() -> None:
    """Oracle: the records, which hold every byte in every residue of places; threads and batches change no answer."""
    data = (np.arange(4000)[None] * 7 + np.arange(5)[:, None] * 51).astype(np.uint8)
    layout, matrix, made = served(data, DEGREE)
    assert (layout.degree, layout.blocks, layout.server_bytes) == (2048, 2, sum(part.nbytes for part in made[1:]))
    again = hintless.prepared(matrix, layout, SEED, threads=2)
    for one, two in zip(made[1:], again[1:], strict=True):
        np.testing.assert_array_equal(one, two)
    messages, pending = hintless.queries([4, 0, 2], layout, SEED)
    received = hintless.answers(matrix, made, layout, messages, threads=2)
    assert received == [hintless.answers(matrix, made, layout, [message])[0] for message in messages]
    assert hintless.decode(received, pending) == [data[index].tobytes() for index in (4, 0, 2)]


@pytest.mark.parametrize(("records", "size"), [(3, 16), (40, 21)])
def test_packing_is_that_of_its_definition(records: int, size: int) -> None:
    """Oracle: the definition on polynomials in Python's integers: hints, automorphisms, digits and the keys of a real query."""
    degree, data = 16, database(records, size)
    layout, matrix, made = served(data, degree)
    (message,), _ = hintless.queries([1], layout, SEED)
    words = np.frombuffer(message, dtype="<u4").tolist()
    query, keys = words[: layout.columns], np.reshape(words[layout.columns :], (2, DIGITS, degree)).tolist()
    publics = [item[0].tolist() for item in packing.public_columns(SEED, layout)]
    w = packing.public_keys(SEED, degree).reshape(2, DIGITS, degree).tolist()
    answer = np.frombuffer(hintless.answers(matrix, made, layout, [message])[0], dtype="<u4").astype(np.int64)
    rows = [column.tolist() for column in data.T] + [[0] * records] * (layout.blocks * degree - size)
    for block in range(layout.blocks):
        some = rows[block * degree : (block + 1) * degree]
        values = [sum(map(int.__mul__, row, query)) % MODULUS for row in some]
        hints = [reference.hint_polynomial(row, publics, MODULUS) for row in some]
        public, secret = reference.packed(
            hints, values, {5: w[0], -1: w[1]}, {5: keys[0], -1: keys[1]}, **GADGET._asdict(), modulus=MODULUS
        )
        got = answer[block * degree : (block + 1) * degree]
        for part, bits, given in ((got % 2**PUBLIC_BITS, PUBLIC_BITS, public), (got >> PUBLIC_BITS, SECRET_BITS, secret)):
            assert part.tolist() == [(2 * value * 2**bits + MODULUS) // (2 * MODULUS) % 2**bits for value in given]


def test_the_hint_gives_the_masks_of_all_products() -> None:
    """Oracle: Eq. 14 for a random secret: the constant of A s is the product of a row and the masks a s."""
    random, degree = generator("hint polynomial"), 16
    row = random.integers(0, 256, 40).tolist()
    publics = random.integers(0, MODULUS, (3, degree)).tolist()
    secret = random.integers(0, MODULUS, degree).tolist()
    masks = [value for public in publics for value in reference.ring_product(public, secret, MODULUS)]
    hint = reference.hint_polynomial(row, publics, MODULUS)
    assert reference.ring_product(hint, secret, MODULUS)[0] == sum(map(int.__mul__, row, masks[:40])) % MODULUS


def test_products_modulo_the_prime_are_exact() -> None:
    """Oracle: NumPy in 64 bits, in a panel and beyond; and the largest bytes with all halves of integers at their ends."""
    random = generator("exact products")
    ends = [MODULUS - 1, 2**31 - 2**16 - 2**15 - 1, 2**31 - 2**17 - 2**15, 2**15, 2**15 - 1]
    for records, size in ((3, 5), (5000, 9), (2111, 4)):
        data = random.integers(0, 256, (records, size), dtype=np.uint8)
        drawn = random.integers(0, MODULUS, (3, records), dtype=np.uint32)
        extreme = np.array(ends, dtype=np.uint32)[:, None].repeat(records, axis=1)
        for data_of, vectors in ((data, drawn), (np.full_like(data, 255), extreme)):
            matrix = hintless.arranged_rows(data_of, HintlessLayout(records=records, size=size, degree=16))
            expected = vectors.astype(np.uint64) @ data_of.astype(np.uint64) % np.uint64(MODULUS)
            for threads in (1, 2):
                np.testing.assert_array_equal(hintless.exact_products(matrix, vectors, threads), expected)


def test_the_bound_holds_for_the_worst_bytes() -> None:
    """Oracle: the exponential bound on the tail, added up over a record: sub-Gaussian parts, and what is never noise."""
    for size in (1, 32_768, 1 << 20):
        most = most_hintless_columns(size)
        deviation = math.hypot(CENTER * SIGMA * math.sqrt(most), MARGIN * packing_deviation(DEGREE))
        hard = MODULUS / 2 ** (SECRET_BITS + 1) + MODULUS / 2 ** (PUBLIC_BITS + 1) + 256
        bound = HintlessLayout(records=most, size=size).noise_bound
        assert math.log2(2 * size * math.exp(-((bound / deviation) ** 2) / 2)) == pytest.approx(-40)
        assert bound < BEARABLE < STEP / 2 - hard
        with pytest.raises(RangeError, match="use fewer parts"):
            HintlessLayout(records=most + 1, size=size)
    assert most_hintless_columns(32_768) == 134_879


def test_layouts_cost_what_they_say() -> None:
    layout = hintless_layout(1000, 100_000)
    assert (layout.parts, layout.rows, layout.columns, layout.blocks) == (4, 25_000, 4000, 13)
    assert layout.query_bytes == 4 * 4000 + 2 * 5 * 2048 * 4
    assert layout.answer_bytes == 13 * 2048 * 4
    assert layout.rows <= MOST_ROWS < -(-100_000 // 3)
    for records, size, parts in ((0, 1, 1), (1, 0, 1), (1, 1, 2)):
        with pytest.raises(RangeError, match="are no database"):
            HintlessLayout(records=records, size=size, parts=parts)
    with pytest.raises(RangeError, match="power of two"):
        HintlessLayout(records=1, size=1, degree=100)


def test_secrets_are_used_once_and_stay_where_they_are() -> None:
    layout, matrix, made = served(database(4, 3), 16)
    messages, pending = hintless.queries([2], layout, SEED)
    received = hintless.answers(matrix, made, layout, messages)
    for leak in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or stored"):
            leak(pending)
    hintless.decode(received, pending)
    assert repr(pending) == "<Pending: decoded>"
    with pytest.raises(PirError, match="used once"):
        hintless.decode(received, pending)


def test_hostile_messages_are_refused_and_leave_the_secrets() -> None:
    data = database(5, 6)
    layout, matrix, made = served(data, 16, 2)
    messages, pending = hintless.queries([1], layout, SEED)
    due = 4 * (10 + 2 * DIGITS * 16)
    for wrong in ([messages[0][:-1]], [messages[0] + b"\0"], [b""], [*messages, b"x"]):
        with pytest.raises(PirError, match=f"has {due} bytes"):
            hintless.answers(matrix, made, layout, wrong)
    for place in (0, 9, 10, due // 4 - 1):
        for value in (MODULUS, 2**32 - 1):
            twin = bytearray(messages[0])
            twin[4 * place : 4 * place + 4] = value.to_bytes(4, "little")
            with pytest.raises(PirError, match=f"below {MODULUS}"):
                hintless.answers(matrix, made, layout, [messages[1], bytes(twin)])
            with pytest.raises(PirError, match=f"below {MODULUS}"):
                hintless.require_query(bytes(twin), layout)
    most = np.full(due // 4, MODULUS - 1, dtype="<u4").tobytes()
    assert len(hintless.answers(matrix, made, layout, [most])[0]) == layout.answer_bytes
    received = hintless.answers(matrix, made, layout, messages)
    for answers in ([], received[:1], [*received, received[0]]):
        with pytest.raises(PirError, match="2 queries were made"):
            hintless.decode(answers, pending)
    with pytest.raises(PirError, match=f"have {layout.answer_bytes} bytes"):
        hintless.decode([received[0], received[1][:-4]], pending)
    assert hintless.decode(received, pending) == [data[1].tobytes()]
    assert hintless.answers(matrix, made, layout, []) == []
    with pytest.raises(InputError, match="arrange the records"):
        hintless.prepared(matrix, HintlessLayout(records=5, size=6, degree=16), SEED)


@pytest.mark.parametrize("indices", [[], [-1], [5], [0, 5]])
def test_records_that_are_not_there_are_refused(indices: list[int]) -> None:
    with pytest.raises(RangeError, match="between 0 and 4"):
        hintless.queries(indices, HintlessLayout(records=5, size=2, degree=16), SEED)


def test_packed_numbers_open_to_what_was_packed() -> None:
    """Oracle: numbers encrypted by hand with no noise but that of packing, of which the middle of a symbol is far."""
    degree = 16
    layout, _, made = served(np.zeros((1, degree), np.uint8), degree)
    (message,), pending = hintless.queries([0], layout, SEED)
    keys = np.frombuffer(message, dtype="<u4")[1:].astype(np.uint32).reshape(1, 2 * DIGITS, degree)
    symbols = np.arange(degree) * 16 + 3
    answer = packed(residues(symbols * STEP)[None], keys, made)[0]
    held = pending.peek()._replace(noise_sums=np.zeros(1, dtype=np.int64))
    assert hintless.rounded([answer.astype("<u4").tobytes()], held)[0][0].tolist() == symbols.tolist()


def test_the_guarantee() -> None:
    """Oracle: the counts by `lattice_cost`, which has tests of its own, and the assumptions that the proof needs."""
    sentence = hintless.GUARANTEE.sentence
    assert COST.block == 747 and hintless.GUARANTEE.bits == math.floor(COST.classical) == 218
    assert "2^197" in sentence and "2^249" in sentence
    for assumption in (
        "ring learning with errors in degree 2048",
        "ternary secret",
        "automorphisms of the secret under itself",
    ):
        assert assumption in sentence

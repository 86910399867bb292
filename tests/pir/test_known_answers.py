"""Known answers of private retrieval, followed by hand in Python's integers: no line here is shared with `veil.pir`."""

from __future__ import annotations

import hashlib
import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from worlds.retrieval_vectors import FOLDER, MAKERS, written

Q = 2**32


def vectors(name: str) -> list[dict[str, Any]]:
    made = json.loads((FOLDER / f"{name}.json").read_text())
    assert len(made) >= 2
    return list(made)


def words(text: str | bytes, size: int = 4) -> list[int]:
    data = bytes.fromhex(text) if isinstance(text, str) else text
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


def centered(value: int, modulus: int) -> int:
    return (value + modulus // 2) % modulus - modulus // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_the_files_are_what_the_protocols_say_today(name: str) -> None:
    """Oracle: the kept files. A change of a protocol is a change of these."""
    assert (Path(FOLDER) / f"{name}.json").read_text() == written(name)


@pytest.mark.parametrize("vector", vectors("two_servers"), ids=lambda vector: len(vector["queries"]))
def test_two_servers(vector: dict[str, Any]) -> None:
    """Oracle: Eq. 1 and 2 of docs/theory/pir.md on integers, a bit for each record."""
    records = [int(record, 16) for record in vector["records"]]
    subsets = [int.from_bytes(bytes.fromhex(query), "little") for query in vector["queries"]]
    for subset, drawn in zip(subsets, vector["random"], strict=False):
        assert subset == int.from_bytes(bytes.fromhex(drawn), "little") % 2 ** len(records)
    assert reduce(int.__xor__, subsets) == 2 ** vector["index"]
    for subset, answer in zip(subsets, vector["answers"], strict=True):
        chosen = [record for at, record in enumerate(records) if subset >> at & 1]
        assert reduce(int.__xor__, chosen, 0) == int(answer, 16)
    assert reduce(int.__xor__, [int(answer, 16) for answer in vector["answers"]]) == records[vector["index"]]


@pytest.mark.parametrize("vector", vectors("one_server"), ids=lambda vector: vector["parts"])
def test_one_server(vector: dict[str, Any]) -> None:
    """Oracle: Eq. 3 to 5 of docs/theory/pir.md on integers."""
    parts, n, columns = vector["parts"], 1408, [bytes.fromhex(record) for record in vector["records"]]
    rows = -(-len(columns[0]) // parts)
    columns = [
        record.ljust(parts * rows, b"\0")[part * rows : (part + 1) * rows] for record in columns for part in range(parts)
    ]
    start = b"veil pir public matrix 2" + bytes.fromhex(vector["seed"]) + bytes(8)
    public = words(hashlib.shake_256(start).digest(4 * n * len(columns)))
    public_rows = [public[at : at + n] for at in range(0, len(public), n)]
    hint = words(vector["hint"])
    for row in range(rows):
        for entry in (0, 1, n - 1):
            total = sum(column[row] * line[entry] for column, line in zip(columns, public_rows, strict=True))
            assert hint[row * n + entry] == total % Q
    decoded = b""
    for part, (query, secret, answer) in enumerate(
        zip(*(map(words, vector[key]) for key in ("queries", "secrets", "answers")), strict=True)
    ):
        wanted = vector["index"] * parts + part
        noise = [
            centered(sent - sum(map(int.__mul__, line, secret)) - 2**24 * (at == wanted), Q)
            for at, (sent, line) in enumerate(zip(query, public_rows, strict=True))
        ]
        assert max(map(abs, noise)) < 70 and any(noise) and sum(noise) == vector["noise_sums"][part]
        for row in range(rows):
            assert answer[row] == sum(column[row] * sent for column, sent in zip(columns, query, strict=True)) % Q
            inner = sum(map(int.__mul__, hint[row * n : (row + 1) * n], secret))
            value = answer[row] - inner - 128 * sum(noise)
            decoded += bytes([(value + 2**23) % Q >> 24])
    assert decoded[: len(vector["records"][0]) // 2] == bytes.fromhex(vector["records"][vector["index"]])


PRIME, D = 2147389441, 2048


def public(domain: bytes, seed: bytes, number: int) -> list[int]:
    stream = hashlib.shake_256(domain + seed + number.to_bytes(8, "little")).digest(4 * D + 4096)
    return [word % 2**31 for word in words(stream) if word % 2**31 < PRIME][:D]


def product(left: list[int], right: list[int]) -> list[int]:
    """The product modulo X^D + 1, by one product of two long integers with a coefficient in each 96 bits."""
    one, two = (sum((value % PRIME) << 96 * place for place, value in enumerate(factor)) for factor in (left, right))
    whole = one * two
    parts = [whole >> 96 * place & (2**96 - 1) for place in range(2 * D)]
    return [(parts[place] - parts[place + D]) % PRIME for place in range(D)]


def at_power(values: list[int], power: int) -> list[int]:
    """The polynomial at X^power."""
    out = [0] * D
    for place, value in enumerate(values):
        turned = place * power % (2 * D)
        out[turned % D] += value if turned < D else -value
    return out


@pytest.mark.slow
@pytest.mark.parametrize("vector", vectors("hintless"), ids=lambda vector: vector["records"])
def test_hintless(vector: dict[str, Any]) -> None:
    """Oracle: Eq. 13, 16 and 18 of docs/theory/pir.md on integers: queries by digests, and answers by what they decode to."""
    seed, parts = bytes.fromhex(vector["seed"]), vector["parts"]
    columns, rows = vector["records"] * parts, -(-vector["size"] // parts)
    noise = [centered(value, 256) for value in bytes.fromhex(vector["noise"])]
    key_noise = [centered(value, 256) for value in bytes.fromhex(vector["key_noise"])]
    decoded = b""
    for part, (text, digest, answer) in enumerate(
        zip(vector["secrets"], vector["query_sha256"], vector["answers"], strict=True)
    ):
        secret = [value - 1 for value in bytes.fromhex(text)]
        own, keys = noise[part * columns : (part + 1) * columns], key_noise[part * 10 * D : (part + 1) * 10 * D]
        masks = [
            value
            for block in range(-(-columns // D))
            for value in product(public(b"veil pir ring columns 1", seed, block), secret)
        ]
        wanted = vector["index"] * parts + part
        sent = [
            mask + error + (PRIME - 1) // 256 * (at == wanted) for at, (mask, error) in enumerate(zip(masks, own, strict=False))
        ]
        assert len(sent) == columns
        for number in range(10):
            turned = at_power(secret, 5 if number < 5 else -1)
            mask = product(public(b"veil pir ring keys 1", seed, number), secret)
            sent += [
                masked + error + 2 ** (6 + 5 * (number % 5)) * value
                for masked, error, value in zip(mask, keys[number * D : (number + 1) * D], turned, strict=True)
            ]
        assert hashlib.sha256(b"".join((value % PRIME).to_bytes(4, "little") for value in sent)).hexdigest() == digest
        received = words(answer)
        assert len(received) == -(-rows // D) * D
        middle = round(2**18 * 128 * sum(own) / PRIME)
        for block in range(0, len(received), D):
            opened = product([word % 2**18 for word in received[block : block + D]], secret)
            values = [
                (word >> 18) * 16 - centered(mask, PRIME) - middle for word, mask in zip(received[block:], opened, strict=False)
            ]
            decoded += bytes((value + 512) % 2**18 >> 10 for value in values[: rows - block])
    record = b"".join(decoded[part * rows : (part + 1) * rows] for part in range(parts))[: vector["size"]]
    assert record == bytes.fromhex(vector["record"])

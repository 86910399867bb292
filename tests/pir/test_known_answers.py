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

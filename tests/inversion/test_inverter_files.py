"""Weights and unfinished trainings on disk: whole, verified, and never another run's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError
from veil.files.attack_networks import read_weights, write_weights
from veil.inversion.weights import Training, Weights
from worlds import generator


def weights() -> Weights:
    random = generator("weights")
    arrays = {"a.weight": random.normal(size=(3, 4)).astype(np.float16), "b": np.array([1, 2], dtype=np.float16)}
    training = Training(
        photographs=3, source="s", license="l", command="veil", steps=7, seconds=1.5, seed=2, dims=(2, 4), codebook="ab" * 32
    )
    return Weights(kind="subspaces", arrays=arrays, training=training)


def test_weights_come_back_as_they_were(tmp_path: Path) -> None:
    path, before = tmp_path / "w.npz", weights()
    write_weights(path, before)
    after = read_weights(path)
    assert (after.kind, after.training, after.digest) == (before.kind, before.training, before.digest)
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(after.arrays[name], array)
        assert after.arrays[name].dtype == np.float16


def test_the_hash_covers_everything() -> None:
    before = weights()
    other = {**before.arrays, "b": np.array([1, 2.002], dtype=np.float16)}
    changed = [
        replace(before, kind="raw"),
        replace(before, training=replace(before.training, license="free")),
        replace(before, arrays=other),
        replace(before, arrays={"a.weight": before.arrays["a.weight"].T, "b": before.arrays["b"]}),
    ]
    assert len({before.digest, *(item.digest for item in changed)}) == 5


def test_damage_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    """Every tenth byte in turn. Broken twin: a reader that trusts the file's own checksums alone."""
    path, broken = tmp_path / "w.npz", tmp_path / "broken.npz"
    write_weights(path, weights())
    data, whole = path.read_bytes(), weights()
    for position in range(0, len(data), 10):
        broken.write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
        try:
            assert read_weights(broken).digest == whole.digest  # a byte that nothing reads
        except FileFormatError:
            continue
    for text in (b"", b"PK", data[: len(data) // 2]):
        broken.write_bytes(text)
        with pytest.raises(FileFormatError):
            read_weights(broken)
    with pytest.raises(FileFormatError, match="there is no file"):
        read_weights(tmp_path / "none.npz")


def test_a_forged_array_does_not_match_the_hash(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    write_weights(path, weights())
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez(path, **arrays | {"b": np.array([9, 9], dtype=np.float16)})
    with pytest.raises(FileFormatError, match="hash"):
        read_weights(path)


def test_weights_that_are_not_finite_halves_are_refused() -> None:
    for array in (np.array([np.nan], dtype=np.float16), np.array([1.0], dtype=np.float32)):
        with pytest.raises(InputError, match="half precision"):
            replace(weights(), arrays={"b": array})

"""The record of a training that needs PyTorch, made by hand."""

from __future__ import annotations

from veil.inversion.weights import Training
from worlds.schemas import validate


def test_a_training_is_described() -> None:
    training = Training(
        photographs=2, source="s", license="l", command="veil", steps=9, seconds=1.5, seed=0, dims=(2, 4), codebook="ab" * 32
    )
    assert Training.from_json(training.as_json()) == training
    record = {"kind": "subspaces", "training": training.as_json(), "sha256": "cd" * 32, "parameters": 5, "bytes": 7}
    validate("lab-train-inversion", {**record, "losses": [{"step": 9, "loss": 0.5}]})

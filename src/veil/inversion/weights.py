"""Trained weights of inversion networks as arrays, with the record of their training and a hash over all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veil.errors import InputError
from veil.inversion.maps import KINDS, Kind


@dataclass(frozen=True, kw_only=True)
class Training:
    """The record of a training.

    - `photographs`, `source`, `license`: number of the photographs, where they come from, and their license.
    - `command`: the command line, without paths.
    - `steps`, `seconds`, `seed`: steps that were taken, seconds of work, and the seed.
    - `dims`: the m that were trained on; empty for raw descriptors.
    - `codebook`: SHA-256 (hex) of the decoys or the dictionary that subspaces or words were drawn from, "" for raw descriptors.
    - `start`: SHA-256 (hex) of the weights that it started from, "" for random ones.
    - `lifting`: the way of lifting of subspaces, "" for raw descriptors and words.
    """

    photographs: int
    source: str
    license: str
    command: str
    steps: int
    seconds: float
    seed: int
    dims: tuple[int, ...] = ()
    codebook: str = ""
    start: str = ""
    lifting: str = ""

    def as_json(self) -> dict[str, object]:
        """The record in the header of the weights, whose hash covers these very keys.

        `start` and `lifting` are there if they are not "".
        """
        record: dict[str, object] = {
            "photographs": self.photographs,
            "source": self.source,
            "license": self.license,
            "command": self.command,
            "steps": self.steps,
            "seconds": self.seconds,
            "seed": self.seed,
            "dims": list(self.dims),
            "codebook": self.codebook,
        }
        later = {"start": self.start, "lifting": self.lifting}
        return record | {name: value for name, value in later.items() if value}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Training:
        """The training of a record that `as_json` made. Raises LookupError for a record that lacks a key."""
        return Training(
            photographs=record["photographs"],
            source=record["source"],
            license=record["license"],
            command=record["command"],
            steps=record["steps"],
            seconds=record["seconds"],
            seed=record["seed"],
            dims=tuple(record["dims"]),
            codebook=record["codebook"],
            start=record.get("start", ""),
            lifting=record.get("lifting", ""),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """Weights of a network: its arrays by name, in half precision, and the `kind` of map that it reads.

    Raises InputError for an unknown kind, or arrays that are not finite or of another precision.
    """

    kind: Kind
    arrays: Mapping[str, np.ndarray]
    training: Training

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        broken = [name for name, array in self.arrays.items() if array.dtype != np.float16 or not np.isfinite(array).all()]
        if broken:
            raise InputError(
                f"weights must be finite and of half precision, {broken[0]} is not; train again, or fetch them again"
            )

    @property
    def header(self) -> dict:
        """Everything but the arrays, as a record for JSON."""
        return {"kind": self.kind, "training": self.training.as_json()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of header and arrays."""
        hasher = hashlib.sha256(json.dumps(self.header, sort_keys=True).encode())
        for name in sorted(self.arrays):
            array = np.ascontiguousarray(self.arrays[name], dtype="<f2")
            hasher.update(f"|{name}|{array.shape}|".encode() + array.tobytes())
        return hasher.hexdigest()

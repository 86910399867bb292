"""The hintless exit of served tiles on disk: its facts, the records as its matrix, and what is prepared once."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from veil.errors import FileFormatError, InputError, VeilError
from veil.files.atomic import read_bytes, write_bytes
from veil.pir import hintless
from veil.pir.hintless_layout import HintlessLayout, hintless_layout
from veil.pir.matrix import ByteRows
from veil.pir.packing import PreparedPacking, prepared_shapes
from veil.pir.public_matrix import SEED_BYTES, new_seed

FACTS, MATRIX, PREPARED = "hintless.json", "hintless_rows.bin", "hintless_packing.bin"
FILES = (FACTS, MATRIX, PREPARED)


@dataclass(frozen=True, kw_only=True)
class HintlessFacts:
    """Facts of the hintless exit that devices need.

    - `layout`: of the records in the server's matrix.
    - `seed`, 32 bytes: of the public polynomials.
    """

    layout: HintlessLayout
    seed: bytes

    def as_json(self) -> dict[str, Any]:
        """The stable record of docs/reference/tiles.md#served."""
        return {
            "degree": self.layout.degree,
            "parts": self.layout.parts,
            "seed": self.seed.hex(),
            "query_bytes": self.layout.query_bytes,
            "answer_bytes": self.layout.answer_bytes,
        }


def hintless_facts(value: Any, *, records: int, size: int) -> HintlessFacts:
    """The facts that `HintlessFacts.as_json` wrote, which may come from anyone, for a number of records of one size.

    Raises FileFormatError if they are damaged, of other records, or of another degree than this version of veil has.
    """
    try:
        parts, seed = value["parts"], bytes.fromhex(value["seed"])
        if type(parts) is not int or len(seed) != SEED_BYTES:
            raise ValueError("a value is none of its kind")
        facts = HintlessFacts(layout=HintlessLayout(records=records, size=size, parts=parts), seed=seed)
        if facts.as_json() != {key: value[key] for key in facts.as_json()}:
            raise ValueError("its degree or sizes are others")
    except (KeyError, TypeError, ValueError, VeilError) as error:
        raise FileFormatError(f"what is said of the hintless exit is damaged ({error}); ask whoever serves it") from None
    return facts


def write_hintless(folder: Path, records: UInt8[np.ndarray, "records size"], threads: int = 1) -> None:
    """Write what the hintless exit needs, its facts last: without them the rest is as if it were not there.

    Raises RangeError where noise does not allow this number of records.
    """
    layout, seed = hintless_layout(*records.shape), new_seed()
    matrix = hintless.arranged_rows(records, layout)
    matrix.values.tofile(folder / MATRIX)
    made = hintless.prepared(matrix, layout, seed, threads)
    with (folder / PREPARED).open("wb") as file:
        made.weights.astype("<i2", copy=False).tofile(file)
        made.last.astype("<u4", copy=False).tofile(file)
        made.public.astype("<u4", copy=False).tofile(file)
    write_bytes(folder / FACTS, json.dumps(HintlessFacts(layout=layout, seed=seed).as_json(), indent=2).encode())


def read_hintless(folder: Path, *, records: int, size: int) -> HintlessFacts | None:
    """Facts of the hintless exit in a folder of served tiles; None if it is not offered."""
    path = folder / FACTS
    return hintless_facts(json.loads(read_bytes(path)), records=records, size=size) if path.is_file() else None


def read_prepared(folder: Path, facts: HintlessFacts) -> tuple[ByteRows, PreparedPacking]:
    """The matrix and what was prepared, mapped into memory. Raises FileFormatError for another number of bytes."""
    try:
        matrix = ByteRows(layout=facts.layout, values=_mapped(folder / MATRIX))
        parts, shapes = _mapped(folder / PREPARED), prepared_shapes(facts.layout)
        ends = np.cumsum([2 * math.prod(shapes[0]), *(4 * math.prod(shape) for shape in shapes[1:])])
        weights, last, public = (
            part.view(kind).reshape(shape)
            for part, kind, shape in zip(np.split(parts, ends[:-1]), ("<i2", "<u4", "<u4"), shapes, strict=True)
        )
        made = PreparedPacking(seed=facts.seed, weights=weights, last=last, public=public)
    except (OSError, ValueError, InputError) as error:
        raise FileFormatError(f"cannot use the hintless exit in {folder} ({error}); add the tiles again") from None
    return matrix, made


def _mapped(path: Path) -> UInt8[np.ndarray, "bytes"]:
    return np.memmap(path, dtype=np.uint8, mode="r")

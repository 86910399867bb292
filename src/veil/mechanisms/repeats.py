"""Near repeats: features that left before leave again as they did then.

Two lifts of two descriptors that are nearly equal pass each other near both, so that two frames of a video give their
descriptors away (release.md#near-repeats). Nothing new is drawn for a feature that a device recognizes: its earlier subspace,
or its earlier words, leave in its place. The device recognizes it by a sketch, and keeps no descriptor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

from veil.errors import InputError
from veil.forms import Lines, Released, Subsets, Subspaces
from veil.mechanisms.carried_lines import DrawnLines, carried
from veil.one_line import one_line
from veil.randomness import Randomness, gaussian
from veil.wire.message import LineUpload, Message, Upload

SKETCH_BITS = 512
# Distance of unit descriptors up to which one feature shows the other again.
SAME = 0.6

Sketches = UInt8[np.ndarray, "_ 64"]
Places = Float64[np.ndarray, "_ 2"]
Dtype = Literal["float16", "float32"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnFeatures:
    """Features that left before: a sketch of each, and what left in its place.

    - `sketches`, uint8 (N, 64): signs of projections of each descriptor on secret directions.
    - `draws`: arrays of N rows by the name of their field in the form, `origin` and `basis` of subspaces or `ids` of words.
    - `lines`: the N lines that left in place of positions, where they were drawn; all are of one picture.

    Raises InputError for arrays of another length, or sketches of another size.
    """

    sketches: UInt8[np.ndarray, "_ _"]
    draws: Mapping[str, np.ndarray]
    lines: DrawnLines | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.sketches.ndim != 2 or self.sketches.shape[1] != SKETCH_BITS // 8:
            raise InputError(f"sketches have {SKETCH_BITS} bits, in rows of bytes, got {self.sketches.shape}")
        if any(len(rows) != len(self) for rows in self.draws.values()):
            raise InputError(f"{len(self)} features need as many draws")

    def __len__(self) -> int:
        return len(self.sketches)

    @staticmethod
    def of(
        message: Message, sketches: Sketches, rows: np.ndarray, *, dtype: Dtype = "float32", places: Places | None = None
    ) -> DrawnFeatures:
        """Those of the features `rows` of a message (indices or a mask), rounded as subspaces are sent.

        `places` are the keypoints of its features in the normalized plane, where its lines were drawn for each by itself.
        """
        draws = drawn_arrays(message.form)
        if isinstance(message.form, Subspaces):
            draws = {name: values.astype(dtype) for name, values in draws.items()}
        lines = None
        if isinstance(message, LineUpload) and places is not None:
            normals = message.lines.coefficients[:, :2]
            lines = DrawnLines(places=places, normals=normals, aligned=message.lines.aligned).take(rows)
        return DrawnFeatures(sketches=sketches[rows], draws={name: values[rows] for name, values in draws.items()}, lines=lines)


@dataclass(frozen=True, kw_only=True, eq=False)
class Answered:
    """A message in which features that left before have their earlier draws.

    - `message`: what may leave.
    - `rows`, int64: the features of the message that was given that are still in it.
    - `is_new`: which of these were drawn anew.
    """

    message: Message
    rows: Int64[np.ndarray, "kept"]
    is_new: Bool[np.ndarray, "kept"]

    __repr__ = one_line


def sketched(vectors: Float32[np.ndarray, "features dim"], randomness: Randomness) -> Sketches:
    """Sketches of unit descriptors: on which side of each of 512 secret hyperplanes they lie.

    Two descriptors at an angle a lie on different sides of a share a / pi of them (docs/theory/release.md, Eq. 17).
    """
    contexts = [b"sketch|%d" % bit for bit in range(SKETCH_BITS)]
    directions = gaussian(randomness.bits64(contexts, vectors.shape[1]))
    return np.packbits(vectors.astype(np.float64) @ directions.T > 0, axis=1)


def most_bits(distance: float) -> int:
    """The number of bits in which sketches of two unit descriptors at this distance differ, in the mean."""
    return round(SKETCH_BITS * 2 * math.asin(min(1.0, distance / 2)) / math.pi)


def with_earlier_draws(
    message: Message, sketches: Sketches, earlier: Sequence[DrawnFeatures], *, places: Places | None = None
) -> Answered:
    """The message with the earlier draws of those of its features that left before.

    `sketches` are those of its features, in their order. Pairs of a feature and an earlier one within `SAME` are formed one to
    one, the nearest first. A feature that may show an earlier one again, but got none, leaves the message: drawn anew it would
    give both away. With `places`, keypoints in the normalized plane, lines that were drawn for each move with the picture, and
    a feature whose line cannot leaves the message; other lines stay as they are. Words of epsilon 0 stay, too, as equal ones
    would say what nothing is to say. Raises InputError for earlier draws of another form, and if no feature is left.
    """
    count = len(message)
    known = [item for item in earlier if len(item)]
    says_nothing = isinstance(message.form, Subsets) and message.form.mechanism.epsilon == 0
    if not known or says_nothing:
        return Answered(message=message, rows=np.arange(count), is_new=np.ones(count, dtype=bool))
    feature, other, bits = _near(sketches, np.concatenate([item.sketches for item in known]))
    partner = np.full(count, -1, dtype=np.int64)
    taken: set[int] = set()
    for place in np.lexsort((other, feature, bits)):
        if partner[feature[place]] < 0 and int(other[place]) not in taken:
            partner[feature[place]] = other[place]
            taken.add(int(other[place]))
    ambiguous = np.zeros(count, dtype=bool)
    ambiguous[feature] = True
    kept = ~ambiguous | (partner >= 0)
    answered = replace(message, form=_with_rows(message.form, known, partner))
    if isinstance(answered, LineUpload) and places is not None:
        lines, has_line = _with_lines(answered.lines, places, known, partner)
        answered, kept = replace(answered, lines=lines), kept & has_line
    if not kept.any():
        raise InputError(
            "all features left before, and none has a line that moves with the picture; release another photograph"
        )
    rows = np.flatnonzero(kept)
    answered = _taken(answered, rows)
    return Answered(message=answered, rows=rows, is_new=partner[rows] < 0)


def _with_lines(
    lines: Lines, places: Places, earlier: Sequence[DrawnFeatures], partner: Int64[np.ndarray, "features"]
) -> tuple[Lines, Bool[np.ndarray, "features"]]:
    """The lines with those of earlier pictures where a feature has a partner, and which features have a line to leave with."""
    has_line, first = partner < 0, 0
    for item in earlier:
        rows = np.flatnonzero((first <= partner) & (partner < first + len(item)))
        if item.lines is not None and len(rows):
            lines, moved = carried(lines, places, rows, item.lines.take(partner[rows] - first))
            has_line[rows] = moved
        first += len(item)
    return lines, has_line


def _near(left: Sketches, right: Sketches) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of rows whose sketches may be of one feature, with the number of bits in which they differ."""
    from veil.codebooks.neighbors import faiss

    index = faiss.IndexBinaryFlat(SKETCH_BITS)
    index.add(np.ascontiguousarray(right))
    ends, bits, columns = index.range_search(np.ascontiguousarray(left), most_bits(SAME) + 1)  # finds what is below
    rows = np.searchsorted(ends, np.arange(len(columns)), side="right") - 1
    return rows, columns, bits


def _with_rows(form: Released, earlier: Sequence[DrawnFeatures], partner: Int64[np.ndarray, "features"]) -> Released:
    """The form with the earlier rows of those features that have a partner."""
    again, drawn = partner >= 0, drawn_arrays(form)
    for name, values in drawn.items():
        if any(name not in item.draws or item.draws[name].shape[1:] != values.shape[1:] for item in earlier):
            raise InputError("the earlier draws are of another form than this message")
        drawn[name] = values.copy()
        drawn[name][again] = np.concatenate([item.draws[name] for item in earlier])[partner[again]]
    if isinstance(form, Subspaces):
        return replace(form, origin=drawn["origin"], basis=drawn["basis"])
    return replace(form, ids=drawn["ids"])


def drawn_arrays(form: Released) -> dict[str, np.ndarray]:
    """The arrays of a form that hold what was drawn, by the names of their fields."""
    return {"origin": form.origin, "basis": form.basis} if isinstance(form, Subspaces) else {"ids": form.ids}


def _taken(message: Message, rows: Int64[np.ndarray, "kept"]) -> Message:
    """The message of some of its features."""
    form = message.form.take(rows)
    if isinstance(message, LineUpload):
        return replace(message, lines=message.lines.take(rows), form=form)
    assert isinstance(message, Upload)
    return replace(message, keypoints=message.keypoints[rows], form=form)

"""Blocks of pairs of images: which pairs are matched together, and names of features that do not depend on files.

A block is the unit of work and of storage (docs/theory/scale.md#blocks). Which pairs it holds depends on the list of pairs
alone, so that every computer that is given the list computes the same blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veil.forms import Form, Points, Subsets

# Pairs of a block, at most and at least: seconds to a minute of one core, and few enough files.
MOST_PAIRS, LEAST_PAIRS = 1024, 24
# A long list is cut into about so many blocks, so that work can be shared out and a kill costs little.
BLOCKS = 64
# Images that a block reads, at most: 64 uploads of 1,000 features are some 60 MB.
MOST_IMAGES = 64


@dataclass(frozen=True, kw_only=True)
class PairBlock:
    """Pairs of images that are matched together: `pairs` of names, in the order in which they are stored."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the images that the block reads, sorted."""
        return tuple(sorted({name for pair in self.pairs for name in pair}))


def form_digest(form: Form) -> str:
    """SHA-256 (hex) of all that matching reads of an image's features: their numbers, type, space and dictionary."""
    if isinstance(form, Points):
        kind, arrays = "points", [form.vectors]
    elif isinstance(form, Subsets):
        kind, arrays = f"words {form.mechanism!r} {form.dictionary}", [form.ids]
    else:
        kind, arrays = f"subspaces {form.profile}", [form.origin, form.basis]
    hasher = hashlib.sha256(f"{kind} [{form.space!r}]".encode())
    for array in arrays:
        hasher.update(f"{array.dtype.str}{array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()


def in_blocks(pairs: Sequence[tuple[str, str]]) -> list[PairBlock]:
    """Pairs divided into blocks whose pairs share images: no more than `MOST_PAIRS` pairs and `MOST_IMAGES` images each.

    Images are ordered by reverse Cuthill-McKee (Cuthill and McKee 1969), so that those that are paired stand together, and
    pairs by the order of their images. The list's own order changes nothing, and a pair that is listed twice is there once.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    listed = sorted(set(pairs))
    names = sorted({name for pair in listed for name in pair})
    if not listed:
        return []
    number = {name: row for row, name in enumerate(names)}
    rows, columns = np.array([(number[a], number[b]) for a, b in listed]).T
    graph = coo_matrix(
        (np.ones(2 * len(listed)), (np.r_[rows, columns], np.r_[columns, rows])), shape=(len(names),) * 2
    ).tocsr()
    place = np.empty(len(names), dtype=np.int64)
    place[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(len(names))
    # Squares of the matrix of pairs, one after the other: within one, few images serve many pairs.
    side = MOST_IMAGES // 2
    low, high = np.minimum(place[rows], place[columns]), np.maximum(place[rows], place[columns])
    order = np.lexsort((high, low, high // side, low // side))
    most = int(np.clip(len(listed) // BLOCKS, LEAST_PAIRS, MOST_PAIRS))
    return [PairBlock(pairs=tuple(part)) for part in _cut([listed[row] for row in order], most)]


def _cut(pairs: Sequence[tuple[str, str]], most: int) -> list[list[tuple[str, str]]]:
    """Consecutive pairs, `most` of them or `MOST_IMAGES` images at a time."""
    parts: list[list[tuple[str, str]]] = [[]]
    images: set[str] = set()
    for pair in pairs:
        if len(parts[-1]) == most or len(images | {*pair}) > MOST_IMAGES:
            parts.append([])
            images = set()
        parts[-1].append(pair)
        images |= {*pair}
    return parts

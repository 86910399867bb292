"""Pools of decoys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from veil.codebooks.codebook import Codebook, Kind
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class DecoyPool(Codebook):
    """Real descriptors of photographs, to hide among; whoever has the pool can tell decoys from descriptors."""

    kind: ClassVar[Kind] = "descriptors"

    __repr__ = one_line


# Expected number of features of one image that share a decoy: a pool is used in as few runs as keep it below the first number,
# and refused above the second, where whoever sees a single upload finds decoys without the pool
# (lab/results/defenses.md#decoys-that-serve-several-features).
USUAL_REUSE, MOST_REUSE = 0.1, 0.25


def runs_for(words: int, declared: int, draws: int) -> int:
    """Number of runs (sub-databases) in which a pool of `words` words is used for images that draw `draws` decoys each.

    A run serves each of its words `draws` / size times in one image (docs/theory/lifting.md, Eq. 8). There are as many runs as
    keep this below `USUAL_REUSE`, at most `declared`, the pool's own number, and one at least.
    """
    return max(1, min(declared, int(USUAL_REUSE * words / max(draws, 1))))


@lru_cache(maxsize=4)
def in_runs(pool: Codebook, draws: int) -> Codebook:
    """The pool divided into as many runs as `runs_for` says for `draws` decoys an image; itself where it has as many.

    Centroids keep their division.
    """
    if not isinstance(pool, DecoyPool):
        return pool
    runs = runs_for(len(pool), pool.slices, draws)
    return pool if runs == pool.slices else replace(pool, slices=runs)

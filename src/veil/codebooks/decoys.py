"""Pools of decoys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from veil.codebooks.codebook import Codebook, Kind


@dataclass(frozen=True, kw_only=True, eq=False)
class DecoyPool(Codebook):
    """Real descriptors of photographs, to hide among; whoever has the pool can tell decoys from descriptors."""

    kind: ClassVar[Kind] = "descriptors"


# A pool is used in so many runs if its words allow it: fewer make more pairs of images share decoys, which then do not match.
USUAL_RUNS = 8
# Expected number of features of one image that share a decoy, which a pool of many words stays below, and no pool may exceed.
USUAL_REUSE, MOST_REUSE = 0.1, 1.0


def runs_for(words: int, declared: int, draws: int) -> int:
    """Number of runs (sub-databases) in which a pool of `words` words is used for images that draw `draws` decoys each.

    It is at most `declared`, the pool's own number. A run serves each of its words `draws` / size times in one image
    (docs/theory/lifting.md, Eq. 8): as many runs are made as keep this below `USUAL_REUSE`, but `USUAL_RUNS` where the pool is
    too small for that, and fewer only where the reuse would exceed `MOST_REUSE`.
    """
    roomy = int(USUAL_REUSE * words / max(draws, 1))
    runs = min(declared, max(roomy, USUAL_RUNS), max(int(MOST_REUSE * words / max(draws, 1)), 1))
    while runs > 1 and draws > MOST_REUSE * (words // runs):  # a remainder of words belongs to no run
        runs -= 1
    return max(runs, 1)


@lru_cache(maxsize=4)
def in_runs(pool: Codebook, draws: int) -> Codebook:
    """The pool divided into as many runs as `runs_for` says for `draws` decoys an image; itself where it has as many.

    Centroids keep their division.
    """
    if not isinstance(pool, DecoyPool):
        return pool
    runs = runs_for(len(pool), pool.slices, draws)
    return pool if runs == pool.slices else replace(pool, slices=runs)

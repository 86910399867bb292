"""Matching two sets of words: features that share a word, the rarest first (docs/theory/words.md, Eq. 14)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import SpaceError
from veil.forms import Subsets
from veil.space import require_same

# Equal weights that were added in another order differ by rounding; different ones are far further apart.
TIE = 1e-9


def shared_word_weights(left: Subsets, right: Subsets) -> Any:
    """For each pair of features that share words, the sum of 1 / (features with that word on the left * on the right).

    A word that only the two have weighs 1: it is either their true word or a coincidence.
    Raises SpaceError if the words are not of one dictionary.
    """
    require_same(left.space, right.space)
    if left.dictionary != right.dictionary or left.mechanism.dictionary_size != right.mechanism.dictionary_size:
        raise SpaceError(
            f"words of different dictionaries cannot be compared ({left.dictionary[:12]} and {right.dictionary[:12]}); "
            "release both with the same dictionary"
        )
    a, b = _incidence(left), _incidence(right)
    return (_weighted(a) @ _weighted(b).T).tocsr()


def mutual_best(weights: Any) -> tuple[Int64[np.ndarray, "pairs 2"], Float64[np.ndarray, "pairs"]]:
    """Pairs that are each other's heaviest, and second best weight over best (the worse of both sides; ties give 1)."""
    entries = weights.tocoo()
    rows, columns, values = entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data.astype(np.float64)
    keep = np.ones(len(values), dtype=bool)
    ratio = np.zeros(len(values))
    for side, count in ((rows, weights.shape[0]), (columns, weights.shape[1])):
        best, second = _two_best(side, values, count)
        keep &= values == best[side]
        ratio = np.maximum(ratio, second[side] / best[side])
    keep &= ratio < 1 - TIE  # of equal rivals none is a match
    return np.stack([rows[keep], columns[keep]], axis=1), ratio[keep]


def _two_best(
    side: Int64[np.ndarray, "entries"], values: Float64[np.ndarray, "entries"], count: int
) -> tuple[Float64[np.ndarray, "features"], Float64[np.ndarray, "features"]]:
    order = np.lexsort((-values, side))
    first = np.flatnonzero(np.diff(side[order], prepend=-1))
    best, second = np.zeros(count), np.zeros(count)
    best[side[order[first]]] = values[order[first]]
    has_second = np.flatnonzero((np.append(first[1:], len(order)) - first) > 1)
    second[side[order[first[has_second]]]] = values[order[first[has_second] + 1]]
    return best, second


def _incidence(form: Subsets) -> Any:
    from scipy.sparse import csr_array

    rows = np.repeat(np.arange(len(form)), form.m)
    shape = (len(form), form.mechanism.dictionary_size)
    return csr_array((np.ones(len(rows)), (rows, form.ids.ravel().astype(np.int64))), shape=shape)


def _weighted(incidence: Any) -> Any:
    """Each word's column divided by how many features have it."""
    counts = np.asarray(incidence.sum(axis=0)).ravel()
    return (incidence.multiply(1 / np.maximum(counts, 1))).tocsr()

"""Matching of two forms in words by the words that features share; rare words weigh more (docs/theory/words.md, Eq. 14)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import SpaceError
from veil.forms import Subsets
from veil.space import require_same

# Weights that are equal but for the order of addition differ by rounding only; different ones differ by far more.
TIE = 1e-9


def shared_word_weights(left: Subsets, right: Subsets) -> Any:
    """Sparse matrix (left features, right features) of the weights of pairs that share words.

    Each shared word adds 1 / (number of left features with it * number of right ones). A word that only these two features have
    adds 1: it is either their true word or a coincidence. Raises SpaceError if the words are not of one dictionary.
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
    """Pairs (row, column) that are the heaviest of both features, and their ratios of second best to best weight.

    The ratio is the worse (larger) one of both features. Of equal rivals none is a match.
    """
    entries = weights.tocoo()
    rows, columns, values = entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data.astype(np.float64)
    keep = np.ones(len(values), dtype=bool)
    ratio = np.zeros(len(values))
    for side, count in ((rows, weights.shape[0]), (columns, weights.shape[1])):
        best, second = _two_best(side, values, count)
        keep &= values == best[side]
        ratio = np.maximum(ratio, second[side] / best[side])
    keep &= ratio < 1 - TIE
    return np.stack([rows[keep], columns[keep]], axis=1), ratio[keep]


def _two_best(
    side: Int64[np.ndarray, "entries"], values: Float64[np.ndarray, "entries"], count: int
) -> tuple[Float64[np.ndarray, "features"], Float64[np.ndarray, "features"]]:
    """Largest and second largest of `values` for each of `count` features; 0 where there is none. Value i is of `side[i]`."""
    order = np.lexsort((-values, side))
    first = np.flatnonzero(np.diff(side[order], prepend=-1))
    best, second = np.zeros(count), np.zeros(count)
    best[side[order[first]]] = values[order[first]]
    has_second = np.flatnonzero((np.append(first[1:], len(order)) - first) > 1)
    second[side[order[first[has_second]]]] = values[order[first[has_second] + 1]]
    return best, second


def _incidence(form: Subsets) -> Any:
    """Sparse matrix (features, words of the dictionary) with 1 for each word of a feature."""
    from scipy.sparse import csr_array

    rows = np.repeat(np.arange(len(form)), form.m)
    shape = (len(form), form.mechanism.dictionary_size)
    return csr_array((np.ones(len(rows)), (rows, form.ids.ravel().astype(np.int64))), shape=shape)


def _weighted(incidence: Any) -> Any:
    """Incidence matrix with each word's column divided by the number of features that have the word."""
    counts = np.asarray(incidence.sum(axis=0)).ravel()
    return (incidence.multiply(1 / np.maximum(counts, 1))).tocsr()

"""Distances of features to the words of a public dictionary, and how far words usually are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from veil.compiled import compiled
from veil.forms import Flat, Points

# Features whose distances to all words are held at a time.
TOGETHER = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Usual:
    """Mean and standard deviation, float32 (K,), of the distance of an unrelated feature to each word."""

    mean: Float32[np.ndarray, "words"]
    deviation: Float32[np.ndarray, "words"]

    @staticmethod
    def of(rows: Float32[np.ndarray, "features sides dim"], words: Float32[np.ndarray, "words dim"]) -> Usual:
        """Usual distances among some features."""
        distances = np.concatenate([to_words(rows[part], words) for part in chunks(len(rows))])
        return Usual(mean=distances.mean(axis=0), deviation=np.maximum(distances.std(axis=0), 1e-6))

    def unusual(
        self, rows: Float32[np.ndarray, "features sides dim"], words: Float32[np.ndarray, "words dim"]
    ) -> Float32[np.ndarray, "features words"]:
        """Distances to the words in standard deviations from what is usual, the nearest words being the most negative."""
        return self.total_unusual(rows, words, np.arange(len(rows)))

    def total_unusual(
        self,
        rows: Float32[np.ndarray, "features sides dim"],
        words: Float32[np.ndarray, "words dim"],
        group: Int64[np.ndarray, "features"],
    ) -> Float32[np.ndarray, "groups words"]:
        """Result of `unusual`, summed over the features of each group; `group` ascends from 0 on, without gaps."""
        total = np.zeros((int(group[-1]) + 1 if len(group) else 0, len(words)), dtype=np.float32)
        sides = rows.shape[1]
        products = rows.reshape(-1, rows.shape[2]) @ words.T
        squares, word_squares = (rows[:, 0] ** 2).sum(axis=1), np.einsum("wd,wd->w", words, words)
        row = np.empty(len(words), dtype=np.float32)
        _add_unusual(products, squares, word_squares, self.mean, 1 / self.deviation, group, sides, row, total)
        return total


@compiled
def _add_unusual(products, squares, word_squares, mean, scale, group, sides, row, total):
    """Add the distances of each feature to all words, less the mean and scaled, to its group's row of `total`."""
    zero, two = np.float32(0.0), np.float32(2.0)
    for i in range(len(squares)):
        along = products[i * sides]
        for w in range(len(row)):
            row[w] = squares[i] + word_squares[w] - two * along[w]
        for side in range(1, sides):
            along = products[i * sides + side]
            for w in range(len(row)):
                row[w] -= along[w] * along[w]
        added = total[group[i]]
        for w in range(len(row)):
            added[w] += (np.sqrt(max(row[w], zero)) - mean[w]) * scale[w]


def smallest(values: Float32[np.ndarray, "rows columns"], count: int) -> Int64[np.ndarray, "rows count"]:
    """Columns of the `count` smallest values of each row, the smallest first; of equal values the first."""
    columns = np.empty((len(values), min(count, values.shape[1])), dtype=np.int64)
    _smallest(values, columns)
    return columns


@compiled
def _smallest(values, columns):
    """Fill `columns` with those of the smallest values of each row, ascending by value."""
    count = columns.shape[1]
    for i in range(len(values)):
        row, best = values[i], columns[i]
        held = 0
        for j in range(len(row)):
            if held == count and row[j] >= row[best[count - 1]]:
                continue
            place = min(held, count - 1)
            while place > 0 and row[best[place - 1]] > row[j]:
                best[place] = best[place - 1]
                place -= 1
            best[place] = j
            held = min(held + 1, count)


def rows_of(form: Flat) -> Float32[np.ndarray, "features sides dim"]:
    """Origin and basis of each feature in one array; of points the vector alone."""
    if isinstance(form, Points):
        return np.ascontiguousarray(form.vectors[:, None], dtype=np.float32)
    return np.ascontiguousarray(np.concatenate([form.origin[:, None], form.basis], axis=1), dtype=np.float32)


def to_words(
    rows: Float32[np.ndarray, "features sides dim"], words: Float32[np.ndarray, "words dim"]
) -> Float32[np.ndarray, "features words"]:
    """Distances of features to words in single precision (Dusmanu et al. 2021, Eq. 1): |w - o|^2 less what the basis explains.

    The origin of a subspace is its foot from zero, so that it is orthogonal to the basis and falls out of the second term.
    """
    squares = (rows[:, 0] ** 2).sum(axis=1)[:, None] + (words**2).sum(axis=1) - 2 * rows[:, 0] @ words.T
    for side in range(1, rows.shape[1]):
        along = rows[:, side] @ words.T
        along *= along
        squares -= along
    return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)


def chunks(count: int) -> list[np.ndarray]:
    """Rows 0 to `count` - 1, `TOGETHER` at a time."""
    return [np.arange(start, min(start + TOGETHER, count)) for start in range(0, count, TOGETHER)]

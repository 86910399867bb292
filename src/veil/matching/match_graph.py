"""Which images are near each other in the graph of clear matches, though they hardly match themselves.

Two views of one place from far apart match poorly; a chain of views between them matches well. Random walks over the graph of
clear pairs rank images by all such chains (docs/theory/scale.md#chains-of-matches, Eq. 16; Zhou, Weston, Gretton, Bousquet and
Schölkopf, NIPS 2003).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float64

# Pairs of a chain at most, and what each further one counts.
STEPS, DAMPING = 7, 0.85
# Above so many standard deviations a clear pair is no clearer.
CLEAREST = 30.0
# Of each image so many nearest are kept in each step, so that memory grows with the images and not with their square.
KEPT = 128


class Nearness:
    """How near images are in the graph of clear matches.

    `strengths` gives the clear pairs and how unusual each is, in standard deviations; `names` are all images.
    """

    def __init__(self, strengths: Mapping[tuple[str, str], float], names: Sequence[str]) -> None:
        from scipy.sparse import coo_array

        self.names = tuple(names)
        row_of = {name: row for row, name in enumerate(names)}
        ends = np.array([(row_of[a], row_of[b]) for a, b in strengths], dtype=np.int64).reshape(-1, 2)
        weights = np.minimum(np.array(list(strengths.values()), dtype=np.float64), CLEAREST)
        degrees = np.bincount(ends.ravel(), np.repeat(weights, 2), minlength=len(names))
        scaled = weights / np.sqrt(degrees[ends[:, 0]] * degrees[ends[:, 1]])
        one_way = coo_array((scaled, (ends[:, 0], ends[:, 1])), shape=(len(names), len(names))).tocsr()
        step = (one_way + one_way.T).tocsr()
        reached, total = step, DAMPING * step
        for length in range(2, STEPS + 1):
            reached = _largest((reached @ step).tocsr(), KEPT)
            total = total + DAMPING**length * reached
        self._total = total.tocsr()

    def of(self, row: int) -> Float64[np.ndarray, "images"]:
        """The nearness of each image to the one at `row` of the names; 0 where no chain leads, and for itself."""
        found = self._total[[row]].toarray()[0]
        found[row] = 0.0
        return found

    def pairs(self, count: int, tried: Collection[tuple[str, str]], *, most: int | None = None) -> list[tuple[str, str]]:
        """Each image with the `count` images that are nearest to it, without those tried; names of a pair are sorted.

        `most` of them are kept, the nearest ones; None: all.
        """
        known = {frozenset(pair) for pair in tried}
        found: dict[tuple[str, str], float] = {}
        for row, name in enumerate(self.names):
            near = self.of(row)
            for other in np.argsort(-near, kind="stable")[:count]:
                pair = (min(name, self.names[other]), max(name, self.names[other]))
                if near[other] > 0 and frozenset(pair) not in known:
                    found[pair] = max(near[other], found.get(pair, 0.0))
        return sorted(sorted(found, key=lambda pair: (-found[pair], pair))[:most])


def _largest(rows, most: int):  # type: ignore[no-untyped-def]
    """The `most` largest entries of each row of a sparse matrix; of equal ones those of lower columns."""
    from scipy.sparse import csr_array

    counts = np.diff(rows.indptr)
    if counts.max(initial=0) <= most:
        return rows
    row = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((rows.indices, -rows.data, row))
    rank = np.arange(len(order)) - np.repeat(rows.indptr[:-1], counts)
    kept = order[rank < most]
    return csr_array((rows.data[kept], (row[kept], rows.indices[kept])), shape=rows.shape)

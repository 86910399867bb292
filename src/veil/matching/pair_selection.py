"""Which pairs of images are worth matching: all, neighbors in a sequence, or those that retrieval finds similar.

Selection costs some maps a few images and saves most of the work: docs/theory/scale.md#pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from veil.errors import InputError, RangeError
from veil.matching.pairs import all_pairs as all_pairs

# Images that retrieval and tracks pair each image with, at most, and neighbors in a sequence on each side.
RETRIEVED, BY_TRACKS, OVERLAP = 40, 20, 10


def sequential_pairs(names: Sequence[str], *, overlap: int = OVERLAP) -> list[tuple[str, str]]:
    """Pairs of images that are at most `overlap` places apart, or a power of two places up to 2^`overlap`.

    `names` are in the order in which the photographs were taken. The powers of two join parts that a blurred photograph would
    separate, as in COLMAP's sequential matching (Schönberger and Frahm 2016). Raises RangeError for an overlap below 1.
    """
    if not overlap >= 1:
        raise RangeError(f"overlap must be at least 1, got {overlap!r}")
    steps = sorted({*range(1, overlap + 1), *(1 << power for power in range(overlap + 1))})
    return [(names[i], names[i + step]) for i in range(len(names)) for step in steps if i + step < len(names)]


def similar_pairs(
    names: Sequence[str], similarity: Float[np.ndarray, "images images"], *, count: int = RETRIEVED
) -> list[tuple[str, str]]:
    """Each image with the `count` images that are most similar to it; a pair is listed once, its names sorted.

    Only positive similarities count: an image to which nothing is similar is paired with nothing. Raises RangeError for a count
    below 1.
    """
    if not count >= 1:
        raise RangeError(f"count must be at least 1, got {count!r}")
    found: set[tuple[str, str]] = set()
    for row, name in enumerate(names):
        scores = np.array(similarity[row], dtype=np.float64)
        scores[row] = 0.0
        best = np.argsort(-scores, kind="stable")[:count]
        found |= {(min(name, names[other]), max(name, names[other])) for other in best if scores[other] > 0}
    return sorted(found)


def expanded_pairs(matched: Collection[tuple[str, str]], tried: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of images that both match a third one and were not tried: COLMAP's transitive matching, one step of it.

    `matched` are the pairs that show the same thing, `tried` all that were matched. Names of a pair may stand either way round.
    """
    near: dict[str, set[str]] = defaultdict(set)
    for a, b in matched:
        near[a].add(b)
        near[b].add(a)
    known = {frozenset(pair) for pair in tried}
    found = {
        (min(a, b), max(a, b))
        for others in near.values()
        for a in others
        for b in others
        if a < b and frozenset((a, b)) not in known
    }
    return sorted(found)


def require_listed(pairs: Sequence[tuple[str, str]], names: Mapping[str, object]) -> list[tuple[str, str]]:
    """The pairs of a list, each once, whichever way round.

    Raises InputError for a pair with a name that is not among `names`, and for an image that is paired with itself.
    """
    unknown = sorted({name for pair in pairs for name in pair} - set(names))
    if unknown:
        raise InputError(
            f"the list of pairs names {len(unknown)} images that were not given, such as {unknown[0]!r}; the images are "
            f"called {', '.join(sorted(names)[:3])}, ..."
        )
    if alone := sorted({a for a, b in pairs if a == b}):
        raise InputError(f"the list of pairs pairs {alone[0]!r} with itself; remove that line")
    return list({frozenset(pair): pair for pair in pairs}.values())

"""Division of pairs into blocks, and names of descriptors that do not depend on files: against enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from veil.forms import Form, Points
from veil.places.pairs.blocks import LEAST_PAIRS, MOST_IMAGES, in_blocks
from veil.places.pairs.images import form_digest
from worlds.random_forms import RAW, form_through, points

NAMES = [f"{number:03}" for number in range(200)]


def test_blocks_hold_every_pair_once_and_few_images() -> None:
    """Enumeration: all pairs of 200 images, and pairs of neighbors; the order of the list changes nothing."""
    near = [(a, b) for a, b in combinations(NAMES, 2) if int(b) - int(a) <= 7]
    for pairs in (list(combinations(NAMES, 2)), near, near[:5], []):
        blocks = in_blocks(pairs)
        listed = [pair for block in blocks for pair in block.pairs]
        assert sorted(listed) == sorted(pairs)
        assert all(len(block.images) <= MOST_IMAGES for block in blocks)
        assert in_blocks(pairs[::-1] + pairs[:3]) == blocks
    read = sum(len(block.images) for block in in_blocks(near))
    assert read < len(near) / 2 and max(len(block.pairs) for block in in_blocks(near)) <= max(LEAST_PAIRS, len(near) // 64)


def test_a_digest_changes_with_everything_that_matching_reads() -> None:
    """Enumeration of single changes; a copy has the same digest."""
    form = form_through(points(6, dim=24), 3, "digest")
    public = Points(vectors=form.origin, space=form.space)
    moved = form.origin.copy()
    moved[2, 3] = np.nextafter(moved[2, 3], np.float32(9))
    changed: list[Form] = [
        form,
        form.take(np.arange(5)),
        form.take(np.arange(6)[::-1]),
        type(form)(**{**vars(form), "origin": moved}),
        type(form)(**{**vars(form), "profile": "another"}),
        public,
        Points(vectors=form.origin, space=type(RAW)(**{**vars(form.space), "descriptor": "other"})),
    ]
    assert len({form_digest(item) for item in changed}) == len(changed)
    assert form_digest(form.take(np.arange(6))) == form_digest(form)

"""Refusals of queries in other spaces than a map's name what differs, and no codebook where none would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veil.errors import InputError, Remedy, SpaceError
from veil.files.codebooks import bundled_codebook
from veil.places.held_map import Map
from veil.space import Space, differences, known_space, require_same
from worlds import generator, subspaces
from worlds.map_scenes import planted_map

SIFT = known_space("sift")
COMPRESSED = replace(SIFT, dim=48, codebook="a" * 64)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (known_space("hardnet"), ["descriptor"]),
        (replace(SIFT, normalization="L1_ROOT"), ["normalization"]),
        (replace(COMPRESSED, normalization="L1_ROOT"), ["normalization"]),
        (COMPRESSED, ["codebook"]),
        (replace(SIFT, dim=64), ["dimension"]),
        (replace(SIFT, dim=64, dither_steps=2.0), ["dimension", "dither"]),
        (SIFT, []),
    ],
)
def test_what_differs_between_spaces_is_named(other: Space, named: list[str]) -> None:
    """The fields that were changed, without what follows from them: a codebook of another descriptor, a dimension of another
    codebook."""
    assert differences(SIFT, other) == differences(other, SIFT) == named
    if named:
        with pytest.raises(SpaceError, match=f"differ in {' and '.join(named)}"):
            require_same(SIFT, other)


def test_a_public_map_names_what_a_query_lacks() -> None:
    """Planted queries, each of which differs in one thing; the remedy is that of this thing alone."""
    where = Map(scene=planted_map("spaces", "public")[0])
    space, random = where.scene.space, generator("spaces of queries")

    def refusal(other: Space) -> InputError:
        with pytest.raises(InputError) as refused:
            where.codebook_for(subspaces(random, random.normal(size=(3, other.dim)), 2, other))
        return refused.value

    book = bundled_codebook(space.descriptor)
    good = replace(space, dim=48, codebook=book.digest)
    assert where.codebook_for(subspaces(random, random.normal(size=(3, 48)), 2, good)) is book
    other_book = refusal(replace(good, codebook="b" * 64))
    assert "privatized with codebook bbbb" in other_book.cause and other_book.remedy == (Remedy("give", "localize.codebook"),)
    root = refusal(replace(good, normalization="L1_ROOT", codebook="b" * 64))
    assert "differ in normalization" in root.cause and "codebook bbbb" in root.cause and root.remedy == ()
    raw_root = refusal(replace(space, normalization="L1_ROOT"))
    assert "differ in normalization" in raw_root.cause and raw_root.remedy == (Remedy("make", "features in L2"),)
    assert "differ in dither" in refusal(replace(space, dither_steps=3.0)).cause

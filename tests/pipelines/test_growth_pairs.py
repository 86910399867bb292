"""Which pairs are matched when a map of positions grows: those that the map's index names, unless others are asked for."""

from __future__ import annotations

import pytest

from veil.matching.point_indexing import index_points
from veil.pipelines import growth
from veil.pipelines.growth import pairs_with_map
from veil.pipelines.maps import Map
from veil.pipelines.pair_choice import PairChoice, pair_choice
from worlds.map_scenes import planted_map
from worlds.random_forms import points


def test_new_images_are_paired_with_those_that_the_index_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what two images of the map see again is paired with two images of it at most, and with each other."""
    monkeypatch.setattr(growth, "BY_TRACKS", 2)
    scene, _ = planted_map("a map that grows by its index", "subspaces")
    base = Map(scene=scene)
    names = sorted(scene.images)
    forms = {"new 1": scene.images[names[0]].form, "new 2": scene.images[names[3]].form}
    asked = pair_choice("auto", len(names) + 2)
    assert pairs_with_map(base, forms, asked, threads=1) is asked, "a map without an index is matched as asked"
    words = points(60, dim=scene.space.dim, case="words of a map that grows").astype("float32")
    seen = {name: (image.form, image.point_rows) for name, image in scene.images.items()}
    base._point_indexes[:] = [index_points(seen, words, len(scene.points))]  # type: ignore[arg-type]
    chosen = pairs_with_map(base, forms, asked, threads=1)
    assert chosen.method == "list" and ("new 1", "new 2") in chosen.listed
    assert (names[0], "new 1") in chosen.listed and (names[3], "new 2") in chosen.listed
    assert len(chosen.listed) == 1 + 2 * 2
    every = PairChoice(method="all")
    assert pairs_with_map(base, forms, every, threads=1) is every

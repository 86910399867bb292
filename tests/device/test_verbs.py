"""The verbs `match`, `Map.index` and `invert` of Python: their answers against oracles, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import veil
from veil.cli import main
from veil.features import Features
from veil.files.maps.indexes import read_point_index, read_vocabulary
from veil.matching.inverted_index import index_map
from veil.places.held_map import index_for
from worlds import generator, world
from worlds.word_worlds import dictionary_of, scene_of, words_of


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def nearest_by_force(left: np.ndarray, right: np.ndarray) -> set[tuple[int, int]]:
    """Mutual nearest neighbors of unit vectors, from the table of all distances."""
    left, right = (values / np.linalg.norm(values, axis=1, keepdims=True) for values in (left, right))
    distance = np.linalg.norm(left[:, None] - right[None], axis=2)
    there, back = distance.argmin(axis=1), distance.argmin(axis=0)
    return {(row, int(column)) for row, column in enumerate(there) if back[column] == row}


@pytest.fixture
def pair(door: dict[str, Features]) -> tuple[Features, Features]:
    """Some features of two photographs of one place."""
    first, second, *_ = door.values()
    return first.take(np.arange(150)), second.take(np.arange(150))


def test_raw_features_are_matched_as_by_force(pair: tuple[Features, Features]) -> None:
    """Oracle: the table of all distances. A ratio keeps a part of them, and each kept pair passes it."""
    left, right = pair
    matches = veil.match(left, right)
    expected = nearest_by_force(left.descriptors.astype(float), right.descriptors.astype(float))
    assert {(int(a), int(b)) for a, b in matches.indices} == expected and len(expected) > 20
    fewer = veil.match(left, right, max_ratio=0.8)
    assert 0 < len(fewer) < len(matches) and fewer.ratios.max() <= 0.8
    auto = veil.match(left, right, max_ratio="auto")
    assert {tuple(row) for row in auto.indices.tolist()} < {tuple(row) for row in matches.indices.tolist()}


def test_what_cannot_be_matched_is_refused(pair: tuple[Features, Features], tmp_path: Path) -> None:
    left, right = pair
    hidden = veil.Device(tmp_path / "home").release(left, name="a.jpg", purpose="map").upload
    words = veil.Protection(descriptors=veil.HideInWords(epsilon=6.0))
    in_words = veil.Device(tmp_path / "other").release(left, words, name="a.jpg").upload
    with pytest.raises(veil.SpaceError):
        veil.match(hidden, right)
    with pytest.raises(veil.SpaceError):
        veil.match(in_words, right)
    for ratio in (0.0, 1.5, float("nan")):
        with pytest.raises(veil.InputError, match="max_ratio"):
            veil.match(left, right, max_ratio=ratio)


PLACE = world("an indexed map", points=300)
DICTIONARY = dictionary_of(PLACE, others=200)


def test_a_map_is_indexed_in_its_folder(tmp_path: Path) -> None:
    """Second methods: the index in memory, what the folder gives back, and `veil index` on a copy of the map."""
    scene = scene_of(PLACE)
    with pytest.raises(veil.InputError, match="write the map first"):
        veil.Map(scene=scene).index()
    where, copy = (veil.Map(scene=scene).write(tmp_path / name) for name in ("map", "copy"))
    book = veil.bundled_codebook()
    made = where.index("both")
    expected = index_map(scene, book)
    kept, points = read_vocabulary(tmp_path / "map", book.digest), read_point_index(tmp_path / "map")
    assert kept is not None and points is not None
    np.testing.assert_array_equal(kept.point_rows, expected.point_rows)
    assert made == {"words": len(expected.point_rows), "distances": len(points.entries)} and points.points == len(scene.points)
    assert run("index", tmp_path / "copy", "--for", "both", "--json", tmp_path / "i.json") == 0
    told = json.loads((tmp_path / "i.json").read_text())
    assert (told["entries"], told["listed_points"]) == (made["words"], made["distances"])
    assert told["dictionary"] == book.digest and told["words"] == len(book) and copy.folder is not None
    assert where.index("words", nearest_words=4) == {"words": len(index_map(scene, book, nearest=4).point_rows)}
    # What the folder gives back tells mirrored queries as what was made does.
    turned = index_for(veil.Map.read(tmp_path / "map"), words_of(PLACE.form("02"), book, epsilon=20.0)).mirrored
    assert turned is not None and expected.mirrored is not None
    np.testing.assert_array_equal(turned.point_rows, expected.mirrored.point_rows)
    # Left to itself a small public map is indexed for words alone.
    assert set(copy.index(dictionary=DICTIONARY)) == {"words"}


def test_a_map_of_words_needs_no_index(tmp_path: Path) -> None:
    names = sorted(PLACE.poses)
    forms = {name: words_of(PLACE.form(name), DICTIONARY, epsilon=20.0, name=name) for name in names}
    where = veil.Map(scene=scene_of(PLACE, forms=forms)).write(tmp_path / "map")
    with pytest.raises(veil.InputError, match="needs no index"):
        where.index(dictionary=DICTIONARY)


def test_pictures_are_those_of_the_command(door: dict[str, Features], tmp_path: Path) -> None:
    """Second method: `veil invert` on the same file. Broken twin: other positions give another picture."""
    name, features = next(iter(door.items()))
    veil.write_features(tmp_path / "f.h5", [(name, features)])
    assert run("invert", tmp_path / "f.h5", "-o", tmp_path / "out") == 0
    keypoints = features.keypoints * np.array([-1, 1], np.float32) + np.array([features.camera.width_px, 0], np.float32)
    pictures = veil.invert({name: features, "mirrored": replace(features, keypoints=keypoints)})
    assert pictures[name].shape == (256, 256, 3) and pictures[name].dtype == np.uint8
    np.testing.assert_array_equal(pictures[name], np.asarray(Image.open(tmp_path / "out" / f"{name}.png")))
    assert np.abs(pictures["mirrored"].astype(int) - pictures[name]).mean() > 5


def test_what_shows_no_picture_is_refused(door: dict[str, Features], tmp_path: Path) -> None:
    """Lines hide positions, the bundled network reads raw descriptors alone, and no network reads others than SIFT."""
    features = next(iter(door.values()))
    lines = veil.Protection(descriptors=veil.HideInSubspaces(profile=veil.Profile.paper(4)), lines=veil.HideInLines())
    with pytest.raises(veil.InputError, match="a hides positions in lines"):
        veil.invert({"a": veil.Device(tmp_path / "one").release(features, lines, name="a").upload})
    plain = veil.Protection(descriptors=veil.HideInSubspaces(profile=veil.Profile.paper(4)))
    with pytest.raises(veil.InputError, match="invert raw, not subspaces"):
        veil.invert({"a": veil.Device(tmp_path / "two").release(features, plain, name="a").upload})
    values = generator("learned").normal(size=(len(features), 128))
    other = replace(
        features,
        descriptors=(values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32),
        space=veil.Space(descriptor="aliked-n16rot", normalization="L2", dim=128),
    )
    with pytest.raises(veil.SpaceError, match="networks read SIFT"):
        veil.invert({"a": other})

"""Maps of words on disk: the inverse pair, and values that no map was written with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.files.maps.format import read_map, write_map
from veil.forms import Subsets
from veil.scene import Scene
from worlds import generator
from worlds.edges import flipped, outcome, scene, truncated
from worlds.word_uploads import subsets


def word_scene(epsilon: float = 5.0) -> Scene:
    """The scene of `edges` with words in place of its descriptors; another set for each image."""
    raw = scene(0)
    images = {
        name: replace(image, form=subsets(len(image.keypoints), 2, words=1000 + index, epsilon=epsilon))
        for index, (name, image) in enumerate(raw.images.items())
    }
    return replace(raw, images=images)


@pytest.mark.parametrize("epsilon", [0.0, 5.0, math.inf])
def test_words_and_their_mechanism_come_back(tmp_path: Path, epsilon: float) -> None:
    """Inverse pair, to the bit; infinity stays infinity, and promises nothing."""
    sent = word_scene(epsilon)
    write_map(tmp_path / "map", sent)
    got = read_map(tmp_path / "map")
    assert not got.is_public and got.space == sent.space
    for name, image in sent.images.items():
        form, other = image.form, got.images[name].form
        assert isinstance(form, Subsets) and isinstance(other, Subsets)
        np.testing.assert_array_equal(other.ids, form.ids)
        assert (other.mechanism, other.dictionary, other.guarantee) == (form.mechanism, form.dictionary, form.guarantee)
        assert other.releasable


def test_nothing_but_words_is_written(tmp_path: Path) -> None:
    write_map(tmp_path / "map", word_scene())
    with h5py.File(tmp_path / "map" / "descriptors.h5") as file:
        for group in file.values():
            assert set(group) == {"words"}
            assert set(group.attrs) == {"dictionary", "dictionary_words", "epsilon"}


def attribute(name: str, value: object) -> Callable[[h5py.Group], None]:
    return lambda group: group.attrs.__setitem__(name, value)


def words(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[h5py.Group], None]:
    def spoil(group: h5py.Group) -> None:
        value = change(group["words"][()])
        del group["words"]
        group["words"] = value

    return spoil


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (attribute("epsilon", math.nan), "epsilon must be >= 0"),
        (attribute("epsilon", -1.0), "epsilon must be >= 0"),
        (attribute("epsilon", 1e300), "rounds to 1"),
        (attribute("epsilon", "much"), "damaged"),
        (lambda group: group.attrs.__delitem__("epsilon"), "damaged"),
        (attribute("dictionary_words", 0), "words must be at least 2"),
        (attribute("dictionary_words", 900), "outside the dictionary of 900 words"),
        (attribute("dictionary", "0" * 64), "dictionary must be the SHA-256"),
        (attribute("dictionary", "my words"), "dictionary must be the SHA-256"),
        (lambda group: group.attrs.__delitem__("dictionary"), "damaged"),
        (words(lambda ids: ids[:, ::-1]), "ascending order"),
        (words(lambda ids: np.repeat(ids[:, :1], 2, axis=1)), "ascending order"),
        (words(lambda ids: ids[:-1]), "do not belong together"),
        (words(lambda ids: ids[:, 0]), "rows of 32-bit numbers"),
        (words(lambda ids: ids[:, :0]), "m must be between 1"),
        # Numbers that a cast would silently turn into ids: of the wrong size, of the wrong sign, none at all.
        (words(lambda ids: ids.astype(np.int64) + 2**32), "rows of 32-bit numbers"),
        (words(lambda ids: ids.astype(np.int64) - 2**32), "rows of 32-bit numbers"),
        (words(lambda ids: ids * np.nan), "rows of 32-bit numbers"),
        (words(lambda ids: ids.astype("S")), "rows of 32-bit numbers"),
    ],
)
def test_damaged_words_are_refused(tmp_path: Path, spoil: Callable[[h5py.Group], None], text: str) -> None:
    write_map(tmp_path / "map", word_scene())
    with h5py.File(tmp_path / "map" / "descriptors.h5", "a") as file:
        spoil(file["photo 1.jpg"])
    with pytest.raises(FileFormatError, match=text) as caught:
        read_map(tmp_path / "map")
    assert str(tmp_path / "map") in str(caught.value)


@pytest.mark.slow
def test_damaged_bytes_raise_nothing_else(tmp_path: Path) -> None:
    """Truncated: always refused. Flipped: refused, or read as a map of proper words."""
    write_map(tmp_path / "map", word_scene())
    path = tmp_path / "map" / "descriptors.h5"
    good = path.read_bytes()
    for bad in truncated(good, 30):
        path.write_bytes(bad)
        assert isinstance(outcome(lambda: read_map(tmp_path / "map")), FileFormatError)
    for bad in flipped(generator("word map"), good, 100):
        path.write_bytes(bad)
        error = outcome(lambda: read_map(tmp_path / "map"))
        assert error is None or isinstance(error, FileFormatError)

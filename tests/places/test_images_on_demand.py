"""Descriptors read on demand: those of a full load, within the budget, and none that changed in between."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from veil.device.doors import load_on_demand, load_uploads
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.files.features import write_features
from veil.forms import Points
from veil.matching.pairs import all_pairs
from veil.places.images_on_demand import FormCache, form_bytes, map_image
from veil.places.maps.images import MapImage
from veil.places.pairs.blocks import KIND, matched_in_blocks
from veil.places.pairs.images import FormsOf, LoadedImage
from veil.places.pairs.store import MatchStore
from worlds.releases import taken


@pytest.fixture(scope="module")
def file(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demand") / "f.h5"
    write_features(path, [(name, taken(item, np.arange(60))) for name, item in sorted(door.items())])
    return path


def vectors(image: LoadedImage) -> np.ndarray:
    form = image.form
    assert isinstance(form, Points)
    return form.vectors


def places(image: LoadedImage) -> np.ndarray:
    assert isinstance(image.positions, np.ndarray)
    return image.positions


@pytest.mark.parametrize("kept", [0, 2, 100])
def test_descriptors_are_those_of_a_full_load_and_stay_within_the_budget(file: Path, kept: int) -> None:
    """Second method: `load_uploads`. Planted: a budget of two images holds two, and reads the others again."""
    full = load_uploads(file).images
    size = form_bytes(next(iter(full.values())).form)
    images = load_on_demand(file, budget_bytes=kept * size).images
    assert list(images) == list(full)
    cache = next(iter(images.values()))._cache  # type: ignore[attr-defined]
    for _ in range(2):
        for name, image in images.items():
            assert np.array_equal(vectors(image), vectors(full[name]))
            assert np.array_equal(places(image), places(full[name])) and image.camera == full[name].camera
            assert (image.features, image.digest, image.kind, image.form_type) == (
                full[name].features,
                full[name].digest,
                full[name].kind,
                Points,
            )
            assert cache.held_bytes <= kept * size
    # The order of use defeats a cache of two; one of all reads each file once.
    assert cache.reads == (len(full) if kept == 100 else 2 * len(full))
    assert cache.most_bytes == min(kept, len(full)) * size


def test_blocks_of_images_on_demand_are_the_same_bytes(file: Path, tmp_path: Path) -> None:
    """Second method: blocks of images that are all in memory."""
    full = load_uploads(file).images
    pairs = all_pairs(sorted(full))[:6]
    written = []
    for number, images in enumerate((full, load_on_demand(file, budget_bytes=0).images)):
        store = MatchStore(tmp_path / str(number), KIND)
        matched_in_blocks(FormsOf(images), pairs, store, workers=1)
        written.append({path.name: path.read_bytes() for path in store.folder.iterdir()})
    assert written[0] == written[1] and written[0]


def test_what_is_pickled_needs_no_file(file: Path, tmp_path: Path) -> None:
    """Inverse pair: an image on demand, pickled, is the image in memory after its file is gone."""
    copy = tmp_path / "copy.h5"
    copy.write_bytes(file.read_bytes())
    name, image = next(iter(load_on_demand(copy, budget_bytes=0).images.items()))
    data, placed = pickle.dumps(image), pickle.dumps(map_image(image))
    copy.unlink()
    full = load_uploads(file).images[name]
    loaded, mapped = pickle.loads(data), pickle.loads(placed)
    assert type(loaded) is LoadedImage and type(mapped) is MapImage
    assert np.array_equal(vectors(loaded), vectors(full))
    assert isinstance(mapped.form, Points) and np.array_equal(mapped.form.vectors, vectors(full))
    assert np.array_equal(mapped.keypoints, places(full))


def test_a_file_that_changed_is_refused(door: dict[str, Features], tmp_path: Path) -> None:
    """Planted: another image's features under the same name."""
    (name, first), (_, second) = sorted(door.items())[:2]
    path = tmp_path / "f.h5"
    write_features(path, [(name, taken(first, np.arange(60)))])
    images = load_on_demand(path, budget_bytes=0).images
    write_features(path, [(name, taken(second, np.arange(60)))])
    with pytest.raises(InputError, match="changed while it was mapped"):
        _ = images[name].form


def test_a_negative_budget_is_refused() -> None:
    """Planted: less than nothing."""
    with pytest.raises(RangeError, match="must not be negative"):
        FormCache(-1)

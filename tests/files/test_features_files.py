"""Features of other tools in hloc's HDF5, and what is none."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.errors import FileFormatError, InputError, VeilError
from veil.files.features import count_images, features_digest, holds_features, read_features, write_features
from veil.space import Space
from worlds import features, generator, sift_like
from worlds.edges import outcome, truncated

SIFT = Space(descriptor="sift", normalization="L2", dim=128)
SUPERPOINT = Space(descriptor="superpoint", normalization="L2", dim=256)


def hloc(path: Path, name: str, **parts: np.ndarray) -> Path:
    with h5py.File(path, "a") as file:
        for key, value in parts.items():
            file[f"{name}/{key}"] = value
    return path


def superpoint(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Features as hloc stores them with `as_half`: everything in half precision."""
    values = random.normal(size=(256, count))
    return {
        "keypoints": random.integers(0, 400, (count, 2)).astype(np.float16),
        "descriptors": (values / np.linalg.norm(values, axis=0)).astype(np.float16),
        "scores": random.random(count).astype(np.float16),
        "image_size": np.array([640, 480]),
    }


def test_hlocs_half_precision_and_nested_names(tmp_path: Path) -> None:
    random = generator("hloc")
    parts = {name: superpoint(random, 4) for name in ("db/1.jpg", "db/2.jpg", "query/night/1.jpg")}
    for name, part in parts.items():
        hloc(tmp_path / "h.h5", name, **part)
    features = dict(read_features(tmp_path / "h.h5", space=SUPERPOINT))
    assert list(features) == sorted(parts) and count_images(tmp_path / "h.h5") == 3
    for name, got in features.items():
        np.testing.assert_array_equal(got.keypoints, parts[name]["keypoints"].astype(np.float32) + 0.5)
        np.testing.assert_array_equal(got.descriptors, parts[name]["descriptors"].T.astype(np.float32))
        assert (got.camera.width_px, got.camera.height_px) == (640, 480)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keypoints": np.zeros(8, np.float32)}, "damaged or not hloc's layout"),
        ({"keypoints": np.zeros((4, 1), np.float32)}, r"need keypoints|damaged"),
        ({"descriptors": np.zeros(256, np.float32)}, r"expected descriptors|damaged"),
        ({"descriptors": np.array([[b"x"] * 4] * 256)}, "damaged or not hloc's layout"),
        ({"image_size": np.array([640, 480, 3])}, "damaged or not hloc's layout"),
        ({"image_size": np.array([0, 480])}, "image size must be"),
        ({"image_size": np.float64(3)}, "damaged or not hloc's layout"),
    ],
)
def test_parts_of_a_wrong_shape(tmp_path: Path, change: dict, words: str) -> None:
    path = hloc(tmp_path / "h.h5", "db/1.jpg", **(superpoint(generator("wrong"), 4) | change))
    with pytest.raises((InputError, FileFormatError), match=words) as caught:
        list(read_features(path, space=SUPERPOINT))
    assert "db/1.jpg" in str(caught.value)  # which image


def test_floats_of_sift_become_colmaps_eight_bits(tmp_path: Path) -> None:
    """Inverse pair: SIFT in unit floats, in 0..255 floats and in bytes is the same SIFT (length 512, clipped)."""
    raw = sift_like(generator("steps"), 6)
    long = raw.astype(np.float64) * 512 / np.linalg.norm(raw.astype(np.float64), axis=1, keepdims=True)
    for name, values in (("unit", long / 512), ("steps", long)):
        path = hloc(
            tmp_path / f"{name}.h5",
            "a",
            keypoints=np.zeros((6, 2), np.float32),
            descriptors=values.T.astype(np.float32),
            image_size=np.array([64, 48]),
        )
        ((_, got),) = read_features(path, space=SIFT)
        assert np.abs(got.descriptors.astype(int) - np.clip(np.round(long), 0, 255)).max() <= 1


def test_no_file_says_what_makes_one_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none.h5", tmp_path):
        with pytest.raises(FileFormatError, match=r"^there is no file .*make the features$"):
            list(read_features(path))
        assert count_images(path) is None


def test_a_truncated_file_raises_only_veils_errors(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    write_features(path, [("a/b.jpg", features(generator("one"), 20)), ("c.jpg", features(generator("two"), 3))])
    for bad in truncated(path.read_bytes(), 150):
        path.write_bytes(bad)
        assert isinstance(outcome(lambda: list(read_features(path))), FileFormatError)


def test_the_identity_of_imported_features() -> None:
    """It is the set of features that counts, not their order; any change of one changes it."""
    item = features(generator("identity"), 9)
    order = generator("order").permutation(9)
    digest = features_digest(item.keypoints, item.descriptors)
    assert features_digest(item.keypoints[order], item.descriptors[order]) == digest
    assert features_digest(item.keypoints[order], item.descriptors) != digest
    changed = item.descriptors.copy()
    changed[4, 4] ^= 1
    assert features_digest(item.keypoints, changed) != digest


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "f.h5", tmp_path / "folder"):
        with pytest.raises(InputError, match="choose another place"):
            write_features(path, [("a", features(generator("one"), 2))])
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "veil-home") == ["file", "folder"]
    assert issubclass(InputError, VeilError)


def test_images_are_found_at_any_depth_without_opening_every_object(tmp_path: Path) -> None:
    """Enumeration of what was written; a chain of 1,200 groups, each of which takes long to open, is looked through at once."""
    path = tmp_path / "deep.h5"
    chain = "/".join(["g"] * 1200)
    with h5py.File(path, "w") as file:
        group = file.create_group(chain)
        for name in ("b.jpg", "db/1.jpg", f"{chain}/c.jpg"):
            file.create_group(name)
            file[name]["keypoints"], file[name]["descriptors"] = np.ones((1, 2), "f4"), np.full((4, 1), 0.5, "f4")
            file[name]["image_size"] = np.array([9, 9])
        group["keypoints"] = np.ones((1, 2), "f4")  # no image: it has no descriptors
        file["other"] = h5py.SoftLink("/b.jpg")
    begun = time.process_time()
    names = [name for name, _ in read_features(path, space=replace(SUPERPOINT, dim=4))]
    assert names == ["b.jpg", "db/1.jpg", f"{chain}/c.jpg"]
    assert time.process_time() - begun < 1.5


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("f.h5", True), ("f.HDF5", True), ("f.npz", False), ("h5", False), ("f.h5.part", False), ("folder.h5/a.jpg", False)],
)
def test_features_are_known_by_their_suffix(name: str, wanted: bool) -> None:
    assert holds_features(Path(name)) is wanted

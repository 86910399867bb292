"""Features of other tools in hloc's HDF5, and what is none."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.errors import FileFormatError, InputError, VeilError, VeilWarning
from veil.files.features import (
    count_images,
    features_digest,
    holds_features,
    read_features,
    read_named_features,
    read_one,
    write_features,
)
from veil.geometry.camera import Camera
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


# Names that HDF5 takes for others (empty parts, dots), or for parts of a group, and names that look escaped.
NAMES = [
    "a.jpg", "./a.jpg", "/a.jpg", "a.jpg/", "c/a.jpg", "c//a.jpg", "/c/a.jpg", "c/./a.jpg", "c/../a.jpg", ".", "x/.", "..",
    "cam", "cam/keypoints", "cam/a.jpg", "keypoints", "cam/descriptors/b.jpg", "scores/scales",
    "%", "%25", "a%2Fb", "cam/%6Beypoints", "100%.jpg", "%/a", "a\0b", " a ", "a\nb", "\u00dcn\u00ef \u65e5.jpg", "x" * 3000,
]  # fmt: skip


def test_every_name_comes_back(tmp_path: Path) -> None:
    """Inverse pair, all names in one file: no two images are one group, and none is a part of another's."""
    items = {name: features(generator(f"name {number}"), 3) for number, name in enumerate(NAMES)}
    write_features(tmp_path / "f.h5", items.items())
    read = dict(read_features(tmp_path / "f.h5"))
    assert list(read) == sorted(NAMES) and count_images(tmp_path / "f.h5") == len(NAMES)
    for name, item in items.items():
        np.testing.assert_array_equal(read[name].descriptors, item.descriptors)
        assert read_one(tmp_path / "f.h5", name).image_digest == item.image_digest


def test_usual_names_are_groups_as_hloc_writes_them(tmp_path: Path) -> None:
    """Second method: h5py alone. A file without such names has no mark, so that older readers read it."""
    write_features(tmp_path / "f.h5", [("db/1.jpg", features(generator("usual"), 3))])
    with h5py.File(tmp_path / "f.h5") as file:
        assert "db/1.jpg/keypoints" in file and not file.attrs


def test_names_of_others_are_taken_as_they_are(tmp_path: Path) -> None:
    """A percent sign in a file without the mark is one."""
    hloc(tmp_path / "h.h5", "db/100%25.jpg", **superpoint(generator("percent"), 4))
    assert [name for name, _ in read_features(tmp_path / "h.h5", space=SUPERPOINT)] == ["db/100%25.jpg"]


@pytest.mark.parametrize(("names", "words"), [(["a", "a"], "two images are called 'a'"), ([""], "an image has no name")])
def test_names_that_name_no_image_are_refused(tmp_path: Path, names: list[str], words: str) -> None:
    item = features(generator("twice"), 3)
    with pytest.raises(InputError, match=words):
        write_features(tmp_path / "f.h5", [(name, item) for name in names])
    assert not (tmp_path / "f.h5").exists()


def test_one_image_that_cannot_be_used_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    """Planted damage of one kind in each of five images beside a good one; without `skipped`, the first is an error."""
    random = generator("skip")
    good = superpoint(random, 4)
    for name, change in {
        "1.jpg": {"keypoints": good["keypoints"][:3]},
        "2.jpg": {"descriptors": np.full((256, 4), np.nan, np.float32)},
        "3.jpg": {"keypoints": np.full((4, 2), 9000, np.float32)},
        "4.jpg": {"image_size": np.array([0, 0])},
        "5.jpg": {},
        "6.jpg": {"descriptors": np.array([[b"x"] * 4] * 256)},
    }.items():
        hloc(tmp_path / "h.h5", name, **(good | change))
    skipped: dict[str, VeilError] = {}
    assert [name for name, _ in read_features(tmp_path / "h.h5", space=SUPERPOINT, skipped=skipped)] == ["5.jpg"]
    assert sorted(skipped) == ["1.jpg", "2.jpg", "3.jpg", "4.jpg", "6.jpg"]
    with pytest.raises(VeilError, match=r"1\.jpg"):
        list(read_features(tmp_path / "h.h5", space=SUPERPOINT))
    with pytest.raises(InputError, match="does not say what its descriptors are"):
        list(read_features(tmp_path / "h.h5", skipped={}))


def sized(path: Path, sizes: list[tuple[int, int]], *, count: int = 60, factor: float = 1.0) -> Path:
    """A file of images of 640x480 px with these `image_size`, and positions all over the image times a factor."""
    random = generator("sizes")
    for index, size in enumerate(sizes):
        xy = (factor * (np.array([639.0, 479.0]) * random.random((count, 2)))).astype(np.float32)
        xy[:2] = factor * np.array([[639.0, 1.0], [1.0, 479.0]])
        hloc(path, f"{index}.jpg", **(superpoint(random, count) | {"keypoints": xy, "image_size": np.array(size)}))
    return path


def test_a_file_whose_sizes_are_of_other_images_is_refused(tmp_path: Path) -> None:
    """Planted sizes: (height, width), and those of shrunk images. Of a single wrong one the image is left out and named.

    Broken twin: image by image, those whose few positions lie inside of the wrong size would be taken for right.
    """
    for name, size in {"turned": (480, 640), "shrunk": (320, 240)}.items():
        path = sized(tmp_path / f"{name}.h5", [size, size, size])
        few = superpoint(generator("few"), 2) | {"keypoints": np.full((2, 2), 100.0), "image_size": np.array(size)}
        hloc(path, "few.jpg", **few)
        words = rf"in 3 of 4 images positions .* \(0\.jpg: up to \(640, 480\) in {size[0]}x{size[1]} px\); `image_size` must be"
        with pytest.raises(InputError, match=words):
            list(read_features(path, space=SUPERPOINT, skipped={}))
    one = sized(tmp_path / "one.h5", [(640, 480), (480, 640), (640, 480)])
    skipped: dict[str, VeilError] = {}
    assert [name for name, _ in read_features(one, space=SUPERPOINT, skipped=skipped)] == ["0.jpg", "2.jpg"]
    assert list(skipped) == ["1.jpg"]


def test_positions_in_pixels_of_smaller_images_are_told(tmp_path: Path) -> None:
    """Planted positions of images of half the size. Counterexamples: the right size, and images with few features."""
    half = sized(tmp_path / "half.h5", [(640, 480)] * 3, factor=0.5)
    with pytest.warns(VeilWarning, match=r"of 3 images lies beyond 50% of the width and 50% of the height; .*`image_size`"):
        list(read_features(half, space=SUPERPOINT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(read_features(sized(tmp_path / "right.h5", [(640, 480)] * 3), space=SUPERPOINT))
        list(read_features(sized(tmp_path / "few.h5", [(640, 480)] * 3, factor=0.5, count=20), space=SUPERPOINT))


def test_a_given_camera_of_another_size_is_rescaled_to_the_file(tmp_path: Path) -> None:
    """Oracle by hand: twice the pixels, twice the focal length. One of another shape is refused with both sizes."""
    path = sized(tmp_path / "h.h5", [(640, 480)])
    cameras = {"0.jpg": Camera("SIMPLE_PINHOLE", 1280, 960, (1000.0, 640.0, 480.0))}
    ((_, got),) = read_features(path, space=SUPERPOINT, cameras=cameras)
    assert got.camera == Camera("SIMPLE_PINHOLE", 640, 480, (500.0, 320.0, 240.0))
    square = {"0.jpg": Camera("SIMPLE_PINHOLE", 960, 960, (1000.0, 480.0, 480.0))}
    with pytest.raises(InputError, match=r"0\.jpg.*features are of 640x480 px, and its camera is of 960x960 px, .* ratio"):
        list(read_features(path, space=SUPERPOINT, cameras=square))


@pytest.mark.parametrize("space", [SUPERPOINT, SIFT])
def test_features_without_a_descriptor_are_left_out_and_counted(tmp_path: Path, space: Space) -> None:
    """Planted truth: the others stay as they are, each with its keypoint and score."""
    parts = superpoint(generator("zero"), 6)
    if space is SIFT:
        parts["descriptors"] = np.abs(parts["descriptors"][:128].astype(np.float32))
        parts["descriptors"] /= np.linalg.norm(parts["descriptors"], axis=0)
    parts["descriptors"][:, [1, 4]] = 0
    hloc(tmp_path / "h.h5", "a.jpg", **parts)
    with pytest.warns(VeilWarning, match=r"2 features with descriptors that are all zero were left out, of a\.jpg"):
        ((_, got),) = read_features(tmp_path / "h.h5", space=space)
    kept = [0, 2, 3, 5]
    assert got.scores is not None
    np.testing.assert_array_equal(got.keypoints, parts["keypoints"][kept].astype(np.float32) + 0.5)
    np.testing.assert_array_equal(got.scores, parts["scores"][kept].astype(np.float32))
    assert len(got.descriptors) == 4


def test_an_image_that_two_files_have_is_refused(tmp_path: Path) -> None:
    """Broken twin: a dictionary of both, in which the last one wins."""
    for file, name in (("one.h5", "a.jpg"), ("two.h5", "b.jpg"), ("three.h5", "a.jpg")):
        write_features(tmp_path / file, [(name, features(generator(file), 20))])
    assert set(read_named_features([tmp_path / "one.h5", tmp_path / "two.h5"])) == {"a.jpg", "b.jpg"}
    with pytest.raises(InputError, match=r"three\.h5, image 'a\.jpg': another file that is given has an image of this name"):
        read_named_features(tmp_path / file for file in ("one.h5", "two.h5", "three.h5"))

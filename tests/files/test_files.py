"""Files: inverse pairs, damage, interruption, and several processes at once."""

from __future__ import annotations

import io
import multiprocessing
import os
import stat
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from veil.errors import FileFormatError, InputError, ReleaseRefused
from veil.extraction.picture import Picture, focal_from_exif
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.atomic import replacing, write_bytes
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook, write_codebook
from veil.files.device.ledger import Entry, Ledger
from veil.files.device.secret import load_secret
from veil.files.features import read_features, write_features
from veil.files.maps.format import read_map, write_map
from veil.files.photographs.pictures import read_picture, read_rgb
from veil.forms import Form, Points
from veil.geometry.camera import GIVEN, GUESS, UNDISCLOSED, FocalPrior
from veil.scene import MappedImage, Scene
from veil.space import Space
from worlds import codebook, features, generator, subspaces, world

IMAGE = features(generator("file"), 30)


def test_features_come_back(tmp_path: Path) -> None:
    with_shape = replace(IMAGE, scales=np.ones(30, np.float32), orientations=np.zeros(30, np.float32))
    write_features(tmp_path / "f.h5", [("a/b.jpg", with_shape), ("c.png", IMAGE)])
    features = dict(read_features(tmp_path / "f.h5"))
    assert list(features) == ["a/b.jpg", "c.png"]
    for name, sent in (("a/b.jpg", with_shape), ("c.png", IMAGE)):
        got = features[name]
        np.testing.assert_array_equal(got.descriptors, sent.descriptors)
        np.testing.assert_allclose(got.keypoints, sent.keypoints, atol=1e-6)
        assert (got.camera, got.space, got.image_digest) == (sent.camera, sent.space, sent.image_digest)
        assert (got.scales is None) == (sent.scales is None)


def hloc(path: Path, **change: object) -> Path:
    parts: dict[str, object] = {
        "keypoints": np.array([[0.0, 0.0], [10.0, 20.0]], np.float32),
        "descriptors": (np.eye(128, 2) + 0.0).astype(np.float32),
        "image_size": np.array([64, 48]),
    }
    with h5py.File(path, "w") as file:
        for key, value in (parts | change).items():
            if value is not None:
                file[f"query/x.jpg/{key}"] = value
    return path


def test_the_source_of_a_focal_length_is_kept_and_older_files_say_less(tmp_path: Path) -> None:
    """Inverse pair for each origin; a file without it says known or guessed, as a message does."""
    for known in (FocalPrior(origin="EXIF", deviation=0.03), GIVEN, GUESS):
        camera = replace(IMAGE.camera, focal=known)
        write_features(tmp_path / "f.h5", [("a.png", replace(IMAGE, camera=camera))])
        ((_, got),) = read_features(tmp_path / "f.h5")
        assert got.camera == camera
        with h5py.File(tmp_path / "f.h5", "a") as file:
            del file["a.png"].attrs["veil_focal_origin"]
        ((_, older),) = read_features(tmp_path / "f.h5")
        assert older.camera.focal == (GUESS if known == GUESS else UNDISCLOSED)
    with h5py.File(tmp_path / "f.h5", "a") as file:
        file["a.png"].attrs["veil_focal_origin"] = "hearsay"
    with pytest.raises(InputError, match="not hearsay"):
        list(read_features(tmp_path / "f.h5"))


def test_hlocs_pixel_centers_are_at_integers(tmp_path: Path) -> None:
    space = Space(descriptor="superpoint", normalization="L2", dim=128)
    ((name, got),) = read_features(hloc(tmp_path / "h.h5"), space=space)
    assert name == "query/x.jpg"
    np.testing.assert_array_equal(got.keypoints, [[0.5, 0.5], [10.5, 20.5]])
    assert not got.camera.focal_is_known and not got.is_quantized
    ((_, sift),) = read_features(tmp_path / "h.h5", space=replace(space, descriptor="sift"))
    assert sift.is_quantized and sift.descriptors[0, 0] == 255  # a 512-step unit entry, clipped as COLMAP clips


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_size": None}, "image_size"),
        ({"descriptors": np.full((128, 2), np.nan, np.float32)}, "unit length"),
        ({"descriptors": np.zeros((128, 3), np.float32)}, "expected descriptors"),
        ({"keypoints": np.full((2, 2), np.inf, np.float32)}, "NaN"),
        ({"keypoints": None}, "no group with"),
    ],
)
def test_features_of_others_that_cannot_be(tmp_path: Path, change: dict, words: str) -> None:
    space = Space(descriptor="superpoint", normalization="L2", dim=128)
    with pytest.raises((InputError, FileFormatError), match=words):
        list(read_features(hloc(tmp_path / "h.h5", **change), space=space))
    with pytest.raises((InputError, FileFormatError), match=r"read_features\(space=|no group|NaN|image_size|expected"):
        list(read_features(hloc(tmp_path / "h.h5", keypoints=change.get("keypoints", np.zeros((2, 2), np.float32)))))


def test_damaged_features(tmp_path: Path) -> None:
    write_features(tmp_path / "f.h5", [("a", IMAGE)])
    data = (tmp_path / "f.h5").read_bytes()
    for cut in (0, 100, len(data) // 2):
        (tmp_path / "cut.h5").write_bytes(data[:cut])
        with pytest.raises(FileFormatError):
            list(read_features(tmp_path / "cut.h5"))


@pytest.mark.parametrize("kind", ["centroids", "descriptors"])
def test_codebooks_come_back_and_damage_is_seen(tmp_path: Path, kind: str) -> None:
    book = codebook(generator(kind), 60, 3, kind=kind)
    write_codebook(tmp_path / "b.npz", book)
    got = read_codebook(tmp_path / "b.npz")
    assert got.digest == book.digest
    np.testing.assert_array_equal(got.stored, book.stored)
    arrays = dict(np.load(tmp_path / "b.npz"))
    for key in arrays:
        changed = {name: value.copy() for name, value in arrays.items()}
        if changed[key].size == 0:
            continue
        changed[key].reshape(-1)[-1] += 1
        np.savez(tmp_path / "bad.npz", **changed)
        with pytest.raises(FileFormatError):
            read_codebook(tmp_path / "bad.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:500])
    np.savez(tmp_path / "pickle.npz", header=np.array([{"a": 1}], dtype=object))
    for name in ("cut", "pickle", "missing"):
        with pytest.raises(FileFormatError):
            read_codebook(tmp_path / f"{name}.npz")


def test_what_ships_is_what_it_says() -> None:
    centroids, pool = bundled_codebook(), bundled_decoys()
    assert (centroids.kind, len(centroids), centroids.slices, centroids.remainder) == ("centroids", 16384, 16, 0)
    assert (pool.kind, len(pool), pool.slices, pool.remainder) == ("descriptors", 32768, 32, 0)
    assert centroids.stored.dtype == pool.stored.dtype == np.uint8
    np.testing.assert_allclose(np.linalg.norm(centroids.vectors, axis=1), 1, atol=1e-5)
    assert len(np.unique(pool.stored, axis=0)) == len(pool)
    pca = centroids.compression.require_pca()
    np.testing.assert_allclose(pca.axes @ pca.axes.T, np.eye(48), atol=1e-5)
    assert pool.provenance.image_count == len(pool.provenance.image_digests) > 800


def test_the_secret_is_made_once_and_kept_close(tmp_path: Path) -> None:
    first = load_secret(tmp_path / "home")
    assert load_secret(tmp_path / "home") == first
    assert stat.S_IMODE((tmp_path / "home" / "secret").stat().st_mode) == 0o600
    (tmp_path / "home" / "secret").write_bytes(b"short")
    with pytest.raises(FileFormatError, match="restore it"):
        load_secret(tmp_path / "home")


def _load_and_record(folder: str, parameters: str, queue) -> None:
    key = load_secret(Path(folder)).key
    try:
        Ledger(Path(folder)).record(entry(parameters=parameters, message_digest=parameters))
        queue.put((key, parameters))
    except ReleaseRefused:
        queue.put((key, None))


def entry(**change: object) -> Entry:
    base = Entry(image_digest="aa", released_as="bb", name="x.jpg", parameters="p", features=1, message_digest="m", fresh=False)
    return replace(base, **change)  # type: ignore[arg-type]


def together(work, *arguments: tuple) -> list:
    """Run `work` in processes that start at once."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=work, args=(*each, queue)) for each in arguments]
    for process in processes:
        process.start()
    results = [queue.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    return results


@pytest.mark.slow
def test_processes_share_one_secret_and_one_ledger(tmp_path: Path) -> None:
    results = together(_load_and_record, *[(str(tmp_path), name) for name in "abc"])
    assert len({key for key, _ in results}) == 1
    winners = [name for _, name in results if name]
    assert len(winners) == 1
    assert [e.parameters for e in Ledger(tmp_path).entries()] == winners


def test_the_ledger_refuses_a_second_release_and_survives(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.record(entry())
    assert not ledger.record(entry())  # the same message again
    assert ledger.record(entry(message_digest="other rounding"))  # the same choices, memoized
    for second in (entry(parameters="q", message_digest="n"), entry(fresh=True, message_digest="n")):
        with pytest.raises(ReleaseRefused, match=r"Device\.release\(allow_second=True\)"):
            Ledger(tmp_path).record(second)
    assert len(Ledger(tmp_path).entries()) == 2
    assert ledger.record(entry(fresh=True, message_digest="n"), allow_second=True)
    with pytest.raises(ReleaseRefused):  # a fresh draw stands in the ledger: the memoized one would meet it
        ledger.record(entry(message_digest="yet another"))
    assert ledger.record(entry(image_digest="another image", parameters="q", message_digest="z"))
    ledger.path.write_bytes(b"not a database, certainly" * 100)
    with pytest.raises(FileFormatError, match="backup"):
        Ledger(tmp_path)


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out" / "file"
    write_bytes(target, b"old")
    with pytest.raises(RuntimeError), replacing(target) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["file"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def gradient(height: int = 40, width: int = 64) -> np.ndarray:
    rows, columns = np.mgrid[:height, :width]
    return np.stack([3 * columns, 4 * rows, rows + columns], axis=2).astype(np.uint8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honored(tmp_path: Path, orientation: int) -> None:
    """Oracle: the stored pixels are made from the upright ones by NumPy, as EXIF defines each value."""
    upright = gradient()
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "o.png", exif=exif)
    np.testing.assert_array_equal(read_rgb(tmp_path / "o.png"), upright)
    assert read_picture(tmp_path / "o.png").digest == Picture.of(upright, {}, None).digest


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16", "I", "F"])
def test_common_modes_decode(tmp_path: Path, mode: str) -> None:
    gray = Image.fromarray(gradient()).convert("L")
    if mode in ("I;16", "I"):
        image = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    else:
        image = gray.convert("RGB").convert(mode) if mode in ("P", "CMYK") else gray.convert(mode)
    path = tmp_path / ("m.tif" if mode in ("F", "CMYK", "I") else "m.png")
    image.save(path)
    got = read_picture(path)
    assert got.gray.shape == (40, 64)
    if mode not in ("1", "P"):
        assert np.abs(got.gray.astype(int) - np.asarray(gray)).mean() < 12


def test_photographs_that_are_none(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(gradient(200, 300)).save(buffer, "JPEG")
    for name, data in (("cut.jpg", buffer.getvalue()[:700]), ("empty.jpg", b""), ("text.png", b"hello")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileFormatError, match="cannot be decoded"):
            read_picture(tmp_path / name)
    Image.fromarray(gradient(8, 8)).save(tmp_path / "tiny.png")
    with pytest.raises(InputError, match="16 px"):
        read_picture(tmp_path / "tiny.png")
    Image.new("RGB", (200, 100), (90, 90, 90)).save(tmp_path / "blank.png")
    with pytest.raises(InputError, match="no features"):
        extract_sift(read_picture(tmp_path / "blank.png"))


@pytest.mark.slow
def test_large_photographs_are_shrunk_and_keypoints_scaled_back() -> None:
    """Second method: the same picture at a quarter of the limit; keypoints land within two pixels of each other."""
    from veil.files.photographs.examples import lund_door

    with lund_door() as example:
        shot = read_picture(example.folder / "DSC_0001.jpg")
    small = extract_sift(shot, SiftOptions(max_features=100, max_image_side_px=512))
    assert small.keypoints.max() > 600
    full = extract_sift(shot, SiftOptions(max_features=2000))
    gaps = np.linalg.norm(small.keypoints[:, None] - full.keypoints[None], axis=2).min(axis=1)
    assert np.median(gaps) < 2
    assert len(small) <= 100


def test_focal_lengths_from_exif() -> None:
    """Golden: 28 mm on a 4000x3000 picture is 28 / 43.2666 of its 5000 px diagonal."""
    assert focal_from_exif({0xA405: 28}, 4000, 3000) == pytest.approx(28 / 43.266615 * 5000)
    plane = {0x920A: 5.0, 0xA20E: 2000.0, 0xA210: 3, 0xA002: 4000}  # 5 mm, 2000 px a cm
    assert focal_from_exif(plane, 4000, 3000) == pytest.approx(1000)
    assert focal_from_exif(plane, 2000, 1500) == pytest.approx(500)
    for bad in ({}, {0xA405: 0}, {0xA405: float("nan")}, {0x920A: 5.0}, {0xA405: "x"}, {0xA405: 5000}):
        assert focal_from_exif(bad, 4000, 3000) is None


@pytest.mark.parametrize("m", [0, 3])
def test_maps_come_back(tmp_path: Path, m: int) -> None:
    scene = small_scene(m)
    write_map(tmp_path / "map", scene)
    got = read_map(tmp_path / "map")
    np.testing.assert_allclose(got.points, scene.points, atol=1e-12)
    assert list(got.images) == list(scene.images)
    for name, image in scene.images.items():
        other = got.images[name]
        np.testing.assert_allclose(other.cam_from_world.rotation, image.cam_from_world.rotation, atol=1e-9)
        np.testing.assert_array_equal(other.keypoints, image.keypoints)
        np.testing.assert_array_equal(other.point_rows, image.point_rows)
        assert type(other.form) is type(image.form)
    assert 0 < got.mean_reprojection_error_px < 1
    with pytest.raises(InputError, match="not empty"):
        write_map(tmp_path / "map", scene)
    (tmp_path / "map" / "descriptors.h5").write_bytes(b"broken")
    with pytest.raises(FileFormatError, match="build the map again"):
        read_map(tmp_path / "map")
    with pytest.raises(FileFormatError, match="not a veil map"):
        read_map(tmp_path)


def small_scene(m: int) -> Scene:
    place = world("small scene", images=3, points=40)
    seen = np.unique(np.concatenate(list(place.visible.values())))
    row = {int(point): index for index, point in enumerate(seen)}
    images = {}
    for name, pose in place.poses.items():
        form: Form = place.form(name)
        assert isinstance(form, Points)
        if m:
            form = subspaces(generator(name), form.vectors, m, form.space)
        images[name] = MappedImage(
            name=name,
            camera=place.camera,
            cam_from_world=pose,
            keypoints=place.keypoints[name],
            point_rows=np.array([row[int(p)] for p in place.visible[name]], dtype=np.int64),
            form=form,
        )
    return Scene(images=images, points=place.points[seen], mean_reprojection_error_px=0.3)


def test_a_map_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import veil.files.maps.format as maps

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(maps, "_write_form", fail)
    with pytest.raises((OSError, InputError), match="disk full"):
        write_map(tmp_path / "map", small_scene(0))
    assert os.listdir(tmp_path) in ([], ["veil-home"])

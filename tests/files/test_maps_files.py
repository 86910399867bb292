"""Maps on disk: COLMAP reads them, damage is seen before COLMAP does, and nothing is left half-written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import veil.files.maps.format as maps
from veil.cli import main
from veil.errors import FileFormatError, InputError
from veil.files.maps.format import read_map, write_map
from veil.forms import Points, Subspaces
from veil.scene import MapCheck
from worlds import generator, project
from worlds.edges import flipped, outcome, scene, truncated
from worlds.map_scenes import planted_map


@pytest.fixture(params=[0, 3], ids=["public", "private"])
def dimension(request: pytest.FixtureRequest) -> int:
    return request.param


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if "veil-home" not in path.parts)


def test_forms_and_their_promise_come_back(tmp_path: Path, dimension: int) -> None:
    """Inverse pair: raw vectors to the bit; subspaces as the same sets, with the guarantee of their profile."""
    sent = scene(dimension)
    write_map(tmp_path / "map", sent)
    got = read_map(tmp_path / "map")
    assert got.space == sent.space and got.is_public == sent.is_public == (dimension == 0)
    for name, image in sent.images.items():
        form, other = image.form, got.images[name].form
        if isinstance(form, Points):
            assert isinstance(other, Points)
            np.testing.assert_array_equal(other.vectors, form.vectors)
            assert other.guarantee == form.guarantee
        else:
            assert isinstance(other, Subspaces) and isinstance(form, Subspaces)
            assert (other.m, other.profile) == (form.m, form.profile)
            assert "broken" in other.guarantee.reason  # type: ignore[union-attr]  # what is known of the paper's profile
            np.testing.assert_allclose(other.origin, form.origin, atol=1e-6)
            # The same span: projecting one basis on the other leaves it as it is.
            through = np.einsum("fin,fjn,fjk->fik", form.basis, other.basis, other.basis)
            np.testing.assert_allclose(through, form.basis, atol=1e-5)


def test_how_sure_a_map_is_comes_back_and_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inverse pair; a map without a record has none; a damaged record is refused."""
    check = MapCheck(
        pairs=9,
        explained_pairs=8,
        contradicting_pairs=1,
        explained_matches=0.97,
        neck=31,
        uncertainty=float("inf"),
        step_ratio=None,
        left_out={"é.jpg": "too few matches"},
    )
    write_map(tmp_path / "map", replace(scene(0), check=check))
    assert read_map(tmp_path / "map").check == check
    assert main(["inspect", str(tmp_path / "map")]) == 0
    shown = capsys.readouterr().out
    assert "explains 8 of 9 verified pairs" in shown and "left out é.jpg: too few matches" in shown
    write_map(tmp_path / "old", scene(0))
    assert read_map(tmp_path / "old").check is None
    with h5py.File(tmp_path / "map" / "descriptors.h5", "a") as file:
        file.attrs["check"] = '{"pairs": 9}'
    with pytest.raises(FileFormatError, match="check"):
        read_map(tmp_path / "map")


@pytest.mark.parametrize("names", ["{}.jpg", "db/day {}.jpg", "a/b/c/{}"])
def test_colmap_opens_the_model(tmp_path: Path, dimension: int, names: str) -> None:
    """Second method: pycolmap's own counts; projecting with our camera lands on its 2D points."""
    import pycolmap

    sent = scene(dimension, names=names)
    write_map(tmp_path / "map", sent)
    model = pycolmap.Reconstruction(tmp_path / "map" / "sparse")
    assert model.num_reg_images() == len(sent.images) and model.num_points3D() == len(sent.points)
    assert {image.name for image in model.images.values()} == set(sent.images)
    errors = []
    for image in sent.images.values():
        xy = project(image.cam_from_world, sent.points[image.point_rows], image.camera)
        errors.append(np.linalg.norm(xy - image.keypoints, axis=1))
    mean = np.concatenate(errors).mean()
    assert model.compute_mean_reprojection_error() == pytest.approx(mean, rel=1e-6)
    assert read_map(tmp_path / "map").mean_reprojection_error_px == pytest.approx(mean, rel=1e-6)
    assert 0.2 < mean < 0.6  # noise of 0.3 px in x and y: Rayleigh mean 0.376


def test_a_map_holds_nothing_else(tmp_path: Path, dimension: int) -> None:
    """No photograph, no raw descriptor in a private map, no database."""
    write_map(tmp_path / "map", scene(dimension))
    parts = [f"sparse/{name}.bin" for name in ("cameras", "frames", "images", "points3D", "rigs")]
    assert everything(tmp_path / "map") == ["descriptors.h5", "sparse", *parts]
    with h5py.File(tmp_path / "map" / "descriptors.h5") as file:
        for group in file.values():
            assert set(group) == ({"origin", "basis"} if dimension else {"vectors"})


def test_a_target_that_is_taken_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("folder", "file"):
        with pytest.raises(InputError, match="not empty; choose another name"):
            write_map(tmp_path / name, scene(0))
    with pytest.raises(InputError, match="choose another place"):
        write_map(tmp_path / "file" / "below", scene(0))
    assert everything(tmp_path) == ["file", "folder", "folder/mine"]
    (tmp_path / "empty").mkdir()
    write_map(tmp_path / "empty", scene(0))
    assert len(read_map(tmp_path / "empty").images) == 3


@pytest.mark.parametrize("stage", ["_reconstruction", "_fingerprint", "_write_space", "_write_form"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("bug")])
def test_whatever_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(maps, stage, fail)
    expected = InputError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected):
        write_map(tmp_path / "maps" / "one", scene(0))
    assert everything(tmp_path) == ["maps"]


def test_a_damaged_model_never_reaches_colmap(tmp_path: Path) -> None:
    """COLMAP's reader loops for hours on some truncated files (frames.bin); truncations and flips must be seen before."""
    write_map(tmp_path / "map", scene(3))
    random = generator("model")
    for part in sorted((tmp_path / "map" / "sparse").iterdir()):
        good = part.read_bytes()
        for bad in (*truncated(good, 12), *flipped(random, good, 20)):
            if bad == good:
                continue
            part.write_bytes(bad)
            with pytest.raises(FileFormatError, match="restore it or build the map again"):
                read_map(tmp_path / "map")
        part.unlink()
        with pytest.raises(FileFormatError, match="restore it"):
            read_map(tmp_path / "map")
        part.write_bytes(good)
    assert len(read_map(tmp_path / "map").images) == 3


def test_parts_of_two_maps_do_not_belong_together(tmp_path: Path) -> None:
    write_map(tmp_path / "one", scene(3))
    write_map(tmp_path / "two", scene(3, names="other {}.jpg"))
    shutil.copy(tmp_path / "two" / "descriptors.h5", tmp_path / "one")
    with pytest.raises(FileFormatError, match="was changed after the map was written"):
        read_map(tmp_path / "one")


def test_a_model_edited_on_purpose_is_read_once_it_is_said(tmp_path: Path) -> None:
    """Scaled by COLMAP itself, as a georeferenced map is: refused, then read where the fingerprint was deleted."""
    import pycolmap

    sent = scene(3)
    write_map(tmp_path / "map", sent)
    model = pycolmap.Reconstruction(tmp_path / "map" / "sparse")
    model.transform(pycolmap.Sim3d(2.0, pycolmap.Rotation3d(), np.zeros(3)))
    model.write(tmp_path / "map" / "sparse")
    with pytest.raises(FileFormatError, match="delete the attribute sparse_sha256"):
        read_map(tmp_path / "map")
    with h5py.File(tmp_path / "map" / "descriptors.h5", "a") as file:
        del file.attrs["sparse_sha256"]
    np.testing.assert_allclose(read_map(tmp_path / "map").points, 2 * sent.points, rtol=1e-9)


def set_attribute(name: str, value: object) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.__setitem__(name, value)


def replaced(path: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[h5py.File], None]:
    def spoil(file: h5py.File) -> None:
        value = change(file[path][()])
        del file[path]
        file[path] = value

    return spoil


def not_a_number(values: np.ndarray) -> np.ndarray:
    values[0] = np.nan
    return values


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (set_attribute("veil_map_format", 2), "map format 2 is not supported"),
        (set_attribute("dim", 7), "must have shape"),
        (set_attribute("normalization", "L7"), "normalization"),
        (set_attribute("dither_steps", np.nan), "dither_steps"),
        (set_attribute("codebook", "zz"), "codebook must be"),
        (lambda file: file.attrs.__delitem__("descriptor"), "damaged"),
        (lambda file: file.__delitem__("photo 1.jpg"), "damaged"),
        (lambda file: file["photo 1.jpg"].attrs.__delitem__("profile"), "damaged"),
        (replaced("photo 1.jpg/origin", lambda o: o[:-1]), "damaged|do not belong|shape"),
        (replaced("photo 1.jpg/basis", lambda b: b[:, :, :-1]), "damaged|shape"),
        (replaced("photo 1.jpg/basis", lambda b: b[:, 0]), "damaged"),
        (replaced("photo 1.jpg/basis", lambda b: b * 0), "linearly dependent"),
        (replaced("photo 1.jpg/basis", not_a_number), "NaN"),
        (replaced("photo 1.jpg/origin", not_a_number), "NaN"),
    ],
)
def test_descriptors_that_do_not_fit_the_model(tmp_path: Path, spoil: Callable, words: str) -> None:
    write_map(tmp_path / "map", scene(3))
    with h5py.File(tmp_path / "map" / "descriptors.h5", "a") as file:
        spoil(file)
    with pytest.raises(FileFormatError, match=words) as caught:
        read_map(tmp_path / "map")
    assert str(tmp_path / "map") in str(caught.value)


def test_truncated_descriptors(tmp_path: Path) -> None:
    write_map(tmp_path / "map", scene(0))
    path = tmp_path / "map" / "descriptors.h5"
    for bad in truncated(path.read_bytes(), 40):
        path.write_bytes(bad)
        assert isinstance(outcome(lambda: read_map(tmp_path / "map")), FileFormatError)


@pytest.mark.parametrize("form", ["public", "lines"])
def test_images_of_every_name_come_back(tmp_path: Path, form: str) -> None:
    """Inverse pair: names that HDF5 takes for others, or for parts of a group, are those of the images again."""
    sent, _ = planted_map("names", form)
    renamed = dict(zip(sent.images, ["a", "./a", "a/vectors", "/a", "a/lines", "100%"], strict=True))
    images = {renamed[key]: replace(image, name=renamed[key]) for key, image in sent.images.items()}
    write_map(tmp_path / "map", replace(sent, images=images))
    got = read_map(tmp_path / "map")
    assert set(got.images) == set(renamed.values())
    for key, image in sent.images.items():
        np.testing.assert_array_equal(got.images[renamed[key]].point_rows, image.point_rows)
        np.testing.assert_allclose(got.images[renamed[key]].keypoints, image.keypoints, atol=1e-3)

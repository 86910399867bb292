"""Images leave a map with what came from them alone; the rest is adjusted and stays where it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil.forms import Points
from veil.geometry.similarity import align_poses, pose_error
from veil.places.maps import NoMap, removal
from veil.places.maps.removal import Removal, remove_images, require_named
from veil.scene import ContradictedFocal, Scene
from worlds import generator
from worlds.map_scenes import CHECK, KINDS, image_name, planted_map, survivors

GONE = image_name("02")


def removed(scene: Scene, *names: str, workdir: Path) -> Removal:
    removal = remove_images(scene, names, workdir=workdir)
    assert isinstance(removal, Removal), removal
    return removal


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_too_few_others_see_goes_and_nothing_else(kind: str, tmp_path: Path) -> None:
    """Oracle: enumeration of who sees what. Noise of 0.1 px gives the adjustment nothing to leave out."""
    scene, _ = planted_map(f"removal {kind}", kind, seen=0.7 if kind == "lines" else 0.5)
    least = 4 if kind == "lines" else 2
    kept = survivors(scene, {GONE}, least)
    assert len(kept) < len(scene.points) - 3, "the removed image held up some points"
    removal = removed(scene, GONE, workdir=tmp_path)
    assert set(removal.scene.images) == set(scene.images) - {GONE} and removal.left_out == {} and removal.unadjusted is None
    assert removal.features == {GONE: len(scene.images[GONE].form)}
    assert len(removal.scene.points) == len(kept) and removal.points == len(scene.points) - len(kept)
    lost = 0
    for name, image in removal.scene.images.items():
        rows = np.flatnonzero(np.isin(scene.images[name].point_rows, list(kept)))
        lost += len(scene.images[name].form) - len(rows)
        assert len(image.form) == len(rows)
        if isinstance(image.form, Points):
            before = scene.images[name].form.take(rows)
            assert isinstance(before, Points)
            np.testing.assert_array_equal(np.sort(image.form.vectors, axis=0), np.sort(before.vectors, axis=0))
    assert removal.features_of_others == lost


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["subspaces", "lines"])
def test_what_is_left_is_adjusted_in_the_frame_of_before(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted truth: points pushed off it come back, without any alignment. Broken twin: a map that is only cut down."""
    scene, _ = planted_map(f"adjusted {kind}", kind, points=150)
    off = replace(scene, points=scene.points + generator("off").normal(size=scene.points.shape) * 0.05)
    (tmp_path / "work").mkdir()
    answer = removed(off, GONE, workdir=tmp_path / "work")
    kept = scene.points[sorted(survivors(scene, {GONE}, 4 if kind == "lines" else 2))]

    def error(scene: Scene) -> float:
        nearest = np.linalg.norm(scene.points[:, None] - kept[None], axis=2).min(axis=1)
        return float(np.median(nearest))

    assert error(answer.scene) < 0.02 < 0.05 < error(off)
    names = sorted(answer.scene.images)
    alignment = align_poses(
        [answer.scene.images[n].cam_from_world for n in names], [off.images[n].cam_from_world for n in names]
    )
    assert alignment.scale == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(alignment.rotation, np.eye(3), atol=1e-6)
    for name in names:
        position, rotation = pose_error(answer.scene.images[name].cam_from_world, off.images[name].cam_from_world, alignment)
        assert position < 0.05 and rotation < 0.3
    monkeypatch.setattr(removal, "_adjusted", lambda scene, *_: (scene, None, None))
    assert error(removed(off, GONE, workdir=tmp_path).scene) > 0.05


def bridged(number: int, points: np.ndarray) -> np.ndarray:
    """Two groups of three images, left and right halves of the points; the third and fourth image see some of both."""
    left = points[:, 0] < 0
    middle = np.abs(points[:, 0]) < 0.5
    return (left | middle if number == 2 else left) if number < 3 else ~left


@pytest.mark.slow
def test_a_part_that_only_the_removed_image_held_goes_and_is_named(tmp_path: Path) -> None:
    """Planted: the bridge between the first two images and the last three is removed."""
    scene, _ = planted_map("bridge", points=200, sees=bridged)
    removal = removed(scene, GONE, workdir=tmp_path)
    assert set(removal.scene.images) == {image_name(f"0{number}") for number in (3, 4, 5)}
    assert set(removal.left_out) == {image_name("00"), image_name("01")}
    assert all("0 points hold it" in reason for reason in removal.left_out.values())
    assert (
        isinstance(removal.check, type(CHECK))
        and set(removal.left_out) <= set(removal.check.left_out)
        and removal.check.removed == 3
    )


@pytest.mark.slow
def test_the_record_of_the_map_is_renewed_and_forgets_the_name(tmp_path: Path) -> None:
    """Oracle: the record before. Gravity stays; a name that the map only had left out is forgotten by itself."""
    scene, _ = planted_map("record")
    down = np.array([0.0, 1.0, 0.0])
    focal = ContradictedFocal(images=2, given_px=700.0, refined_px=500.0, names=("fog.jpg", "night.jpg"))
    before = replace(CHECK, left_out={"night.jpg": "dark", "fog.jpg": "fog"}, contradicted_focals=(focal,))
    scene = replace(scene, check=before, measured_down=down)
    removal = removed(scene, GONE, "night.jpg", workdir=tmp_path)
    check = removal.scene.check
    assert check is not None and check.left_out == {"fog.jpg": "fog"} and check.removed == 1
    assert check.contradicted_focals == (replace(focal, names=("fog.jpg",)),)
    assert check.pairs == CHECK.pairs and check.neck != CHECK.neck
    assert "1 images were removed since" in check.described()
    np.testing.assert_array_equal(removal.scene.measured_down, down)
    (tmp_path / "again").mkdir()
    same = removed(removal.scene, "fog.jpg", workdir=tmp_path / "again")
    assert same.scene.check is not None and same.scene.check.left_out == {} and same.points == 0
    assert same.scene.points is removal.scene.points and same.features == {"fog.jpg": 0}


def test_no_map_is_left_or_none_that_can_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map of one image, of three images of lines, and one whose cameras are known to a tenth of their extent."""
    scene, _ = planted_map("too few")
    refusal = remove_images(scene, [image_name(f"0{number}") for number in range(5)], workdir=tmp_path)
    assert isinstance(refusal, NoMap) and "no map of 2 images" in refusal.reason
    lines, _ = planted_map("too few", "lines")
    refusal = remove_images(lines, [image_name(f"0{number}") for number in range(3)], workdir=tmp_path)
    assert isinstance(refusal, NoMap) and "no map of 4 images" in refusal.reason
    monkeypatch.setattr(removal, "_adjusted", lambda scene, *_: (scene, None, None))
    monkeypatch.setattr(removal, "position_uncertainty", lambda *_: 0.1)
    refusal = remove_images(scene, [GONE], workdir=tmp_path)
    assert isinstance(refusal, NoMap) and "cannot be trusted: its camera positions are known to 10.0% of" in refusal.reason


def test_an_unknown_name_is_refused_with_those_like_it() -> None:
    scene, _ = planted_map("names")
    require_named([GONE], [scene])
    with pytest.raises(InputError, match=r"no image 'contribution 2\.jpg'; names like it are .*contribution 02\.jpg"):
        require_named([GONE, "contribution 2.jpg"], [scene])

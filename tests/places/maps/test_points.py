"""Mapping through COLMAP recovers planted cameras, from raw and from private features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil.forms import Form, Points
from veil.geometry.camera import GUESS
from veil.geometry.similarity import Similarity, align_poses, pose_error
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, MapOptions, NoMap, StageLimits, build_map
from veil.scene import Scene
from veil.space import Space
from worlds import World, generator, sift_like, subspaces, unit, world

SPACE = Space(descriptor="sift", normalization="L2", dim=128)


def images_of(place: World, m: int) -> dict[str, MapImage]:
    images = {}
    for name in place.poses:
        form: Form = place.form(name)
        if m:
            form = subspaces(generator(f"lift {name}"), place.form(name).vectors, m, SPACE)
        images[name] = MapImage(camera=place.camera, keypoints=place.keypoints[name], form=form)
    return images


def mapped(images: dict[str, MapImage], workdir: Path, options: MapOptions | None = None) -> Scene | NoMap:
    forms = {name: image.form for name, image in images.items()}
    workdir.mkdir(exist_ok=True)
    return build_map(images, match_pairs(forms, all_pairs(sorted(forms))), workdir=workdir, options=options)


@pytest.mark.slow
@pytest.mark.parametrize("m", [0, 2])
def test_planted_cameras_are_recovered(m: int, tmp_path: Path) -> None:
    """Oracle: planted truth after similarity alignment; every observation is of the point its descriptor came from."""
    place = world("mapping")
    scene = mapped(images_of(place, m), tmp_path)
    assert isinstance(scene, Scene)
    assert set(scene.images) == set(place.poses)
    names = sorted(scene.images)
    alignment = align_poses([scene.images[n].cam_from_world for n in names], [place.poses[n] for n in names])
    for name in names:
        position, rotation = pose_error(scene.images[name].cam_from_world, place.poses[name], alignment)
        assert position < 0.05
        assert rotation < 0.3
    assert scene.is_public == (m == 0)
    assert len(scene.points) > 200
    # Points lie where they were planted: align them by the cameras and look each up through an observation.
    errors = _point_errors(scene, place, alignment)
    assert np.median(errors) < 0.05
    assert (tmp_path / "database.db").is_file()


def _point_errors(scene: Scene, place: World, alignment) -> np.ndarray:
    errors = []
    for name, image in scene.images.items():
        where = {tuple(xy): row for row, xy in enumerate(place.keypoints[name].tolist())}
        planted = place.visible[name][[where[tuple(xy)] for xy in image.keypoints.tolist()]]
        points = alignment.apply(scene.points[image.point_rows])
        errors.append(np.linalg.norm(points - place.points[planted], axis=1))
    return np.concatenate(errors)


@pytest.mark.slow
def test_points_that_the_ratio_dropped_come_back_and_refine_poses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the planted points and poses. A third of the points look alike in pairs, so that no ratio passes them.

    They are not in the map that comes first, whose poses are off by more than those that they help to adjust.
    """
    import veil.places.maps.points as points

    place = world("twins")
    place.descriptors[1:100:2] = unit(place.descriptors[0:100:2] + 0.03 * generator("twins").normal(size=(50, 128)))
    before: list[Scene] = []
    completed = points.Mapper.completed

    def watched(mapper: points.Mapper, scene: Scene) -> Scene:
        before.append(scene)
        return completed(mapper, scene)

    monkeypatch.setattr(points.Mapper, "completed", watched)
    scene = mapped(images_of(place, 0), tmp_path)
    assert isinstance(scene, Scene)
    assert len(before[0].points) < 230 < 260 < len(scene.points)
    names = sorted(scene.images)

    def aligned(one: Scene) -> Similarity:
        return align_poses([one.images[n].cam_from_world for n in names], [place.poses[n] for n in names])

    def off(one: Scene) -> float:
        """Mean distance of the cameras from the planted ones."""
        return float(np.mean([pose_error(one.images[n].cam_from_world, place.poses[n], aligned(one))[0] for n in names]))

    assert off(scene) < off(before[0])
    alignment = aligned(scene)
    assert np.quantile(_point_errors(scene, place, alignment), 0.9) < 0.1


@pytest.mark.slow
def test_an_image_that_the_ratio_cuts_off_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: of the points that the last image sees all but 22 have a twin, so that their matches pass no ratio.

    Its pairs are verified, but COLMAP asks for 30 points: without the matches that the ratio dropped it is left out.
    """
    from veil.places.maps import verification

    thirty = MapOptions(least_pose_inliers=30)  # images of few features need fewer otherwise
    place = world("cut off", points=400)
    place.descriptors[1:200:2] = unit(place.descriptors[0:200:2] + 0.03 * generator("cut off").normal(size=(100, 128)))
    last = max(place.poses)
    seen = place.visible[last]
    kept = np.flatnonzero((seen < 200) | (np.cumsum(seen >= 200) <= 22))
    place.visible[last], place.keypoints[last] = seen[kept], place.keypoints[last][kept]
    images = images_of(place, 0)
    scene = mapped(images, tmp_path / "whole", thirty)
    assert isinstance(scene, Scene) and set(scene.images) == set(place.poses)
    names = sorted(scene.images)
    alignment = align_poses([scene.images[n].cam_from_world for n in names], [place.poses[n] for n in names])
    position, rotation = pose_error(scene.images[last].cam_from_world, place.poses[last], alignment)
    assert position < 0.1 and rotation < 0.5
    few = np.flatnonzero(place.visible[last] >= 200)  # what has no twin: nothing can come back there
    place.visible[last], place.keypoints[last] = place.visible[last][few], place.keypoints[last][few]
    scene = mapped(images_of(place, 0), tmp_path / "few", thirty)
    assert isinstance(scene, Scene) and set(scene.images) == set(place.poses) - {last}
    completed = len(scene.points)
    monkeypatch.setattr(verification, "with_dropped", lambda *_: {})
    scene = mapped(images, tmp_path / "without", thirty)
    assert isinstance(scene, Scene) and len(scene.points) < completed - 50
    assert isinstance(scene, Scene) and set(scene.images) == set(place.poses) - {last}
    assert scene.check is not None and "too few matches" in scene.check.left_out[last]


@pytest.mark.slow
def test_a_small_sample_gives_one_ratio_and_a_large_one_two() -> None:
    """Oracle: quantiles by hand. Too few features to know one wrong match in a thousand must not loosen the other ratio."""
    from veil.matching.ratio import chance_ratio
    from veil.places.maps.options import first_ratios, wrong_share

    for features, count in ((100, 1), (300, 2)):
        images = images_of(world("ratios", images=5, points=features), 0)
        forms = {name: image.form for name, image in images.items()}
        pairs = all_pairs(sorted(forms))
        ratios = first_ratios(images, pairs, MapOptions())
        assert len(ratios) == count
        assert ratios[-1] == chance_ratio(forms, pairs, wrong_share=wrong_share(float(features))) < 1
        assert ratios == tuple(sorted(ratios))


def test_thresholds_follow_the_number_of_features() -> None:
    """By hand: ten wrong matches of a pair pass, at most one half; inliers fall to one half, and not from a thousand on.

    They do not fall where few of the features match, so that nobody chose them.
    """
    from veil.places.maps.options import least_inliers, wrong_share

    assert [wrong_share(number) for number in (0.0, 15.0, 100.0, 1000.0, 8000.0)] == [0.5, 0.5, 0.1, 0.01, 0.01]
    assert [least_inliers(30, number, 0.5) for number in (10.0, 500.0, 600.0, 1000.0, float("inf"))] == [15, 15, 18, 30, 30]
    assert [least_inliers(30, number, 0.3) for number in (10.0, 500.0, 1000.0, float("inf"))] == [30] * 4


@pytest.mark.slow
def test_no_overlap_gives_no_map_but_a_reason(tmp_path: Path) -> None:
    random = generator("no overlap")
    place = world("no overlap")
    images = {
        name: replace(image, form=Points(vectors=unit(sift_like(random, len(image.form))).astype(np.float32), space=SPACE))
        for name, image in images_of(place, 0).items()
    }
    result = mapped(images, tmp_path)
    assert isinstance(result, NoMap)
    assert any("overlap" in remedy.object for remedy in result.remedy)


def test_one_image_is_no_map(tmp_path: Path) -> None:
    images = images_of(world("single"), 0)
    with pytest.raises(InputError, match="at least two"):
        build_map({"00": images["00"]}, {}, workdir=tmp_path)


def test_alignment_is_exact_on_exact_poses() -> None:
    """Inverse pair: a known similarity is recovered, also for cameras on a line."""
    from veil.geometry.rigid import Rigid

    random = generator("align")
    turn = np.linalg.qr(random.normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    reference = [Rigid(rotation=np.eye(3), translation=-np.array([float(i), 0, 0])) for i in range(4)]
    ours = [
        Rigid(rotation=p.rotation @ turn, translation=-p.rotation @ turn @ (turn.T @ (p.center - [1, 2, 3]) / 2.5))
        for p in reference
    ]
    alignment = align_poses(ours, reference)
    assert alignment.scale == pytest.approx(2.5)
    np.testing.assert_allclose(alignment.rotation, turn, atol=1e-12)
    np.testing.assert_allclose(alignment.translation, [1, 2, 3], atol=1e-12)
    assert pose_error(ours[2], reference[2], alignment) == pytest.approx((0, 0), abs=1e-6)
    with pytest.raises(InputError, match="two or more"):
        align_poses(ours[:1], reference[:1])


def hostile(place: World, *, focal: float) -> MapImage:
    """An upload with the descriptors of an honest image, noise around the principal point and absurd intrinsics."""
    from veil.geometry.camera import Camera

    camera = Camera(model="PINHOLE", width_px=65535, height_px=65535, params=(focal, focal, 32767.0, 32767.0))
    noise = generator("hostile").normal(0, 0.1, place.keypoints["02"].shape)
    return MapImage(camera=camera, keypoints=(32767 + noise).astype(np.float32), form=place.form("02"))


@pytest.mark.slow
def test_an_upload_that_would_collapse_the_map_is_left_out_and_named(tmp_path: Path) -> None:
    """Oracle: planted cameras of the honest images, which the hostile one drew to a single center."""
    place = world("collapse")
    images = images_of(place, 0) | {"zz": hostile(place, focal=1e-3)}
    scene = mapped(images, tmp_path)
    assert isinstance(scene, Scene)
    assert set(scene.images) == set(place.poses)
    assert scene.check is not None and "65535x65535 px" in scene.check.left_out["zz"]
    names = sorted(scene.images)
    alignment = align_poses([scene.images[n].cam_from_world for n in names], [place.poses[n] for n in names])
    assert max(pose_error(scene.images[n].cam_from_world, place.poses[n], alignment)[0] for n in names) < 0.05


@pytest.mark.slow
def test_an_upload_that_hangs_the_mapper_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: without the check of cameras COLMAP never returns; the time limit ends it, and the others are mapped."""
    import veil.places.maps.points as points

    monkeypatch.setattr(points, "impossible", lambda images: {})
    place = world("hang")
    images = images_of(place, 0) | {"zz": hostile(place, focal=1e-5)}
    forms = {name: image.form for name, image in images.items()}
    options = MapOptions(limits=StageLimits(stall_s=3.0))
    scene = build_map(images, match_pairs(forms, all_pairs(sorted(forms))), workdir=tmp_path, options=options)
    assert isinstance(scene, Scene)
    assert set(scene.images) == set(place.poses)
    assert scene.check is not None and "zz" in scene.check.left_out


@pytest.mark.slow
def test_time_that_is_up_ends_the_map_and_accuses_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: mapping takes longer than its limit, and is not begun anew without the image that it happened to be at."""
    import veil.places.maps.points as points
    from veil.places.maps.colmap import Stopped

    asked: list[str] = []

    class Slow(points.Colmap):
        def run(self, request, progress=None, *, work=1.0):
            asked.append(request["do"])
            if request["do"] == "map":
                return Stopped(reason="it was not done after 5 s", image_id=1, out_of_time=True)
            return super().run(request, progress, work=work)

    monkeypatch.setattr(points, "Colmap", Slow)
    answer = mapped(images_of(world("time is up", points=100), 0), tmp_path)
    assert isinstance(answer, NoMap) and not answer.left_out and "not done after 5 s" in answer.reason
    assert asked == ["verify", "map"]


@pytest.mark.slow
def test_two_places_in_one_folder_are_not_made_one(tmp_path: Path) -> None:
    """Half of the images are of another place that shares forty copies of the first one's points, each put elsewhere."""
    here, there = world("here", images=4, points=250), world("there", images=4, points=250)
    there.descriptors[:40] = here.descriptors[:40]
    images = images_of(here, 0) | {f"t{name}": image for name, image in images_of(there, 0).items()}
    scene = mapped(images, tmp_path)
    assert isinstance(scene, Scene)
    assert set(scene.images) in ({*here.poses}, {f"t{name}" for name in there.poses})


@pytest.mark.slow
def test_known_focal_lengths_are_held_and_guessed_ones_refined(tmp_path: Path) -> None:
    """Oracle: planted focal length of 500 px; half of the images say so, the others guess 560."""
    from veil.geometry.camera import Camera

    place = world("focal", points=400)
    guess = Camera(model="PINHOLE", width_px=640, height_px=480, params=(560.0, 560.0, 320.0, 240.0), focal=GUESS)
    images = images_of(place, 0)
    images |= {name: replace(images[name], camera=guess) for name in ("01", "04")}
    scene = mapped(images, tmp_path)
    assert isinstance(scene, Scene)
    for name, image in scene.images.items():
        if name in ("01", "04"):
            assert image.camera.focal_px == pytest.approx(500, abs=5)
        else:
            assert image.camera.params == place.camera.params
    assert {"01", "04"} <= set(scene.images)


@pytest.mark.slow
def test_the_mapper_ends_with_the_process_that_started_it() -> None:
    """A parent that is killed cannot tidy up: its worker must not outlive it, even one that no longer reads its input."""
    import os
    import signal
    import subprocess
    import sys
    import time

    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux ends a process with its parent")
    script = (
        "import time\nfrom veil.errors import VeilError\nfrom veil.places.maps.colmap import Colmap, StageLimits\n"
        "with Colmap(StageLimits()) as colmap:\n    try:\n"
        "        colmap._answer(colmap._process, {'do': 'no such work'}, None)\n"
        "    except VeilError:\n        print(colmap._process.pid, flush=True)\n    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    os.kill(worker, signal.SIGSTOP)  # it reads nothing, as one that hangs
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    stat = Path(f"/proc/{worker}/stat")
    while stat.exists() and "Z" not in stat.read_text().rpartition(")")[2]:
        if time.monotonic() > deadline:
            os.kill(worker, signal.SIGKILL)
            raise AssertionError("the worker outlived its parent")
        time.sleep(0.1)

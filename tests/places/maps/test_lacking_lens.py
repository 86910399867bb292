"""What a lens model lacks makes focal lengths less certain: by the statistic of lack of fit, for points and for lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.geometry.camera import GIVEN, Camera, as_colmap
from veil.geometry.rigid import Rigid
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, NoMap, build_map, uncertainty
from veil.places.maps.uncertainty import known_lenses
from veil.scene import Scene
from worlds import World, generator, world
from worlds.word_worlds import scene_of

FOCAL_PX = 500.0  # of the planted cameras


def flight(name: str, *, second: float, relief: float = 0.2, noise_px: float = 0.3) -> World:
    """Twelve cameras that look straight down on nearly flat ground, with a second coefficient of radial distortion."""
    place, random = world(name, points=900), generator(name)
    cloud = np.concatenate([random.uniform([-6, -5], [6, 5], (900, 2)), random.normal(scale=relief, size=(900, 1))], axis=1)
    poses, keypoints, visible = {}, {}, {}
    for index, (row, column) in enumerate(np.ndindex(3, 4)):
        center = np.array([2.2 * column - 3.3, 1.8 * row - 1.8, -5.0]) + random.normal(scale=0.05, size=3)
        x, y, z = random.normal(scale=0.02, size=3)
        left, _, right = np.linalg.svd(np.array([[1, -z, y], [z, 1, -x], [-y, x, 1]]))
        pose = Rigid(rotation=left @ right, translation=-(left @ right) @ center)
        seen = pose.apply(cloud)
        plane = seen[:, :2] / seen[:, 2:]
        xy = FOCAL_PX * plane * (1 + second * (plane**2).sum(axis=1, keepdims=True) ** 2) + [320, 240]
        inside = ((xy > 0) & (xy < [640, 480])).all(axis=1)
        key = f"{index:02d}"
        poses[key], visible[key] = pose, np.flatnonzero(inside)
        keypoints[key] = (xy[inside] + noise_px * random.normal(size=(int(inside.sum()), 2))).astype(np.float32)
    return replace(place, points=cloud, poses=poses, keypoints=keypoints, visible=visible)


def mapped(place: World, workdir: Path) -> Scene | NoMap:
    """The map of a world whose images say what is true of their focal length, known to a percent."""
    camera = replace(place.camera, focal=GIVEN)
    images = {n: MapImage(camera=camera, keypoints=place.keypoints[n], form=place.form(n)) for n in place.poses}
    forms = {name: image.form for name, image in images.items()}
    workdir.mkdir()
    return build_map(images, match_pairs(forms, all_pairs(sorted(forms))), workdir=workdir)


def test_what_a_lens_lacks_is_the_statistic_of_lack_of_fit() -> None:
    """Oracle: residuals projected on COLMAP's distortion by finite differences, without what all other unknowns explain."""
    place = flight("lacking", second=0.2)
    names = sorted(place.poses)[:6]
    scene = scene_of(place)
    seen = np.concatenate([scene.images[name].point_rows for name in names])
    rows = np.flatnonzero(np.bincount(seen) >= 3)[::6]
    images = {}
    for name in names:
        image = scene.images[name]
        kept = np.flatnonzero(np.isin(image.point_rows, rows))
        point_rows = np.searchsorted(rows, image.point_rows[kept])
        images[name] = replace(image, keypoints=image.keypoints[kept], point_rows=point_rows, form=image.form.take(kept))
    scene = replace(scene, images=images, points=scene.points[rows])
    poses, points = 6 * len(names), 3 * len(rows)
    focal = np.array([FOCAL_PX, FOCAL_PX, 320, 240])

    def pixels(unknowns: np.ndarray) -> np.ndarray:
        size, stretch, *bent = unknowns[poses + points :]
        params = [*(focal * [np.exp(size + stretch), np.exp(size - stretch), 1, 1]), *bent]
        lens = as_colmap(Camera(model="OPENCV", width_px=640, height_px=480, params=tuple(params)))
        moved, parts = scene.points + unknowns[poses : poses + points].reshape(-1, 3), []
        for index, name in enumerate(names):
            (x, y, z), shift = np.split(unknowns[6 * index : 6 * index + 6], 2)
            cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
            image = scene.images[name]
            parts.append(lens.img_from_cam(image.cam_from_world.apply(moved[image.point_rows]) @ (np.eye(3) + cross).T + shift))
        return np.concatenate(parts).ravel()

    zeros, step = np.zeros(poses + points + 6), 1e-6
    jacobian = np.stack([(pixels(step * e) - pixels(-step * e)) / (2 * step) for e in np.eye(len(zeros))], axis=1)
    residuals = np.concatenate([scene.images[name].keypoints for name in names]).ravel() - pixels(zeros)
    others, lens = jacobian[:, : poses + points + 1], jacobian[:, poses + points + 1 :]
    left, sizes, _ = np.linalg.svd(others, full_matrices=False)
    basis = left[:, sizes > 1e-9 * sizes[0]]
    lens, residuals = (value - basis @ (basis.T @ value) for value in (lens, residuals))
    taken = residuals @ lens @ np.linalg.lstsq(lens, residuals, rcond=None)[0]
    statistic = (taken / 5) / ((residuals**2).sum() / (len(residuals) - basis.shape[1]))
    (own,) = known_lenses(scene).values()
    assert statistic > 2 and own.lacking**2 == pytest.approx(statistic - 1, rel=0.02)


def test_a_lens_that_fits_lacks_nothing() -> None:
    """Oracle: of exact lenses and noise alone the statistic is 1, so that little is left beyond it."""
    fits = [lens.lacking for k in range(6) for lens in known_lenses(scene_of(flight(f"fits {k}", second=0.0))).values()]
    assert max(fits) < 2
    (bent,) = known_lenses(scene_of(flight("bent", second=0.2))).values()
    assert bent.lacking > 10


@pytest.mark.slow
def test_a_lens_that_lacks_a_term_contradicts_no_right_focal_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: planted cameras, whose focal length is given rightly. Broken twin: a map is as sure as its noise is small."""
    place = flight("nadir", second=0.2)
    scene = mapped(place, tmp_path / "map")
    assert isinstance(scene, Scene) and scene.check is not None
    assert not scene.check.contradicted_focals
    assert {image.camera.focal_px for image in scene.images.values()} == {FOCAL_PX}
    monkeypatch.setattr(uncertainty, "lack_of_fit", lambda left, squares, *_: np.zeros(len(squares)))
    twin = mapped(place, tmp_path / "twin")
    assert isinstance(twin, Scene) and twin.check is not None
    (claim,) = twin.check.contradicted_focals
    assert abs(claim.refined_px / FOCAL_PX - 1) > 0.1
    (told,) = known_lenses(twin).values()
    assert told.focal < 0.5 * abs(np.log(claim.refined_px / FOCAL_PX))

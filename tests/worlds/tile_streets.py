"""A street as a planted public map: cameras along a facade that each see the part before them, and queries with known poses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from veil.features import Features
from veil.forms import Points
from veil.geometry.rigid import Rigid
from veil.scene import MappedImage, Scene
from veil.space import Space
from worlds import camera, generator, project, sift_like, unit

SIFT = Space(descriptor="sift", normalization="L2", dim=128)


@dataclass(frozen=True, kw_only=True, eq=False)
class Street:
    """The map, and for queries the true descriptor of each of its points."""

    name: str
    scene: Scene
    descriptors: np.ndarray

    def query(self, x: float, turn: float = 0.0, *, noise_px: float = 0.3, clutter: int = 60) -> tuple[Features, Rigid]:
        """Features of a photograph taken at `x`, among them some of no point of the map, and its true pose."""
        random = generator(f"query {self.name} {x} {turn}")
        pose, intrinsics = pose_at(x, turn), camera()
        seen = visible(pose, self.scene.points)
        xy = project(pose, self.scene.points[seen], intrinsics) + noise_px * random.normal(size=(len(seen), 2))
        own = unit(self.descriptors[seen] + 0.02 * random.normal(size=(len(seen), 128)))
        other = unit(sift_like(random, clutter))
        keypoints = np.vstack([xy, random.random((clutter, 2)) * [640, 480]])
        return Features(
            keypoints=keypoints.astype(np.float32),
            descriptors=np.vstack([own, other]).astype(np.float32),
            space=SIFT,
            camera=intrinsics,
            image_digest=bytes(32),
        ), pose


def pose_at(x: float, turn: float = 0.0) -> Rigid:
    """A camera in the street at `x` that looks at the facade, turned by `turn` radians about the vertical."""
    c, s = np.cos(turn), np.sin(turn)
    rotation = np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
    return Rigid(rotation=rotation, translation=-rotation @ np.array([x, 0.0, 0.0]))


def visible(pose: Rigid, points: np.ndarray) -> np.ndarray:
    """Rows of the points that a camera sees."""
    xy = project(pose, points, camera())
    return np.flatnonzero(((xy > 0) & (xy < [640, 480])).all(axis=1))


@cache
def street(name: str, *, cameras: int = 16, density: int = 50, noise_px: float = 0.2) -> Street:
    """A street of `cameras` cameras a unit apart, with `density` points a unit of the facade five units away."""
    random = generator(name)
    count = density * (cameras + 4)
    points = random.uniform([-2.0, -2.0, 4.5], [cameras + 2.0, 2.0, 5.5], (count, 3))
    descriptors = unit(sift_like(random, count))
    views = {}
    for index in range(cameras):
        pose = pose_at(float(index), 0.1 * np.sin(index))
        rows = visible(pose, points)
        rows = rows[random.random(len(rows)) < 0.8]
        xy = project(pose, points[rows], camera()) + noise_px * random.normal(size=(len(rows), 2))
        vectors = unit(descriptors[rows] + 0.02 * random.normal(size=(len(rows), 128)))
        views[f"{index:02d}.jpg"] = (pose, rows, xy, vectors)
    seen = np.unique(np.concatenate([rows for _, rows, _, _ in views.values()]))
    row_of = np.full(count, -1)
    row_of[seen] = np.arange(len(seen))
    images = {
        key: MappedImage(
            name=key,
            camera=camera(),
            cam_from_world=pose,
            keypoints=xy.astype(np.float32),
            point_rows=row_of[rows].astype(np.int64),
            form=Points(vectors=vectors.astype(np.float32), space=SIFT),
        )
        for key, (pose, rows, xy, vectors) in views.items()
    }
    scene = Scene(images=images, points=points[seen], mean_reprojection_error_px=noise_px)
    return Street(name=name, scene=scene, descriptors=descriptors[seen])

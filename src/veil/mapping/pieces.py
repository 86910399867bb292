"""Pieces of a map: what joining needs of a map from points or from lines, without descriptors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil.scene import Scene


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """Piece of a map: poses of its images, points in its own world, and which feature of an image observes which point.

    `features[name]` are the rows of the observing features among all features of the image, and `point_rows[name]` the rows of
    `points` that they observe.
    """

    cam_from_world: Mapping[str, Rigid]
    points: Float64[np.ndarray, "points 3"]
    features: Mapping[str, Int64[np.ndarray, "_"]]
    point_rows: Mapping[str, Int64[np.ndarray, "_"]]

    def moved(self, b_from_a: Similarity) -> Piece:
        """Piece in the coordinates of another world."""
        return Piece(
            cam_from_world={name: b_from_a.moved(pose) for name, pose in self.cam_from_world.items()},
            points=b_from_a.apply(self.points),
            features=self.features,
            point_rows=self.point_rows,
        )

    def depths(self, name: str) -> Float64[np.ndarray, "_"]:
        """Depth of each point that an image observes, in its frame."""
        pose = self.cam_from_world[name]
        return (self.points[self.point_rows[name]] @ pose.rotation[2]) + pose.translation[2]


def piece_of(scene: Scene, keypoints: Mapping[str, np.ndarray]) -> Piece:
    """Piece of a map of positions; `keypoints` are all features' positions of each image, among which those of the map lie.

    Features of an image at one position (with several orientations) are told apart by their order alone.
    """
    features = {name: _rows(image.keypoints, keypoints[name]) for name, image in scene.images.items()}
    return Piece(
        cam_from_world={name: image.cam_from_world for name, image in scene.images.items()},
        points=scene.points,
        features=features,
        point_rows={name: image.point_rows for name, image in scene.images.items()},
    )


def _rows(some: np.ndarray, every: np.ndarray) -> Int64[np.ndarray, "_"]:
    """Rows of `every` that hold the positions `some`, each row once."""
    waiting: dict[tuple[float, float], list[int]] = {}
    for row, position in reversed(list(enumerate(map(tuple, every.tolist())))):
        waiting.setdefault(position, []).append(row)
    return np.array([waiting[position].pop() for position in map(tuple, some.tolist())], dtype=np.int64)


def common_rows(a: Piece, b: Piece, name: str) -> tuple[Int64[np.ndarray, "common"], Int64[np.ndarray, "common"]]:
    """Observations, of a and of b, of the features of an image that observe a point in both pieces."""
    _, in_a, in_b = np.intersect1d(a.features[name], b.features[name], assume_unique=True, return_indices=True)
    return in_a.astype(np.int64), in_b.astype(np.int64)


def shared_names(a: Piece, b: Piece) -> list[str]:
    """Names of the images that both pieces hold, in order."""
    return sorted(a.cam_from_world.keys() & b.cam_from_world.keys())


def stacked(piece: Piece, names: Iterable[str]) -> tuple[Float64[np.ndarray, "n 3 3"], Float64[np.ndarray, "n 3"]]:
    """Rotations cam_from_world and centers of some images of a piece."""
    poses = [piece.cam_from_world[name] for name in names]
    return np.array([pose.rotation for pose in poses]).reshape(-1, 3, 3), np.array([p.center for p in poses]).reshape(-1, 3)

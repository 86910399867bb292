"""Pieces of a map, without descriptors, and one piece from several in one world: points of the same features become one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil.scene import Scene

# Largest angle in degrees at which a point of another piece stays with an image, from where that piece saw it.
SAME_DEG = 1.0


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


def homes(pieces: Mapping[int, Piece], cores: Mapping[str, int]) -> dict[str, int]:
    """Piece of each image that its pose is taken from: that of its own cluster, or else the one that has most points of it.

    `cores` is the number of the cluster that each image is in the core of.
    """
    home_of: dict[str, int] = {}
    for name in sorted({name for piece in pieces.values() for name in piece.cam_from_world}):
        holding = [number for number, piece in pieces.items() if name in piece.cam_from_world]
        own = cores.get(name)
        home_of[name] = own if own in holding else max(holding, key=lambda k: (len(pieces[k].features[name]), -k))
    return home_of


def merged(pieces: Mapping[int, Piece], home: Mapping[str, int]) -> Piece:
    """Piece of the images that `home` names with their points, from pieces in one world.

    Points of two pieces that one feature observes are one point, if the feature sees both in the same direction. A feature
    observes one point, an image observes a point by one feature, and two images observe each point.
    """
    names = sorted(home)
    poses = {name: pieces[home[name]].cam_from_world[name] for name in names}
    index = {name: k for k, name in enumerate(names)}
    starts = dict(zip(pieces, np.cumsum([0, *(len(piece.points) for piece in pieces.values())]), strict=False))
    image, feature, node = [], [], []
    for number, piece in pieces.items():
        for name in sorted(piece.cam_from_world.keys() & home.keys()):
            kept = np.ones(len(piece.features[name]), dtype=bool)
            if home[name] != number:
                kept = _same_direction(piece, name, poses[name])
            image.append(np.full(int(kept.sum()), index[name]))
            feature.append(piece.features[name][kept])
            node.append(starts[number] + piece.point_rows[name][kept])
    points = np.concatenate([piece.points for piece in pieces.values()])
    return _piece(names, poses, points, np.concatenate(image), np.concatenate(feature), np.concatenate(node))


def _same_direction(piece: Piece, name: str, pose: Rigid) -> Bool[np.ndarray, "_"]:
    """Mask of an image's observations in a piece that its final pose sees in the direction that the piece did."""
    points = piece.points[piece.point_rows[name]]
    own, other = piece.cam_from_world[name].apply(points), pose.apply(points)
    cosine = (own * other).sum(axis=1) / np.maximum(np.linalg.norm(own, axis=1) * np.linalg.norm(other, axis=1), 1e-300)
    return cosine >= math.cos(math.radians(SAME_DEG))


def _piece(
    names: list[str],
    poses: Mapping[str, Rigid],
    points: np.ndarray,
    image: Int64[np.ndarray, "n"],
    feature: Int64[np.ndarray, "n"],
    node: Int64[np.ndarray, "n"],
) -> Piece:
    order = np.lexsort((node, feature, image))
    image, feature, node = image[order], feature[order], node[order]
    again = np.flatnonzero((image[1:] == image[:-1]) & (feature[1:] == feature[:-1]))
    links = coo_array((np.ones(len(again)), (node[again], node[again + 1])), shape=(len(points),) * 2)
    label = connected_components(links, directed=False)[1][node]
    first = np.ones(len(image), dtype=bool)
    first[again + 1] = False  # the same feature of the same merged point
    image, feature, node, label = image[first], feature[first], node[first], label[first]
    # Of several features by which an image observes one point, the first stays.
    _, one = np.unique(np.stack([label, image], axis=1), axis=0, return_index=True)
    image, feature, node, label = image[one], feature[one], node[one], label[one]
    enough = np.bincount(label, minlength=len(points)) >= 2
    kept = enough[label]
    image, feature, node, label = image[kept], feature[kept], node[kept], label[kept]
    used, row = np.unique(label, return_inverse=True)
    counts = np.bincount(row, minlength=len(used)).astype(np.float64)
    middle = np.stack([np.bincount(row, weights=points[node, k], minlength=len(used)) for k in range(3)], axis=1)
    return Piece(
        cam_from_world=poses,
        points=middle / counts[:, None],
        features={name: feature[image == k] for k, name in enumerate(names)},
        point_rows={name: row[image == k].astype(np.int64) for k, name in enumerate(names)},
    )

"""Pieces of a planted map, each in a world of its own, for tests of joining without any mapper."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil.places.maps.clusters.pieces import Piece


def ring(rng: np.random.Generator, count: int, *, seen: int = 20, straight: bool = False) -> Piece:
    """Map of `count` cameras on a ring (or on a line), each of which sees `seen` of the points before it; names are numbers."""
    angle = 2 * np.pi * np.arange(count) / count
    points, poses, features, rows = [], {}, {}, {}
    radius = count / (2 * np.pi)
    for k in range(3 * count):
        a = 2 * np.pi * (k + rng.random()) / (3 * count)
        out = radius + 4 + 3 * rng.random()
        at = [out * np.cos(a), out * np.sin(a)] if not straight else [radius * a, 4 + 3 * rng.random()]
        points.append([*at, 3 * rng.random() - 1.5])
    world = np.array(points)
    for k in range(count):
        center = np.array([radius * np.cos(angle[k]), radius * np.sin(angle[k]), 0.0])
        forward = np.array([np.cos(angle[k]), np.sin(angle[k]), 0.0])
        if straight:
            center, forward = np.array([radius * angle[k], 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
        right = np.cross(forward, [0.0, 0.0, 1.0])
        turn = np.array([right, np.cross(forward, right), forward])
        turn = Rotation.from_rotvec(rng.normal(0, 0.1, 3)).as_matrix() @ turn
        poses[f"{k:03d}"] = Rigid(rotation=turn, translation=-turn @ center)
        near = np.argsort(np.linalg.norm(world - center, axis=1), kind="stable")[:seen]
        depth = (poses[f"{k:03d}"].apply(world[near]))[:, 2]
        rows[f"{k:03d}"] = np.sort(near[depth > 0.5]).astype(np.int64)
        features[f"{k:03d}"] = rows[f"{k:03d}"] + 7  # any numbers that differ
    return Piece(cam_from_world=poses, points=world, features=features, point_rows=rows)


def part(whole: Piece, names: list[str]) -> Piece:
    """Piece of some images with the points that they observe, renumbered."""
    used = np.unique(np.concatenate([whole.point_rows[name] for name in names]))
    return Piece(
        cam_from_world={name: whole.cam_from_world[name] for name in names},
        points=whole.points[used],
        features={name: whole.features[name] for name in names},
        point_rows={name: np.searchsorted(used, whole.point_rows[name]) for name in names},
    )


def anywhere(rng: np.random.Generator) -> Similarity:
    """Similarity by chance, of any turn, a scale of 0.2 to 5, and a shift."""
    return Similarity(
        scale=float(np.exp(rng.uniform(-1.6, 1.6))),
        rotation=Rotation.random(random_state=rng.integers(2**31)).as_matrix(),
        translation=rng.normal(0, 10, 3),
    )


def shaken(rng: np.random.Generator, piece: Piece, *, deg: float, shift: float) -> Piece:
    """Piece whose poses are off by small turns (degrees) and shifts (its unit)."""
    poses = {}
    for name, pose in piece.cam_from_world.items():
        turn = Rotation.from_rotvec(np.radians(rng.normal(0, deg, 3))).as_matrix() @ pose.rotation
        poses[name] = Rigid(rotation=turn, translation=-turn @ (pose.center + rng.normal(0, shift, 3)))
    return Piece(cam_from_world=poses, points=piece.points, features=piece.features, point_rows=piece.point_rows)

"""A ring of facades and cameras that walk along it, with matches planted: maps of many images without any descriptor work.

Two facades may be the same, as in a row of houses built to one plan: every image of the one then matches the images of the
other, as well as true pairs of images match, and wrongly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veil.forms import Points
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.matching.neighbors import Matches
from veil.places.maps.images import MapImage
from veil.space import Space
from worlds import sift_like, unit

SPACE = Space(descriptor="sift", normalization="L2", dim=128)
CAMERA = Camera(model="PINHOLE", width_px=640, height_px=480, params=(400.0, 400.0, 320.0, 240.0))
# Meters: from the middle of the street to the facades, between two images, length of a facade, height of cameras and facades.
AWAY, STEP, FACADE, EYE, HEIGHT = 8.0, 1.0, 8.0, 1.6, 9.0
LEAST_MATCHES = 15


@dataclass(frozen=True, kw_only=True)
class Street:
    """Street with planted truth: images to map, matches of pairs, true poses by name, and the pairs that are wrong."""

    images: dict[str, MapImage]
    matches: dict[tuple[str, str], Matches]
    poses: dict[str, Rigid]
    wrong_pairs: frozenset[tuple[str, str]]


def street(
    seed: int,
    count: int,
    *,
    repeated: bool = False,
    noise_px: float = 0.7,
    outliers: float = 0.1,
    points_each: int = 150,
    closed: bool = True,
) -> Street:
    """Street of `count` images a meter apart, once around a block (or a quarter of the way where it is not `closed`).

    A facade has `points_each` points of random depth; a share `outliers` of each pair's matches is wrong. With `repeated`, the
    facade at a third of the way stands again at two thirds.
    """
    rng = np.random.default_rng([seed, count])
    length = count * STEP / (1.0 if closed else 0.25)
    radius = length / (2 * math.pi)
    facades = max(4, round(length / FACADE))
    inside = rng.random((facades, points_each, 3)) * [1.0, HEIGHT, 1.5]
    looks = np.arange(facades * points_each).reshape(facades, points_each)
    usable = facades if closed else facades // 4
    first, second = usable // 3, 2 * usable // 3
    if repeated:
        inside[second], looks[second] = inside[first], looks[first]
    angle = (np.arange(facades)[:, None] + inside[:, :, 0]) * (2 * math.pi / facades)
    out = radius + AWAY + inside[:, :, 2]
    world = np.stack([out * np.cos(angle), out * np.sin(angle), inside[:, :, 1]], axis=2).reshape(-1, 3)
    appearance = looks.ravel()
    descriptors = unit(sift_like(rng, len(world))).astype(np.float32)

    poses, images, seen = {}, {}, {}
    for k in range(count):
        name = f"{k:05d}.jpg"
        poses[name] = _pose(rng, k * STEP / radius, radius, k)
        visible, xy = _projected(rng, poses[name], world, noise_px)
        seen[name] = visible
        vectors = descriptors[appearance[visible]]
        images[name] = MapImage(camera=CAMERA, keypoints=xy, form=Points(space=SPACE, vectors=vectors))
    matches, wrong = _matches(rng, seen, appearance, outliers, count, closed)
    return Street(images=images, matches=matches, poses=poses, wrong_pairs=wrong)


def _pose(rng: np.random.Generator, angle: float, radius: float, k: int) -> Rigid:
    """Pose of a camera that looks at the facades, in turn ahead and back by some twelve degrees."""
    radius = radius + rng.normal(0, 0.4)
    center = np.array([radius * math.cos(angle), radius * math.sin(angle), EYE + rng.normal(0, 0.1)])
    yaw = angle + math.radians(12 * (1 if k % 2 else -1) + rng.normal(0, 3))
    forward = np.array([math.cos(yaw), math.sin(yaw), 0.15 + rng.normal(0, 0.03)])
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    rotation = np.array([right, np.cross(forward, right), forward])
    return Rigid(rotation=rotation, translation=-rotation @ center)


def _projected(rng: np.random.Generator, pose: Rigid, world: np.ndarray, noise_px: float) -> tuple[np.ndarray, np.ndarray]:
    """Points that an image detects (nine of ten that it sees within 25 m), and their noisy positions."""
    inside = pose.apply(world)
    near = np.flatnonzero((inside[:, 2] > 1.0) & (inside[:, 2] < 25.0))
    focal, _, cx, cy = CAMERA.params
    xy = inside[near, :2] / inside[near, 2:] * focal + [cx, cy] + rng.normal(0, noise_px, (len(near), 2))
    kept = (xy > 1).all(axis=1) & (xy < [CAMERA.width_px - 1, CAMERA.height_px - 1]).all(axis=1)
    kept &= rng.random(len(near)) < 0.9
    return near[kept], xy[kept].astype(np.float32)


def _matches(
    rng: np.random.Generator,
    seen: dict[str, np.ndarray],
    appearance: np.ndarray,
    outliers: float,
    count: int,
    closed: bool,
) -> tuple[dict[tuple[str, str], Matches], frozenset[tuple[str, str]]]:
    names = sorted(seen)
    looks = {name: appearance[seen[name]] for name in names}
    matches, wrong = {}, set()
    repeated = len(np.unique(appearance)) < len(appearance)
    twins = np.flatnonzero(np.bincount(appearance, minlength=len(appearance)) > 1)
    sees_twin = {name: bool(np.isin(looks[name], twins).any()) for name in names} if repeated else {}
    for i, a in enumerate(names):
        for j in range(i + 1, count):
            apart = min(j - i, count - j + i) if closed else j - i
            b = names[j]
            if apart > 12 and not (repeated and sees_twin[a] and sees_twin[b]):
                continue
            rows = _same(looks[a], looks[b])
            if len(rows) < LEAST_MATCHES:
                continue
            true = seen[a][rows[:, 0]] == seen[b][rows[:, 1]]
            bad = rng.random(len(rows)) < outliers
            rows[bad, 1] = rng.permutation(rows[bad, 1])
            matches[a, b] = Matches(indices=rows, distances=np.full(len(rows), 0.2), ratios=np.full(len(rows), 0.5))
            if true.mean() < 0.5:
                wrong.add((a, b))
    return matches, frozenset(wrong)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows (of a, of b) that look the same; of several, the first."""
    _, of_a, of_b = np.intersect1d(a, b, return_indices=True)
    return np.stack([of_a, of_b], axis=1).astype(np.int64)

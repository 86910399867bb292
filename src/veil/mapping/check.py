"""Numbers of a map's check: agreement of gravity and of rotations, its steps, and the neck that holds it together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import rotation_angle_deg
from veil.map_check import GRAVITY_DEG
from veil.mapping.agreement import Pair
from veil.mapping.verified import VerifiedPair
from veil.scene import Scene

# Stoer and Wagner's minimum cut takes cubic time.
MAX_CUT_IMAGES = 300


def gravity_agreement(scene: Scene, gravity: Mapping[str, Float64[np.ndarray, "3"]]) -> tuple[float | None, float | None]:
    """Median angle in degrees between readings of gravity and their middle in the map, and the share within 15 degrees.

    `gravity` holds vectors down in the camera frames, by image. Both are None for fewer than three readings.
    """
    down = np.array([scene.images[n].cam_from_world.rotation.T @ gravity[n] for n in sorted(gravity) if n in scene.images])
    if len(down) < 3:
        return None, None
    down /= np.linalg.norm(down, axis=1, keepdims=True)
    angles = np.degrees(np.arccos(np.clip(down @ down.T, -1, 1)))
    middle = angles[np.argmin(np.median(angles, axis=1))]  # angles to the reading that is nearest to the others
    return float(np.median(middle)), float((middle <= GRAVITY_DEG).mean())


def rotation_disagreement(scene: Scene, pairs: Mapping[Pair, VerifiedPair]) -> float | None:
    """Median angle in degrees between the rotation b_from_a of a pair by itself and in the map; None if no pair has one."""
    angles = [
        rotation_angle_deg(
            pair.rotation.T @ scene.images[b].cam_from_world.rotation @ scene.images[a].cam_from_world.rotation.T
        )
        for (a, b), pair in pairs.items()
        if pair.rotation is not None and a in scene.images and b in scene.images
    ]
    return float(np.median(angles)) if angles else None


def step_ratio(scene: Scene) -> float | None:
    """Longest distance from a camera to its nearest one, divided by the median of these distances.

    Infinite for cameras on one center, None for fewer than three cameras.
    """
    centers = np.array([image.cam_from_world.center for image in scene.images.values()])
    if len(centers) < 3:
        return None
    distance = np.linalg.norm(centers[:, None] - centers[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    steps = distance.min(axis=1)
    middle = float(np.median(steps))
    return float(steps.max()) / middle if middle > 0 else float("inf")


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Cut of a map in two parts, and how many points are seen by images of both."""

    sides: tuple[frozenset[str], frozenset[str]]
    points: int


def thinnest_cut(scene: Scene) -> Cut | None:
    """Cut of least weight of the map's images in two parts; None for one image or more than `MAX_CUT_IMAGES`.

    Its weight is the sum over pairs of images of their common points (Stoer and Wagner, J. ACM 1997); its `points` are counted
    once, in however many images each is seen.
    """
    names = sorted(scene.images)
    if not 2 <= len(names) <= MAX_CUT_IMAGES:
        return None
    sees = np.zeros((len(names), len(scene.points)), dtype=bool)
    for row, name in enumerate(names):
        sees[row, scene.images[name].point_rows] = True
    common = sees.astype(np.float32) @ sees.T.astype(np.float32)
    side = minimum_cut(common.astype(np.float64))
    sides = tuple(frozenset(name for name, inside in zip(names, mask, strict=True) if inside) for mask in (side, ~side))
    return Cut(sides=(sides[0], sides[1]), points=int((sees[side].any(axis=0) & sees[~side].any(axis=0)).sum()))


def minimum_cut(weights: np.ndarray) -> np.ndarray:
    """Mask of the nodes on one side of the cut of least weight (Stoer and Wagner 1997).

    `weights` is the symmetric matrix of edge weights; its diagonal is ignored.
    """
    weights = weights.copy()
    np.fill_diagonal(weights, 0.0)
    members = [[node] for node in range(len(weights))]
    alive = list(range(len(weights)))
    best, side = np.inf, np.zeros(len(weights), dtype=bool)
    while len(alive) > 1:
        index = np.array(alive)
        reach = np.zeros(len(index))
        waiting = np.ones(len(index), dtype=bool)
        before = last = 0
        for _ in range(len(index)):
            before, last = last, int(np.argmax(np.where(waiting, reach, -np.inf)))
            cut = reach[last]
            waiting[last] = False
            reach = reach + weights[index[last], index]
        if cut < best:
            best = cut
            side = np.zeros(len(weights), dtype=bool)
            side[members[alive[last]]] = True
        s, t = alive[before], alive[last]
        weights[s] += weights[t]
        weights[:, s] += weights[:, t]
        weights[s, s] = 0.0
        members[s] += members[t]
        alive.remove(t)
    return side

"""The check of a finished map of positions: its pairs, rotations, steps and neck, readings of gravity, and its uncertainty."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from veil.geometry.gravity_consensus import GravityConsensus, agree_on_down
from veil.geometry.rigid import Rigid
from veil.one_line import one_line
from veil.places.maps.agreement import contradicting, turn_deg
from veil.places.maps.images import Pair
from veil.places.maps.uncertainty import center_deviations, open_focals, position_uncertainty
from veil.places.maps.verification import VerifiedPair
from veil.scene import EXPLAINED, GRAVITY_DEG, MapCheck, Scene

# Stoer and Wagner's minimum cut takes cubic time.
MAX_CUT_IMAGES = 300
# An image is doubtful if its map explains less than `MIN_IMAGE_MATCHES` of its matches, and less than of all matches by
# `BELOW_ALL`. It is also doubtful if noise alone moves its camera by more than `MAX_IMAGE_UNCERTAINTY` of the centers' extent.
MIN_IMAGE_MATCHES, BELOW_ALL, MAX_IMAGE_UNCERTAINTY = 0.8, 0.08, 0.05
# Why an image is in no map, where nothing more is known.
TOO_FEW = "too few matches that chance does not explain"
OPEN_FOCAL = "its points tell nothing of its focal length, or of its distance; give its camera"


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
    turns = [turn_deg(scene, pair, entry) for pair, entry in pairs.items() if {*pair} <= scene.images.keys()]
    angles = [angle for angle in turns if angle is not None]
    return float(np.median(angles)) if angles else None


def doubtful_images(
    scene: Scene, shares: Mapping[Pair, float], pairs: Mapping[Pair, VerifiedPair], known: Mapping[str, float]
) -> dict[str, str]:
    """Reasons to leave images out of a map that stands otherwise, by name (mapping.md#the-check).

    The map explains too few matches of an image, noise alone moves its camera too far, or its focal length stays a guess. The
    image with the smallest share is named first, and its pairs do not count for the others. Infinite deviations are those of
    all images, and name none. `shares` and `pairs` are as for `checked`, `known` as for
    `veil.places.maps.uncertainty.center_deviations`.
    """
    reasons = dict.fromkeys(sorted(open_focals(scene, known)), OPEN_FOCAL)
    reasons |= {
        name: f"noise alone moves it by {deviation:.0%} of the map's extent"
        for name, deviation in center_deviations(scene, known).items()
        if MAX_IMAGE_UNCERTAINTY < deviation < math.inf
    }
    left = dict(shares)
    while left:
        of_image, whole = _explained(left, pairs)
        worst = min(of_image, key=lambda name: of_image[name])
        if of_image[worst] >= min(MIN_IMAGE_MATCHES, whole - BELOW_ALL):
            break
        reasons[worst] = f"the map explains {of_image[worst]:.0%} of its matches"
        left = {pair: share for pair, share in left.items() if worst not in pair}
    return reasons


def _explained(shares: Mapping[Pair, float], pairs: Mapping[Pair, VerifiedPair]) -> tuple[dict[str, float], float]:
    """Share of the matches of each image, and of all, that a map explains."""
    explained, counts = dict.fromkeys({n for pair in shares for n in pair}, 0.0), Counter[str]()
    for pair, share in shares.items():
        for name in pair:
            explained[name] += share * len(pairs[pair].inliers)
            counts[name] += len(pairs[pair].inliers)
    of_image = {name: explained[name] / max(1, count) for name, count in counts.items()}
    return of_image, sum(explained.values()) / max(1, sum(counts.values()))


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


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadingsCheck:
    """Direction down in a map by the readings of gravity, and the readings that are wrong.

    `down` (unit vector in the world) and its standard deviation `sigma_deg` are None if the readings agree on none; `reason`
    then says why. `agreeing` of `readings` agree; `wrong_deg` gives the error in degrees of each wrong one, by image.
    """

    down: Float64[np.ndarray, "3"] | None = None
    sigma_deg: float | None = None
    readings: int = 0
    agreeing: int = 0
    wrong_deg: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    __repr__ = one_line


def checked_readings(cam_from_world: Mapping[str, Rigid], down_in_cam: Mapping[str, Float64[np.ndarray, "3"]]) -> ReadingsCheck:
    """Check of all readings of registered images against the rotations of the map (docs/theory/gravity.md, Eq. 11-13).

    `down_in_cam` holds unit vectors down in the camera frames, by image.
    """
    names = sorted(set(cam_from_world) & set(down_in_cam))
    downs = np.array([down_in_cam[name] for name in names], dtype=np.float64).reshape(-1, 3)
    rotations = np.array([cam_from_world[name].rotation for name in names], dtype=np.float64).reshape(-1, 3, 3)
    consensus = agree_on_down(downs, rotations)
    if not isinstance(consensus, GravityConsensus):
        return ReadingsCheck(readings=consensus.readings, agreeing=consensus.agreeing, reason=consensus.reason)
    wrong = {names[row]: float(consensus.residual_deg[row]) for row in consensus.wrong}
    return ReadingsCheck(
        down=consensus.down,
        sigma_deg=consensus.sigma_deg,
        readings=len(names),
        agreeing=len(consensus.agreeing),
        wrong_deg=wrong,
    )


def checked(
    scene: Scene,
    shares: Mapping[Pair, float],
    images: Set[str],
    pairs: Mapping[Pair, VerifiedPair],
    gravity: Mapping[str, Float64[np.ndarray, "3"]],
    left_out: Mapping[str, str],
    *,
    missing: str = TOO_FEW,
    known: Mapping[str, float] | None = None,
    poses_given: bool = False,
) -> MapCheck:
    """Check of a map of `images` by the `shares` of its pairs that it explains, and by readings of gravity.

    `left_out` says why images are not in the map, where a reason is known, and `missing` is the reason of the others. `known`
    is as for `veil.places.maps.uncertainty.center_deviations`. Where `poses_given`, the poses are not from the pairs: how well
    these fix them, by the neck and the uncertainty, is not asked.
    """
    cut = None if poses_given else thinnest_cut(scene)
    counts = {pair: len(pairs[pair].inliers) for pair in shares}
    gravity_deg, agreeing = gravity_agreement(scene, gravity)
    reasons = {**left_out, **dict.fromkeys(sorted(images - set(scene.images) - set(left_out)), missing)}
    return MapCheck(
        pairs=len(shares),
        explained_pairs=sum(share >= EXPLAINED for share in shares.values()),
        contradicting_pairs=len(contradicting(shares, pairs)),
        explained_matches=sum(counts[p] * s for p, s in shares.items()) / max(1, sum(counts.values())),
        neck=None if cut is None else cut.points,
        uncertainty=None if poses_given else position_uncertainty(scene, known),
        step_ratio=step_ratio(scene),
        rotation_deg=rotation_disagreement(scene, pairs),
        gravity_deg=gravity_deg,
        gravity_agreeing=agreeing,
        left_out=reasons,
    )

"""Evidence on a contribution: which points of it others see too, what it resembles, and whether it can agree with anything.

A point of a map lies where the rays of all its observations meet, so that an image whose points images of other owners observe
agrees with these in its geometry. The numbers are explained in docs/theory/contributions.md#evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veil.forms import Form, Lines, Points, Subsets
from veil.geometry.camera import Camera
from veil.matching.neighbors import Matches
from veil.scene import Scene

# Number of common points from which two images see the same part of a map; fewer can be a chance of wrong matches.
COMMON = 15
# A match counts if its nearest distance is at most this share of the second nearest one.
CLEAR_RATIO = 0.8
# Matched features stand in the same place of two images if they are this share of the image's diagonal apart at most.
SAME_PLACE = 0.0025
# Copies of subspaces whose decoys do not meet differ by rounding alone.
LEAST_DISTANCE = 1e-2
# Fewer features than this are not looked at: some of them lie on a line by chance.
LEAST_FEATURES = 8
# Keypoints lie along a line if they spread across it by less than this share of the image's diagonal.
THIN = 0.005


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """Content of a map for one image.

    - `model`: which of the map's models it is in, from 1 on.
    - `observed`: points that it observes.
    - `confirmed`: of these, the points that an image of another owner observes, too.
    - `others`, `own`: images of other owners, and of the same one, with `COMMON` points of it or more.
    - `alone`: whether its model holds images of its owner alone, while those of others are in the map.
    """

    model: int
    observed: int
    confirmed: int
    others: int
    own: int
    alone: bool


def sightings(scenes: Sequence[Scene], owners: Mapping[str, str]) -> dict[str, Sighting]:
    """Content of a map, whose models are `scenes`, for each of its images.

    `owners` names the owner of each image; those that it lacks are of one owner of their own, whoever made the map first.
    """
    of = [{name: owners.get(name, "") for name in scene.images} for scene in scenes]
    everybody = {owner for model in of for owner in model.values()}
    sighting_of: dict[str, Sighting] = {}
    for number, (scene, own) in enumerate(zip(scenes, of, strict=True), start=1):
        present = sorted(set(own.values()))
        names = sorted(scene.images)
        sees = _observations(scene, names)
        rows_of = {owner: [row for row, name in enumerate(names) if own[name] == owner] for owner in present}
        # For each point, of how many owners images observe it.
        owners_seeing = np.sum([np.asarray(sees[rows].sum(axis=0)).ravel() > 0 for rows in rows_of.values()], axis=0)
        common = (sees @ sees.T).tocsr()
        for row, name in enumerate(names):
            points = sees.indices[sees.indptr[row] : sees.indptr[row + 1]]
            start, end = common.indptr[row], common.indptr[row + 1]
            near = [names[i] for i, n in zip(common.indices[start:end], common.data[start:end], strict=True) if n >= COMMON]
            sighting_of[name] = Sighting(
                model=number,
                observed=len(points),
                confirmed=int((owners_seeing[points] > 1).sum()),
                others=sum(own[other] != own[name] for other in near),
                own=sum(own[other] == own[name] for other in near if other != name),
                alone=len(present) == 1 and len(everybody) > 1,
            )
    return sighting_of


def common_points(scenes: Sequence[Scene], a: str, b: str) -> int:
    """Number of points that two images of a map both observe; 0 where they are not in one model."""
    for scene in scenes:
        if a in scene.images and b in scene.images:
            return len(np.intersect1d(scene.images[a].point_rows, scene.images[b].point_rows))
    return 0


def _observations(scene: Scene, names: Sequence[str]):  # type: ignore[no-untyped-def]
    """Matrix (images, points) with 1 where an image observes a point, of SciPy's compressed rows."""
    from scipy.sparse import csr_matrix

    rows = [np.unique(scene.images[name].point_rows) for name in names]
    ends = np.cumsum([0, *(len(own) for own in rows)])
    ones = np.ones(ends[-1], dtype=np.int32)
    return csr_matrix((ones, np.concatenate(rows), ends), shape=(len(names), len(scene.points)))


def degenerate(form: Form, positions: np.ndarray | Lines, camera: Camera) -> list[str]:
    """Why a message can say nothing of geometry, as sentences; empty if it may.

    - `form`: its N descriptors.
    - `positions`: float (N, 2) in pixels, or N lines.
    - `camera`: of the image.
    """
    count = len(form)
    if count < LEAST_FEATURES:
        return []
    reasons = []
    different = len(np.unique(_rows(form), axis=0))
    # Features of one repeated pattern may have the same words, while no two lifted descriptors are ever the same.
    if 2 * different < count and not (isinstance(form, Subsets) and 10 * different >= count):
        reasons.append(f"only {different} of its {count} descriptors are different")
    if isinstance(positions, Lines):
        places = len(np.unique(positions.coefficients, axis=0))
        if 2 * places < count:
            reasons.append(f"its {count} lines are {places} different ones")
        return reasons
    places = len(np.unique(np.floor(positions), axis=0))
    if 2 * places < count:
        reasons.append(f"its {count} keypoints lie on {places} pixels")
    centered = positions.astype(np.float64) - positions.mean(axis=0, dtype=np.float64)
    spread = np.linalg.svd(centered, compute_uv=False) / np.sqrt(count)
    if spread[1] < THIN * _diagonal(camera):
        reasons.append(f"its keypoints lie along a line: they spread by {spread[1]:.1f} px across it")
    return reasons


def copied_share(new: Form, old: Form) -> float:
    """Share of the features of the smaller form whose descriptors are those of the other one, or next to them.

    Two subspaces are a copy if the points of both that are nearest to zero are at most as far apart as two forms of one decoy
    (distances.md#shared-decoys): other draws for the same descriptor lie far apart. Words are a copy if they are all the same;
    single words repeat, so that they say nothing.
    """
    least = max(1, min(len(new), len(old)))
    if isinstance(new, Subsets) or isinstance(old, Subsets):
        if not (isinstance(new, Subsets) and isinstance(old, Subsets)) or not new.m == old.m > 1:
            return 0.0
        return len(set(map(bytes, new.ids)) & set(map(bytes, old.ids))) / least
    if isinstance(new, Points) or isinstance(old, Points) or new.space != old.space:
        return 0.0
    limit = max(new.space.decoy_distance, LEAST_DISTANCE)
    a, b = new.origin, old.origin
    apart = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
    near = apart <= limit**2
    return float(min(near.any(axis=0).sum(), near.any(axis=1).sum())) / least


def clear(matches: Matches) -> Matches:
    """The matches whose nearest distance is clearly smaller than the second nearest one."""
    return matches.take(matches.ratios <= CLEAR_RATIO)


def in_the_same_place(matches: Matches, left: np.ndarray | Lines, right: np.ndarray | Lines, camera: Camera) -> int:
    """Number of matches whose features stand in the same place of both images; 0 where lines hide where they stand."""
    if isinstance(left, Lines) or isinstance(right, Lines):
        return 0
    apart = np.linalg.norm(left[matches.indices[:, 0]] - right[matches.indices[:, 1]], axis=1)
    return int((apart <= SAME_PLACE * _diagonal(camera)).sum())


def _diagonal(camera: Camera) -> float:
    return float(np.hypot(camera.width_px, camera.height_px))


def _rows(form: Form) -> np.ndarray:
    """Numbers that tell the descriptors of a form apart, one a row."""
    if isinstance(form, Subsets):
        return form.ids
    return form.vectors if isinstance(form, Points) else form.origin

"""What a map's geometry says of each image by whom it came from: how many of its points others see, too.

A point of a map lies where the rays of all its observations meet, so that an image whose points images of other owners observe
agrees with these in its geometry (docs/theory/contributions.md#evidence).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veil.scene import Scene

# Two images see the same part of a map if they have so many points in common; fewer can be a chance of wrong matches.
COMMON = 15


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What a map holds of one image.

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
    """What a map, whose models are `scenes`, holds of each of its images.

    `owners` names the owner of each image; those that it lacks are of one owner of their own, whoever made the map first.
    """
    of = [{name: owners.get(name, "") for name in scene.images} for scene in scenes]
    everybody = {owner for model in of for owner in model.values()}
    found: dict[str, Sighting] = {}
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
            found[name] = Sighting(
                model=number,
                observed=len(points),
                confirmed=int((owners_seeing[points] > 1).sum()),
                others=sum(own[other] != own[name] for other in near),
                own=sum(own[other] == own[name] for other in near if other != name),
                alone=len(present) == 1 and len(everybody) > 1,
            )
    return found


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

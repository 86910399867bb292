"""Attack through answers: whether an object stands in a map, and where, from the poses that its views are answered with.

The attacker has views of an object with known poses beside it, and asks a map with each. Views of an object that stands in
the map are answered with poses that one similarity explains (Chelani et al., CVPR 2023; docs/theory/answers.md). It sees
nothing but poses, and so works whatever form queries and map have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Int64

from veil.errors import InputError, RangeError
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_poses, pose_error
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True)
class AgreementOptions:
    """Limits within which an answer agrees with an object's place.

    - `max_turn_deg`: largest angle between the answered rotation and that of the place, in degrees.
    - `max_shift`: largest distance between both camera centers, as a share of the view's distance to the object.

    Raises RangeError for limits that are not positive, or that every answer keeps.
    """

    max_turn_deg: float = 10.0
    max_shift: float = 0.25

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 < self.max_turn_deg < 180:
            raise RangeError(f"max_turn_deg must lie in (0, 180), got {self.max_turn_deg!r}")
        if not 0 < self.max_shift < math.inf:
            raise RangeError(f"max_shift must be positive and finite, got {self.max_shift!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectPlace:
    """Where an object stands in a map: `map_from_object` takes its coordinates to the map's.

    `views`, int64 (agreeing,), are rows of the views whose answers agree with the place.
    """

    map_from_object: Similarity
    views: Int64[np.ndarray, "agreeing"]

    __repr__ = one_line


def agreeing_views(
    map_from_object: Similarity,
    cam_from_object: Sequence[Rigid],
    cam_from_map: Sequence[Rigid | None],
    options: AgreementOptions,
) -> Int64[np.ndarray, "agreeing"]:
    """Rows of the views whose answers agree with an object's place (docs/theory/answers.md, Eq. 2).

    The object is about the origin of its coordinates: there lies the point that distances to it are measured to.
    """
    rows = []
    for row, (own, answer) in enumerate(zip(cam_from_object, cam_from_map, strict=True)):
        if answer is None:
            continue
        shift, turn_deg = pose_error(own, answer, map_from_object)
        reach = map_from_object.scale * float(np.linalg.norm(own.center))
        if turn_deg <= options.max_turn_deg and shift <= options.max_shift * reach:
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def object_place(
    cam_from_object: Sequence[Rigid],
    cam_from_map: Sequence[Rigid | None],
    options: AgreementOptions | None = None,
) -> ObjectPlace | None:
    """The place of an object with which most answers agree; None where no two answers do (docs/theory/answers.md, Eq. 1-2).

    Each pair of answers gives a similarity. That with most agreeing views is fitted to all of them.

    - `cam_from_object`: poses of the views beside the object, in any unit.
    - `cam_from_map`: the map's answer to each; None where it had no pose.

    Raises InputError for fewer than two views, or another number of answers.
    """
    if len(cam_from_object) != len(cam_from_map):
        raise InputError(f"{len(cam_from_object)} views have {len(cam_from_map)} answers; give one for each, None for no pose")
    if len(cam_from_object) < 2:
        raise InputError(f"an object's place needs two views or more, got {len(cam_from_object)}")
    options = options or AgreementOptions()
    answered = [row for row, answer in enumerate(cam_from_map) if answer is not None]
    best: ObjectPlace | None = None
    for pair in combinations(answered, 2):
        place = _fitted(pair, cam_from_object, cam_from_map, options)
        if place is not None and (best is None or len(place.views) > len(best.views)):
            best = place
    if best is None:
        return None
    fitted = _fitted(best.views.tolist(), cam_from_object, cam_from_map, options)
    return best if fitted is None or len(fitted.views) < len(best.views) else fitted


def _fitted(
    rows: Sequence[int], own: Sequence[Rigid], answers: Sequence[Rigid | None], options: AgreementOptions
) -> ObjectPlace | None:
    """The place by least squares over the answers `rows`; None where those disagree among themselves."""
    given = [answer for row in rows if (answer := answers[row]) is not None]
    try:
        similarity = align_poses([own[row] for row in rows], given)
    except InputError:  # both centers coincide, or lie the other way around
        return None
    views = agreeing_views(similarity, own, answers, options)
    return ObjectPlace(map_from_object=similarity, views=views) if np.isin(rows, views).all() else None


def presence_score(answers: Sequence[Rigid | None], place: ObjectPlace | None) -> int:
    """Number of views that say that the object is in the map: those that agree, else one if any view was answered at all."""
    return len(place.views) if place is not None else int(any(answer is not None for answer in answers))

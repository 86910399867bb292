"""Planted problems for poses from groups of candidates: a pose, and which candidates are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import Rigid
from veil.geometry.robust.grouped import grouped
from veil.geometry.robust.grouped_search import Groups
from worlds import generator, unit

HALF_EXTENT = np.array([0.75, 0.55])
LIMIT = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """A problem, its pose, the candidate of each row, and which rows are right."""

    groups: Groups
    pose: Rigid
    order: np.ndarray
    right: np.ndarray


def planted_groups(
    name: str,
    *,
    features: int = 60,
    candidates: int = 5,
    right: float = 0.5,
    as_lines: bool = False,
    noise: float = 0.0005,
    lists: Sequence[np.ndarray] | None = None,
) -> Planted:
    """A problem in which a `right` share of the features has its own point among its candidates; other candidates are wrong.

    Candidates come in random order of trust. `noise` is that of positions in the normalized plane.
    """
    random = generator(name)
    rotation = Rotation.from_rotvec(0.5 * random.normal(size=3)).as_matrix()
    translation = random.normal(size=3)
    xy = random.uniform(-1, 1, (4 * features, 2)) * HALF_EXTENT * 0.95
    depth = random.uniform(3, 9, (len(xy), 1))
    points = (np.hstack([xy * depth, depth]) - translation) @ rotation
    noisy = xy[:features] + noise * random.normal(size=(features, 2))
    seen = np.hstack([noisy, np.ones((features, 1))])
    if as_lines:
        theta = random.uniform(0, np.pi, features)
        normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
        seen = np.hstack([normals, -(normals * noisy).sum(axis=1, keepdims=True)])
    group = np.repeat(np.arange(features), candidates)
    rows = random.integers(features, len(points), len(group))
    own = np.arange(features)[: round(right * features)]
    rows[own * candidates + random.integers(0, candidates, len(own))] = own
    trust = random.permutation(len(group))
    down_world = unit(random.normal(size=3))
    groups, order = grouped(
        group=group[trust],
        points=points[rows[trust]],
        point_rows=rows[trust],
        seen=seen,
        as_lines=as_lines,
        half_extent=HALF_EXTENT,
        lists=[np.arange(len(group))] if lists is None else lists,
        down_cam=rotation @ down_world,
        down_world=down_world,
    )
    return Planted(
        groups=groups,
        pose=Rigid(rotation=rotation, translation=translation),
        order=order,
        right=rows[trust][order] == group[trust][order],
    )


def near(pose: Rigid, truth: Rigid, tol: float) -> bool:
    """Whether rotation matrices and translations differ by less than `tol` in each entry."""
    return bool(np.abs(pose.rotation - truth.rotation).max() < tol and np.abs(pose.translation - truth.translation).max() < tol)

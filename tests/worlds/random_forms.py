"""Subspaces through chosen points in random directions: liftings without decoys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veil.forms import Subspaces
from veil.ldp.guarantee import NoProof
from veil.space import Space
from worlds import affine_set, generator, unit

RAW = Space(descriptor="sift", normalization="L2", dim=128)


def form_through(points: np.ndarray, m: int, case: str) -> Subspaces:
    origin, basis = affine_set(generator(case), points, m)
    space = replace(RAW, dim=points.shape[1])
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=space,
        guarantee=NoProof(reason="test"),
        profile="test",
        releasable=False,
    )


def points(count: int, dim: int = 128, case: str = "points") -> np.ndarray:
    return unit(generator(case).normal(size=(count, dim)))

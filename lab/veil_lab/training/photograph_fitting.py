"""Fit of the law by which photographs differ in the average of their descriptors, in closed form.

A file of its own: it needs no torch, and what trains beside it does.

Theory: learned_attacks.md#same-photograph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veil.attacks.distribution.same_photograph import PhotographModel
from veil.audit.ground_truth import in_space
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.mechanisms.selection import Selection, selected_rows
from veil.randomness import seeded
from veil_lab.training.context_options import LEAST_FEATURES

# Directions in which photographs differ most; more of them added nothing on photographs that were not fitted.
DIRECTIONS = 20
# Share of the mean variance within photographs that is added to that of each coordinate, or few descriptors would have none.
RIDGE = 1e-4
# Least spread of the averages, in variances within a photograph: an estimate of less than nothing is sampling.
LEAST_SPREAD = 1e-6


def fit_photographs(photographs: Sequence[Features], book: Codebook, *, source: str) -> PhotographModel:
    """The law of `photographs` in the compressed space of `book`, of the features that `veil privatize` sends of each.

    Raises InputError for fewer than two photographs with 12 such features.
    """
    space, parts = book.compression.hardened_space, []
    for item in photographs:
        rows = selected_rows(item, Selection(), seeded("photographs"))
        if len(rows) >= LEAST_FEATURES:
            parts.append(in_space(item.take(rows), space, book))
    if len(parts) < 2:
        raise InputError(
            f"the law of photographs is learned from two or more with {LEAST_FEATURES} features that lie apart, "
            f"got {len(parts)}; give more photographs"
        )
    mean = np.concatenate(parts).mean(axis=0)
    counts = np.array([len(part) for part in parts])
    averages = np.array([part.mean(axis=0) for part in parts]) - mean
    centered = np.concatenate([part - part.mean(axis=0) for part in parts])
    within = centered.T @ centered / (counts - 1).sum()
    within += RIDGE * np.trace(within) / len(within) * np.eye(len(within))
    center = averages.mean(axis=0)
    between = (averages - center).T @ (averages - center) / len(averages) - within * (1 / counts).mean()
    inverse = np.linalg.inv(np.linalg.cholesky(within))
    spread, directions = np.linalg.eigh(inverse @ between @ inverse.T)
    order = np.argsort(-spread)[:DIRECTIONS]
    axes = inverse.T @ directions[:, order]
    return PhotographModel(
        space=space,
        mean=mean,
        axes=axes,
        center=center @ axes,
        spread=np.maximum(spread[order], LEAST_SPREAD),
        source=source,
    )

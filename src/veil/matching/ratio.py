"""Ratio thresholds for each distance and dimension: calibrated on labeled pairs, or learned from ratios of wrong matches.

Theory: distances.md#how-distances-shrink-with-m.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import numpy as np
from jaxtyping import Bool, Float

from veil import distances
from veil.errors import InputError
from veil.forms import Form, Points, Subsets, Subspaces
from veil.matching.neighbors import NEIGHBORS, as_set, decoy_distance, distance_name

# Share of the features without a right match that pass the ratio test.
WRONG_SHARE = 0.01
# Numbers of pairs of images, and of features of each pair, from which ratios of wrong matches are learned.
SAMPLE_PAIRS, SAMPLE_FEATURES = 8, 500
# Subspaces nearer than this share of the largest distance meet in a common decoy. Rounding ranks such distances, not likeness.
MEETING = 1e-3


def best_ratio(ratios: Float[np.ndarray, "matches"], right: Bool[np.ndarray, "matches"]) -> float:
    """Ratio threshold that separates right from wrong matches best (Youden's index).

    It maximizes the share of right matches that are kept less the share of wrong ones. `right` marks the right matches. Raises
    InputError unless there are both right and wrong ones.
    """
    if not (right.any() and (~right).any()):
        raise InputError("calibrating a ratio needs right and wrong matches; give more image pairs")
    order = np.argsort(ratios, kind="stable")
    gained = np.cumsum(np.where(right[order], 1 / right.sum(), -1 / (~right).sum()))
    return float(min(1.0, ratios[order][int(np.argmax(gained))]))


@cache
def _table() -> dict[str, float]:
    """The calibrated thresholds, by `ratio_key`."""
    return json.loads((files("veil") / "data" / "ratios.json").read_text())["max_ratio"]


def calibrated(left: Form, right: Form) -> float:
    """Calibrated ratio threshold for two forms, from the table that the study of homographies calibrates.

    Raises InputError where no calibration exists, rather than borrow that of another profile, dimension or distance.
    """
    key = ratio_key(left, right)
    if key not in _table():
        raise InputError(f"no ratio is calibrated for {key}; use none, a number, or calibrate on your own pairs")
    return _table()[key]


def ratio_key(left: Form, right: Form) -> str:
    """Key of two forms in the table of calibrated ratios: descriptor/profile/m/distance."""
    lifted = [form for form in (left, right) if isinstance(form, Subspaces)]
    profile, m = (
        (lifted[0].profile, max(form.m for form in lifted)) if lifted else ("raw" if isinstance(left, Points) else "words", 0)
    )
    return f"{left.space.descriptor}-{left.space.normalization}/{profile}/{m}/{distance_name(left, right)}"


def chance_ratio(
    forms: Mapping[str, Form], pairs: Sequence[tuple[str, str]], *, wrong_share: float = WRONG_SHARE, seed: int = 0
) -> float:
    """Ratio threshold that a share `wrong_share` of wrong matches passes, learned without knowing which matches are right.

    It is learned from a sample, chosen by `seed`, of the image `pairs` (names in `forms`). Words, which have no distance, and
    samples of fewer than 1 / `wrong_share` features give 1.
    """
    return passed_by(wrong_ratios(forms, pairs, seed=seed), wrong_share)


def passed_by(ratios: Float[np.ndarray, "features"], share: float) -> float:
    """Ratio below which `share` of the ratios lies; 1 if they are too few to tell."""
    return float(np.quantile(ratios, share)) if len(ratios) >= 1 / share else 1.0


def wrong_ratios(
    forms: Mapping[str, Form], pairs: Sequence[tuple[str, str]], *, seed: int = 0
) -> Float[np.ndarray, "features"]:
    """Ratios of nearest to second nearest distance of wrong matches, for a sample of features of the image pairs.

    Nobody needs to know which matches are right. Where a feature's right match is missing in the other image, its nearest two
    neighbors are wrong. Where the right match is there, the second and third neighbors are wrong, and their ratio is
    distributed like that of a wrong match. It is used for every feature, and follows distance and dimension by itself. Features
    whose second neighbor is another subspace with the same decoy, at distance zero, are left out; these may be all features of
    one image in several. Neighbors as near as two dithered copies of a decoy do not count as neighbors. Words, which have no
    distance, give no ratios.
    """
    random = np.random.default_rng(seed)
    chosen = [pairs[i] for i in random.permutation(len(pairs))[:SAMPLE_PAIRS]]
    second, third = [np.empty(0)], [np.empty(0)]
    for a, b in chosen:
        left, right = forms[a], forms[b]
        if isinstance(left, Subsets) or isinstance(right, Subsets):
            return np.empty(0)
        if len(right) < 3 or len(left) == 0:
            continue
        rows = np.sort(random.permutation(len(left))[:SAMPLE_FEATURES])
        meets = decoy_distance(left, right)
        distance = distances.nearest(as_set(left.take(rows)), as_set(right), NEIGHBORS if meets else 3).distance
        beyond = np.sort(np.where(distance > meets, distance, np.inf), axis=1) if meets else distance
        known = np.isfinite(beyond[:, 2])
        second.append(beyond[known, 1])
        third.append(beyond[known, 2])
    near, far = np.concatenate(second), np.concatenate(third)
    apart = near > MEETING * far.max(initial=0.0)
    return near[apart] / far[apart]

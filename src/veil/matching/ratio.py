"""Ratio thresholds per distance and dimension: calibrated on real pairs, or by what a wrong match looks like.

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
from veil.matching.neighbors import as_set, distance_name

# The share of features without a right match that pass the ratio test.
WRONG_SHARE = 0.01
# From so many pairs of images, and so many features of each, the ratio of wrong matches is learnt.
SAMPLE_PAIRS, SAMPLE_FEATURES = 8, 500
# Subspaces nearer than this share of the largest distance meet in a common decoy; rounding decides among such, not likeness.
MEETING = 1e-3


def best_ratio(ratios: Float[np.ndarray, "matches"], right: Bool[np.ndarray, "matches"]) -> float:
    """The threshold that separates right from wrong matches best: largest share of right kept minus wrong kept.

    Raises InputError unless both kinds are there.
    """
    if not (right.any() and (~right).any()):
        raise InputError("calibrating a ratio needs right and wrong matches; give more image pairs")
    order = np.argsort(ratios, kind="stable")
    gained = np.cumsum(np.where(right[order], 1 / right.sum(), -1 / (~right).sum()))
    return float(min(1.0, ratios[order][int(np.argmax(gained))]))


@cache
def _table() -> dict[str, float]:
    return json.loads((files("veil") / "data" / "ratios.json").read_text())["max_ratio"]


def calibrated(left: Form, right: Form) -> float:
    """The calibrated threshold for these two forms (table made by `veil evaluate homographies --calibrate`).

    Raises InputError where no calibration exists rather than borrow one.
    """
    key = ratio_key(left, right)
    if key not in _table():
        raise InputError(f"no ratio is calibrated for {key}; use none, a number, or calibrate on your own pairs")
    return _table()[key]


def ratio_key(left: Form, right: Form) -> str:
    """descriptor/profile/m/distance, as in the table."""
    lifted = [form for form in (left, right) if isinstance(form, Subspaces)]
    profile, m = (
        (lifted[0].profile, max(form.m for form in lifted)) if lifted else ("raw" if isinstance(left, Points) else "words", 0)
    )
    return f"{left.space.descriptor}-{left.space.normalization}/{profile}/{m}/{distance_name(left, right)}"


def chance_ratio(
    forms: Mapping[str, Form], pairs: Sequence[tuple[str, str]], *, wrong_share: float = WRONG_SHARE, seed: int = 0
) -> float:
    """The ratio that a share `wrong_share` of wrong matches passes, learnt from these forms without knowing which are right.

    Words, which have no distance, and samples too small to tell (1 over `wrong_share` features) give 1.
    """
    return passed_by(wrong_ratios(forms, pairs, seed=seed), wrong_share)


def passed_by(ratios: Float[np.ndarray, "features"], share: float) -> float:
    """The ratio below which a share of these lies; 1 if they are too few to tell."""
    return float(np.quantile(ratios, share)) if len(ratios) >= 1 / share else 1.0


def wrong_ratios(
    forms: Mapping[str, Form], pairs: Sequence[tuple[str, str]], *, seed: int = 0
) -> Float[np.ndarray, "features"]:
    """Ratios of wrong matches between these forms, a sample of them; none for words.

    Of a feature without its right match in the other image the nearest neighbor is wrong, and so is the second. A feature
    that has its right match shows the same once that is set aside: its second and third neighbors are wrong, and their ratio
    is distributed like that of a wrong match. It follows the distance and the dimension by itself. Features whose second
    neighbor is another subspace with the same decoy, at no distance, are left out: of one image in several all may be.
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
        distance = distances.nearest(as_set(left.take(rows)), as_set(right), 3).distance
        second.append(distance[:, 1])
        third.append(distance[:, 2])
    near, far = np.concatenate(second), np.concatenate(third)
    apart = near > MEETING * far.max(initial=0.0)
    return near[apart] / far[apart]

"""Ratio thresholds per distance and dimension, calibrated on real pairs (traps D18)."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import numpy as np
from jaxtyping import Bool, Float

from veil.errors import InputError
from veil.forms import Form, Points, Subspaces
from veil.match.neighbors import distance_name


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

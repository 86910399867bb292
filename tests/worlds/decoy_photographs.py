"""Photographs that may give decoys: random features with scales, for tests of the mechanism, the device and the command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veil.features import Features
from worlds import features, generator


def photograph(name: str, count: int = 120, *, width: int = 640, height: int = 480) -> Features:
    """A photograph of random features whose scales follow one law; those of one name are equal."""
    random = generator(f"photograph {name}")
    made = features(random, count, name=name, width=width, height=height)
    scales = (1.2 * np.exp(random.exponential(0.7, count))).astype(np.float32)
    return replace(made, scales=scales)


def photographs(count: int, features_each: int = 120) -> tuple[Features, ...]:
    """Photographs of other places, by their numbers."""
    return tuple(photograph(f"decoys {number}", features_each) for number in range(count))

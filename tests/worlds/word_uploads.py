"""Messages of random words, for the tests of wire, files and command line."""

from __future__ import annotations

import math

import numpy as np

from veil.forms import Lines, Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.space import Space
from veil.wire.message import LineUpload, Upload
from worlds import camera, generator

SIFT = Space(descriptor="sift", normalization="L2", dim=128)
DICTIONARY = "0f" * 32


def random_ids(random: np.random.Generator, count: int, m: int, words: int) -> np.ndarray:
    """Uniformly random subsets, sorted."""
    rows = [np.sort(random.choice(words, m, replace=False, shuffle=False)) for _ in range(count)]
    return np.array(rows, dtype=np.uint32)


def subsets(count: int = 5, m: int = 2, *, words: int = 1000, epsilon: float = 5.0, releasable: bool = True) -> Subsets:
    return Subsets(
        ids=random_ids(generator(f"words {count} {m} {words}"), count, m, words),
        mechanism=SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m),
        space=SIFT,
        dictionary=DICTIONARY,
        releasable=releasable,
    )


def word_upload(form: Subsets | None = None) -> Upload:
    """Words with positions."""
    form = subsets() if form is None else form
    keypoints = generator(f"positions {len(form)}").uniform(0, 400, (len(form), 2))
    return Upload(camera=camera(), keypoints=keypoints.astype(np.float32), form=form)


def word_line_upload(form: Subsets | None = None, *, gravity: bool = True) -> LineUpload:
    """Words with lines."""
    form = subsets() if form is None else form
    random = generator(f"lines {len(form)}")
    theta = random.uniform(0, math.pi, len(form))
    lines = Lines(
        coefficients=np.stack([np.cos(theta), np.sin(theta), random.uniform(-0.4, 0.4, len(form))], axis=1).astype(np.float32),
        aligned=(random.random(len(form)) < 0.5) & gravity,
        gravity=np.array([0.0, 0.8, 0.6]) if gravity else None,
        releasable=True,
    )
    return LineUpload(camera=camera(), lines=lines, form=form)

"""The law of photographs is fitted as it was planted, and refused where there are too few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.mechanisms.public import publish
from veil_lab.training.photograph_fitting import DIRECTIONS, fit_photographs
from worlds import camera, codebook, generator, unit

PHOTOGRAPHS, FEATURES, WITHIN = 120, 50, 0.02


@pytest.fixture(scope="module")
def book() -> Codebook:
    return codebook(generator("book of photographs"))


def photograph(book: Codebook, name: str, average: np.ndarray, features: int = FEATURES) -> Features:
    """Features far apart whose descriptors scatter evenly around one, in unit vectors."""
    random = generator(name)
    vectors = unit(average + WITHIN * random.normal(size=(features, len(average)))).astype(np.float32)
    side = np.arange(features)
    return Features(
        keypoints=np.stack([20.0 * (side % 30), 20.0 * (side // 30)], axis=1).astype(np.float32),
        descriptors=vectors,
        space=book.raw_space,
        camera=camera(),
        image_digest=name.encode().ljust(32),
    )


def test_the_planted_law_is_found(book: Codebook) -> None:
    """Planted: averages of photographs differ along two axes of the PCA, by known parts of the scatter within a photograph."""
    pca, random = book.compression.require_pca(), generator("averages")
    wanted = np.array([4.0, 1.0])
    base = unit(np.abs(random.normal(size=128)) + 1)
    averages = base + WITHIN * (np.sqrt(wanted) * random.normal(size=(PHOTOGRAPHS, 2))) @ pca.axes[:2]
    items = [photograph(book, f"photograph {number}", average) for number, average in enumerate(averages)]
    law = fit_photographs(items, book, source="planted")
    assert law.space == book.compression.hardened_space and law.axes.shape == (64, DIRECTIONS)
    # Spreads of 120 averages are known to about a tenth; what is planted nowhere is sampling.
    assert np.allclose(law.spread[:2], wanted, rtol=0.45) and law.spread[2] < 0.1
    # The first two coordinates of one photograph have the variance 1 and are uncorrelated, of photographs that were not fitted.
    other = fit_photographs(items[:2], book, source="two")
    assert other.source == "two" and (other.spread > 0).all()
    fresh = photograph(book, "unseen", averages[0], features=900)
    shown = book.compression.into_space(publish(fresh), law.space).vectors.astype(np.float64)
    assert np.allclose(np.cov(law.coordinates(shown)[:, :2].T), np.eye(2), atol=0.2)


def test_too_few_photographs_are_refused(book: Codebook) -> None:
    """One photograph has no spread, and eleven features no average."""
    average = unit(np.abs(generator("few").normal(size=128)) + 1)
    large, small = photograph(book, "large", average), photograph(book, "small", average, features=11)
    for items in ([large], [large, small]):
        with pytest.raises(InputError, match="two or more with 12 features"):
            fit_photographs(items, book, source="few")
    # Features that would not leave together do not count.
    crowded = replace(large, keypoints=np.zeros_like(large.keypoints), image_digest=b"crowded".ljust(32))
    with pytest.raises(InputError, match="got 1"):
        fit_photographs([large, crowded], book, source="few")

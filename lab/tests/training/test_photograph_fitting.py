"""The law of photographs and the sharpness are fitted as they were planted, and refused where there is too little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.distribution.modes import Modes
from veil.attacks.distribution.same_photograph import DecoyLaw, PhotographModel
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.mechanisms.public import publish
from veil.space import Space
from veil_lab.training.photograph_fitting import (
    DIRECTIONS,
    SHARPNESSES,
    JudgedModes,
    fit_photographs,
    fit_sharpness,
    log_likelihoods,
)
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


# A law whose averages all lie at the origin, where decoys lie as well: beliefs follow the log ratios alone.
NOTHING_IN_COMMON = PhotographModel(
    space=Space(descriptor="sift", normalization="L2", dim=3),
    mean=np.zeros(3),
    axes=np.eye(3)[:, :1],
    center=np.zeros(1),
    spread=np.array([1e-6]),
    source="planted",
)
LIKE_ALL = DecoyLaw(mean=np.zeros(1), covariance=np.eye(1))


def judged(name: str, sharpness: float, features: int = 150, modes: int = 5) -> JudgedModes:
    """Modes of which one of each feature is drawn in proportion to the `sharpness`-th power of its ratio."""
    random = generator(name)
    ratios = -np.sort(-random.normal(0, 3, (features, modes)), axis=1)
    drawn = (sharpness * ratios + random.gumbel(size=ratios.shape)).argmax(axis=1)
    found = Modes(points=np.zeros((features, modes, 3)), log_ratios=ratios)
    return JudgedModes(modes=found, is_right=np.eye(modes, dtype=bool)[drawn], decoys=LIKE_ALL)


@pytest.mark.parametrize("planted", [0.2, 0.9])
def test_the_planted_sharpness_is_fitted_back(planted: float) -> None:
    """Within 3.5 of its standard errors, which are those of Fisher's information within a third."""
    items = [judged(f"{planted} {number}", planted) for number in range(30)]
    fitted = fit_sharpness(log_likelihoods(items, NOTHING_IN_COMMON))
    assert abs(fitted.sharpness - planted) < 3.5 * fitted.error < 0.25 * planted
    information = 0.0
    for item in items:
        beliefs, ratios = item.modes.beliefs(planted), item.modes.log_ratios
        information += ((beliefs * ratios**2).sum(axis=1) - (beliefs * ratios).sum(axis=1) ** 2).sum()
    assert fitted.error == pytest.approx(information**-0.5, rel=1 / 3)


def test_the_likelihood_is_that_of_right_modes_alone() -> None:
    """By hand, for log ratios of 0 and -2, a feature with two right modes, and one without any."""
    ratios = np.array([[0.0, -2.0], [0.0, -2.0], [0.0, -2.0]])
    is_right = np.array([[False, True], [True, True], [False, False]])
    item = JudgedModes(modes=Modes(points=np.zeros((3, 2, 3)), log_ratios=ratios), is_right=is_right, decoys=LIKE_ALL)
    expected = np.log(np.exp(-2 * SHARPNESSES) / (1 + np.exp(-2 * SHARPNESSES)))
    assert item.features == 2 and np.allclose(log_likelihoods([item], NOTHING_IN_COMMON)[0], expected)


def test_the_jackknife_of_two_photographs_is_half_their_difference() -> None:
    """By hand: each is left out once. A third photograph without right modes says nothing; one alone has no error."""
    logs = np.log(SHARPNESSES)
    valleys = np.array([-1000 * (logs - np.log(value)) ** 2 for value in (0.3, 0.5)])
    both = fit_sharpness(np.concatenate([valleys, np.zeros((1, len(logs)))]))
    assert both.sharpness == float(f"{0.15**0.5:.3g}") and both.error == pytest.approx(0.1)
    assert np.isnan(fit_sharpness(valleys[:1]).error) and fit_sharpness(valleys[:1]).sharpness == 0.3
    with pytest.raises(InputError, match="no mode of any feature"):
        fit_sharpness(np.zeros((2, len(logs))))

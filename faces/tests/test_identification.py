"""Open-set identification: false positives of whole galleries against enumeration, thresholds against planted strangers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil_faces.galleries import Impostors, accepting, bounded_mean, calibrate_open_set, first_alone
from veil_faces.identification import OpenSet, gallery_sizes, people_needed
from worlds import generator


def planted(name: str, strangers: int, templates: int) -> np.ndarray:
    """Distances of people who differ in how near they are to others, as strangers and as templates."""
    random = generator(name)
    wolves, lambs = 0.06 * random.normal(size=strangers), 0.06 * random.normal(size=templates)
    return 1 + wolves[:, None] + lambs + 0.1 * random.normal(size=(strangers, templates))


def impostors(distance: np.ndarray) -> Impostors:
    return Impostors.of(distance, np.arange(len(distance)), np.arange(distance.shape[1]))


def test_all_galleries_are_counted() -> None:
    """Oracle: every gallery of three among eight templates, one after another; own templates are never in a stranger's."""
    distance = planted("few", 9, 9)
    strangers = impostors(distance)
    for threshold in (0.8, 0.9, 1.0):
        shares = []
        for stranger in range(9):
            others = [column for column in range(9) if column != stranger]
            accepted = [distance[stranger, list(gallery)].min() <= threshold for gallery in combinations(others, 3)]
            shares.append(np.mean(accepted))
        near = (strangers.ranked <= threshold).sum(axis=1)
        assert accepting(near, 8, 3) == pytest.approx(shares)
        assert strangers.fpir(3, threshold)[0] == pytest.approx(np.mean(shares))


def test_a_person_is_first_where_nobody_is_nearer() -> None:
    """Oracle: every gallery of the person and two of five others."""
    distance, mated = planted("ranks", 6, 6), np.array([0.9, 0.8, 1.0, 0.7, np.nan, 1.2])
    expected = [
        0.0
        if np.isnan(own)
        else np.mean([(np.delete(distance[row], row)[list(pair)] >= own).all() for pair in combinations(range(5), 2)])
        for row, own in enumerate(mated)
    ]
    assert first_alone(impostors(distance), mated, 3) == pytest.approx(expected)


def test_the_bound_for_any_strangers_holds() -> None:
    """Oracles: the exact interval of a share where none is accepted; else binomial tails, which it must not cut shorter."""
    from scipy.stats import binom

    assert bounded_mean(0.0, 100)[1] == pytest.approx(1 - 0.025**0.01)
    assert bounded_mean(1.0, 100)[0] == pytest.approx(0.025**0.01)
    for mean in (0.01, 0.1, 0.5):
        low, high = bounded_mean(mean, 100)
        assert binom.cdf(round(100 * mean), 100, high) <= 0.025 + 1e-9 >= binom.sf(round(100 * mean) - 1, 100, low)
        assert low < mean < high < mean + 0.25


@pytest.mark.slow
def test_thresholds_keep_strangers_out_of_galleries_of_every_size() -> None:
    """Planted truth: a population of which calibration sees 250 people. A threshold of one comparison accepts many times what
    was asked; that of the size does not exceed it by more than the 2.5 % of calibrations that the interval allows, and chance
    (of 20 at most 3, which 1 in 500 would reach), nor stay so far below it that a bound of nothing would do as well.
    """
    asked, sizes = 0.05, (1, 5, 20)
    truth = np.sort(planted("population", 1500, 2000), axis=1)[:, :400]

    def rate(size: int, threshold: float) -> float:
        return float(accepting((truth <= threshold).sum(axis=1), 2000, size).mean())

    over, share = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0.0)
    for trial in range(20):
        strangers = impostors(planted(f"calibration {trial}", 250, 250))
        for size in sizes:
            threshold = strangers.threshold(size, asked)
            assert threshold is not None
            over[size] += rate(size, threshold) > asked
            share[size] += rate(size, threshold) / asked / 20
        single = float(np.quantile(strangers.ranked, asked))
        assert rate(20, single) > 5 * asked, "the broken twin"
    assert max(over.values()) <= 3 and min(share.values()) > 0.4


def test_what_few_people_cannot_say_is_refused() -> None:
    """The rules of three and of thirty: 30 people say nothing of one stranger in a hundred, nor of galleries of thousands."""
    people = np.arange(30)
    few = calibrate_open_set(planted("30", 30, 30), people, people, mated=np.full(30, np.nan), fpir=0.01)
    assert few.sizes == () and few.people == 30
    with pytest.raises(InputError, match=r"speaks for no gallery at an FPIR of 1.00%, and there are 5, .* about 368 people"):
        few.at(5)
    people = np.arange(200)
    some = calibrate_open_set(planted("200", 200, 200), people, people, mated=np.full(200, np.nan), fpir=0.05, wanted=(13,))
    assert some.at(13).templates == 13 and some.at(12).templates == 13 and some.at(11).templates == 13
    with pytest.raises(InputError, match=r"at most [0-9]+ templates .* about 6,325 people"):
        some.at(10_000)
    thresholds = [size.threshold for size in some.sizes]
    assert thresholds == sorted(thresholds, reverse=True) and some.largest >= 20
    assert all(size.fpir_low <= size.fpir <= size.fpir_high <= 0.05 + 1e-9 < size.fpir_bound for size in some.sizes)
    assert OpenSet.from_record(some.as_record()) == some


def test_people_needed_grow_with_the_gallery_and_sizes_are_few() -> None:
    assert [people_needed(size, 0.01) for size in (1, 1000)] == [368, 4473]
    assert gallery_sizes(40, wanted=(13, 99)) == [1, 2, 3, 5, 7, 10, 13, 15, 20, 30, 40] and gallery_sizes(0) == []


def test_one_person_is_one_stranger() -> None:
    people = np.zeros(4, dtype=np.int64)
    with pytest.raises(InputError, match="more of one person are no more strangers"):
        calibrate_open_set(planted("one", 4, 4), people, people, mated=np.full(4, np.nan), fpir=0.5)
    with pytest.raises(RangeError, match="between 0 and 1"):
        calibrate_open_set(planted("one", 4, 4), np.arange(4), np.arange(4), mated=np.full(4, np.nan), fpir=1.0)

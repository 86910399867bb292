"""The study of distribution attacks at small scale: its rows against planted truth, its order, and its refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil.attacks.claims import Lists
from veil.attacks.distribution.database import AwayOptions
from veil.errors import InputError, RangeError
from veil.features import Features, unit_length
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points
from veil_lab.studies.attacks import distribution as module
from veil_lab.studies.attacks.distribution import DecoyRow, DistributionStudy, EstimateRow, descriptor_attacks, oracle_curve
from worlds.random_forms import form_through, points

# The bundled pool and codebook come from other photographs than the door; words of one run of the codebook are all there are.
BOOK = bundled_codebook()
WORDS = replace(BOOK, stored=BOOK.stored[:400], slices=2)
PUBLIC = Points(vectors=bundled_decoys().vectors[:6000], space=BOOK.raw_space)
STUDY = DistributionStudy(dimensions=(2, 4), count=100, per_image=80, oracle=(1, 20))


@cache
def found_by(names: tuple[str, ...], images: tuple[Features, ...]) -> tuple[list[EstimateRow], list[DecoyRow]]:
    return descriptor_attacks(images[:2], words=WORDS, public=PUBLIC, auxiliary=images[2:], study=STUDY)


@pytest.fixture
def study(door: dict[str, Features]) -> tuple[list[EstimateRow], list[DecoyRow]]:
    """Two photographs under test, two auxiliary ones."""
    return found_by(tuple(door)[:4], tuple(door.values())[:4])


def by_name(rows: list[EstimateRow], m: int) -> dict[str, EstimateRow]:
    return {row.attack: row for row in rows if row.m == m}


@pytest.mark.slow
def test_attacks_come_in_the_order_of_the_paper(study: tuple[list[EstimateRow], list[DecoyRow]]) -> None:
    """[P23] Table 1 on descriptors: nearest > clustering > database > raw; more knowledge never hurts."""
    for m in STUDY.dimensions:
        rows = by_name(study[0], m)
        mean = {name: row.mean_distance for name, row in rows.items()}
        assert mean["nearest"] > mean["clustering"] > mean["database"] > mean["raw"] == 0
        assert mean["oracle of 20, projected"] < mean["nearest, projected"]
        assert rows["raw"].identified == rows["raw"].within_01 == 1 and rows["raw"].undecided == 0
        assert all(row.features == 100 for row in rows.values())


@pytest.mark.slow
def test_an_oracle_over_one_entry_is_the_nearest_neighbor(study: tuple[list[EstimateRow], list[DecoyRow]]) -> None:
    for m in STUDY.dimensions:
        rows = by_name(study[0], m)
        for end in ("", ", projected"):
            picked, nearest = rows["oracle of 1" + end], rows["nearest" + end]
            assert picked.mean_distance == pytest.approx(nearest.mean_distance, abs=1e-9)
            assert replace(picked, attack=nearest.attack, mean_distance=nearest.mean_distance) == nearest


@pytest.mark.slow
def test_decoys_are_counted_against_the_words_that_were_drawn(study: tuple[list[EstimateRow], list[DecoyRow]]) -> None:
    decoys = {(row.attack, row.m): row for row in study[1]}
    for m in STUDY.dimensions:
        database, meeting = decoys["database", m], decoys["intersection", m]
        assert database.exact == 1 and database.claimed == 100 * m // 2 and database.wrong == 0
        assert meeting.wrong == 0 and meeting.largest_error < 1e-3 and 0.3 < meeting.exact < 1
        rows = by_name(study[0], m)
        assert rows["intersection"].undecided == round(100 * (1 - meeting.exact))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows(door: dict[str, Features], study: tuple[list[EstimateRow], list[DecoyRow]]) -> None:
    images = tuple(door.values())[:4]
    small, done = replace(STUDY, dimensions=(2,)), []
    again = descriptor_attacks(
        images[:2],
        words=WORDS,
        public=PUBLIC,
        auxiliary=images[2:],
        study=small,
        progress=lambda *step: done.append(step),
    )
    assert again[0] == [row for row in study[0] if row.m == 2] and done == [(1, 1)]
    other = replace(small, seed=1, away=AwayOptions(neighbors=50, kept=1))
    assert descriptor_attacks(images[:2], words=WORDS, public=PUBLIC, auxiliary=images[2:], study=other)[0] != again[0]


def test_the_nearest_entry_is_the_descriptor_behind_random_lifting_only(door: dict[str, Features]) -> None:
    """Planted: the database holds the attacked descriptors, each on its own subspace. Decoys of the same database hide them.

    Random subspaces of 4 of 128 dimensions come near no other descriptor ([D21], Fig. 3). Behind adversarial lifting all five
    points of a subspace lie on it, of which rounding names the nearest.
    """
    images = list(door.values())[:3]
    own = np.concatenate([unit_length(image.descriptors.astype(np.float64)) for image in images]).astype(np.float32)
    database = Points(vectors=np.concatenate([own, WORDS.vectors.astype(np.float32)]), space=BOOK.raw_space)
    study = replace(STUDY, dimensions=(4,), oracle=(1,))
    shares = {}
    for strategy in ("random", "adversarial"):
        rows, decoys = descriptor_attacks(
            images[:2], words=WORDS, public=database, auxiliary=images[2:], study=replace(study, strategy=strategy)
        )
        shares[strategy] = by_name(rows, 4)["nearest"].identified
        assert bool(decoys) == (strategy == "adversarial")
    assert shares["random"] > 0.95 and shares["adversarial"] < 0.5


def test_a_row_by_hand() -> None:
    """Three features by hand: one exact, one 0.5 away and nearest to another feature's descriptor, one undecided."""
    everyone = np.array([[0.0, 0], [1, 0], [5, 5], [1.5, 0]])
    row = module._row("x", 4, np.array([[0.0, 0], [1.5, 0], [np.nan, 0]]), everyone[:3], everyone)
    assert (row.features, row.undecided, row.mean_distance) == (3, 1, 0.25)
    shares = (row.within_01, row.within_04, row.within_06, row.identified)
    assert shares == pytest.approx((1 / 3, 1 / 3, 2 / 3, 1 / 3))
    nothing = module._row("x", 4, np.full((3, 2), np.nan), everyone[:3], everyone)
    assert math.isnan(nothing.mean_distance) and nothing.undecided == 3 and nothing.identified == 0


def test_a_row_of_decoys_by_hand() -> None:
    """Four features by hand, with these decoys claimed: both; one of two; a right one and a wrong point; none."""
    words = WORDS.vectors.astype(np.float64)
    claimed = Lists(
        candidates=(words[[1, 0]] + 1e-4, words[[2]], np.stack([words[4], words[9]]), words[:0]),
        certified=np.array([True, True, True, False]),
    )
    row = module._decoy_row("x", 4, claimed, np.array([[0, 1], [2, 3], [4, 5], [6, 7]]), WORDS)
    assert (row.features, row.exact, row.claimed, row.wrong) == (4, 0.25, 5, 1)
    assert row.largest_error == pytest.approx(1e-4 * math.sqrt(128))


def test_wrong_studies_are_refused(door: dict[str, Features]) -> None:
    for wrong in (
        {"count": 0},
        {"per_image": 0},
        {"oracle": (0,)},
        {"dimensions": ()},
        {"dimensions": (1, 2)},
    ):
        with pytest.raises(RangeError):
            DistributionStudy(**wrong)
    images = list(door.values())[:2]
    with pytest.raises(InputError, match="give more"):
        descriptor_attacks(images, words=WORDS, public=PUBLIC, auxiliary=images, study=replace(STUDY, count=1000))


def test_the_curve_of_an_oracle_is_that_of_its_definition() -> None:
    """Oracle: [D21], supplement C, entry by entry with a projection by least squares. Laws: nearer with K, nearer projected."""
    truth, database = points(5, 16, "truth"), points(30, 16, "database")
    form = form_through(truth, 2, "an oracle's curve")
    expected = np.empty((5, 2, 30))
    for number, (start, directions, true) in enumerate(zip(form.origin, form.basis, truth, strict=True)):
        inside = start + (np.linalg.lstsq(directions.T, (database - start).T, rcond=None)[0].T @ directions)
        order = np.argsort(np.linalg.norm(database - inside, axis=1))
        for k in range(1, 31):
            picked = min(order[:k], key=lambda row: float(np.linalg.norm(database[row] - true)))
            expected[number, :, k - 1] = [np.linalg.norm(point[picked] - true) for point in (database, inside)]
    curve = oracle_curve(form, truth, Points(vectors=database.astype(np.float32), space=form.space))
    np.testing.assert_allclose(curve, expected.mean(axis=0), atol=1e-5)
    assert (np.diff(curve[0]) <= 0).all() and (curve[1] < curve[0]).all()

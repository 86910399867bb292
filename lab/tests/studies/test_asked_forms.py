"""Queries of the studies of answers leave as the product sends them, and maps hold what they are asked in."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

import veil
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Lines, Points, Subsets, Subspaces
from veil.places.pairs.images import LoadedImage
from veil.randomness import seeded
from veil_lab.studies.answers.asking import FORMS, AnswerStudyOptions, Asker, QueryForm
from veil_lab.studies.attacks.form_releases import FormPools
from worlds.decoy_photographs import photograph

DOWN = np.array([0.0, 0.6, 0.8])


def released(form: QueryForm, *, mapped: bool) -> LoadedImage:
    """A photograph of 60 features as a map holds it, or as a query leaves, with gravity known."""
    asker = Asker(FormPools.split(bundled_codebook(), bundled_decoys()), AnswerStudyOptions(form=form))
    setting = asker.form.mapped if mapped else asker.form.queries
    return asker._image(setting, photograph("a", 60), seeded("released"), DOWN)


def test_words_are_the_usual_protection() -> None:
    """Oracle: `veil.usual_protection`, field by field."""
    image, features = released("words", mapped=False), photograph("a", 60)
    usual = veil.usual_protection("localize", features, gravity=DOWN)
    assert isinstance(usual.descriptors, veil.HideInWords) and isinstance(image.form, Subsets)
    assert image.form.mechanism == usual.descriptors.mechanism and image.form.dictionary == usual.descriptors.book.digest
    assert FORMS["words"].max_features == usual.descriptors.features_sent
    assert image.gravity is not None and usual.gravity is not None and np.array_equal(image.gravity, usual.gravity)


def test_lines_hide_positions_and_have_gravity() -> None:
    """Oracle: the form's definition; subspaces with positions leave without gravity, as `usual_protection("map")` says."""
    image = released("lines", mapped=False)
    assert isinstance(image.positions, Lines) and isinstance(image.form, Subspaces) and image.gravity is None
    assert image.positions.gravity is not None and np.allclose(image.positions.gravity, DOWN)
    beside = released("subspaces", mapped=False)
    assert isinstance(beside.form, Subspaces) and not isinstance(beside.positions, Lines) and beside.gravity is None


@pytest.mark.parametrize("form", get_args(QueryForm))
def test_maps_hold_positions_and_words_ask_public_ones(form: QueryForm) -> None:
    """Oracle: forms that compare. Words are asked of raw maps, lines and subspaces of private ones."""
    image = released(form, mapped=True)
    assert not isinstance(image.positions, Lines) and image.gravity is None
    assert isinstance(image.form, Points if form in ("raw", "words") else Subspaces)

"""Queries in words of a facade that stands in the map twice: the copy's pose is not given, whichever images come first."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from veil.errors import RangeError
from veil.forms import Lines
from veil.geometry.camera import GUESS
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.places.poses import by_words
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_words import localize_words
from veil.places.poses.options import UprightOptions, WordOptions
from worlds.copied_places import COUNT, LEFT_TO_RIGHT, QUERY, WORLD, City
from worlds.word_worlds import dictionary_of, lines_of, with_down, words_of

SENT = ["keypoints", "keypoints with gravity", "lines"]
DOWN = np.array([0, 1.0, 0])


def answer_of(
    city: City, *, compared: int, sent: str = "keypoints", guessed: bool = False, max_seconds: float | None = None
) -> Localization | NoPose:
    """The answer to a query of the first place, from the ten images that it looks most like."""
    descriptors = np.concatenate([city.looks(0), city.looks(1)[LEFT_TO_RIGHT[city.alike :]]])
    known: Any = SimpleNamespace(descriptors=descriptors)
    dictionary = dictionary_of(known, others=1000)
    scene = with_down(city.scene, DOWN)
    form = words_of(WORLD.form(QUERY), dictionary, epsilon=12.0)
    few = UprightOptions(samples=20_000, kept=20, refined=10)
    options = WordOptions(retrieved=10, compared=compared, threads=1, min_iterations=500, max_seconds=max_seconds, upright=few)
    shown: Lines | np.ndarray = lines_of(WORLD, QUERY) if sent == "lines" else WORLD.keypoints[QUERY]
    camera, gravity = WORLD.camera, WORLD.poses[QUERY].rotation @ DOWN if sent == "keypoints with gravity" else None
    if guessed:
        params = *(1.2 * value for value in camera.params[: camera.focal_count]), *camera.params[camera.focal_count :]
        camera = replace(camera, params=params, focal=GUESS)
    return localize_words(camera, shown, form, scene, index_map(scene, dictionary), gravity=gravity, options=options)


def off(answer: Localization | NoPose) -> float:
    """Distance of a pose from the query's true one."""
    assert isinstance(answer, Localization), answer
    return float(np.linalg.norm(answer.cam_from_world.center - WORLD.poses[QUERY].center))


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("sent", SENT)
def test_a_copy_that_the_map_knows_better_is_refused(sent: str) -> None:
    """Planted: three images know half of the place. Broken twin: alone the pose is the copy's, 40 units off."""
    city = City(alike=COUNT, own_images=3, own_share=0.5)
    assert off(answer_of(city, compared=0, sent=sent)) == pytest.approx(40, abs=0.1)
    assert isinstance(answer_of(city, compared=10, sent=sent), NoPose)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("sent", SENT)
def test_images_of_elsewhere_that_look_more_alike_do_not_end_the_comparison(sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: ten images of elsewhere rank before those of the query's place. Broken twin: the first five end it."""
    city = City(alike=COUNT, own_images=3, own_share=0.5, strangers=10)

    def ranked(form: object, vocabulary: InvertedIndex, count: int) -> np.ndarray:
        kinds = [("copy", "strange", "own").index(name.split()[0]) for name in vocabulary.image_names]
        return np.argsort(kinds, kind="stable")

    monkeypatch.setattr(by_words, "most_similar", ranked)
    assert isinstance(answer_of(city, compared=5, sent=sent), NoPose)
    monkeypatch.setattr(by_words, "EMPTY", 1)
    assert off(answer_of(city, compared=5, sent=sent)) == pytest.approx(40, abs=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("sent", SENT)
def test_what_surrounds_a_place_tells_it_from_its_copy(sent: str) -> None:
    """Second method: the answer without the comparison, to the last bit, though the copy looks alike in two thirds."""
    city = City(alike=2 * COUNT // 3)
    alone, compared = (answer_of(city, compared=count, sent=sent) for count in (0, 10))
    assert off(compared) < 0.02
    assert isinstance(alone, Localization) and isinstance(compared, Localization)
    np.testing.assert_array_equal(alone.cam_from_world.translation, compared.cam_from_world.translation)


@pytest.mark.slow
def test_a_guessed_focal_length_is_compared_as_it_was_found() -> None:
    """Planted: a focal length that is guessed a fifth too long. The copy is refused; the place is not, and keeps its pose."""
    refused = answer_of(City(alike=COUNT, own_images=3, own_share=0.5), compared=10, guessed=True)
    assert isinstance(refused, NoPose) and "two p" in refused.reason
    alone, compared = (off(answer_of(City(alike=2 * COUNT // 3), compared=count, guessed=True)) for count in (0, 10))
    assert alone == compared < 0.2


@pytest.mark.slow
def test_a_comparison_without_time_gives_no_pose() -> None:
    """Planted: a copy in two thirds is to be compared. Without time for it the right pose is not given."""
    city = City(alike=2 * COUNT // 3)
    refused = answer_of(city, compared=10, max_seconds=1e-9)
    assert isinstance(refused, NoPose) and "takes too long" in refused.reason
    assert off(answer_of(city, compared=0, max_seconds=1e-9)) < 0.02


def test_a_number_of_images_below_zero_is_refused() -> None:
    with pytest.raises(RangeError, match="compared"):
        WordOptions(compared=-1)

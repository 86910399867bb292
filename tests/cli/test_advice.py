"""Advice of refusals fits the input at hand: its form, and what it lacks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from veil.cli import _parser, main
from veil.cli.device.asked_protection import require_consistent
from veil.cli.device.privatize import Privatize
from veil.errors import Remedy
from veil.files.features import write_features
from veil.files.photographs.gravity import write_gravity
from veil.forms import Form, Lines
from veil.geometry.gravity import Gravity
from veil.places.maps.images import MapImage, more_matches
from veil.places.maps.lines.problem import LineView, more_tracks
from worlds import features, generator, subspaces, world
from worlds.word_worlds import dictionary_of, words_of

IMAGES = {f"{number}.jpg": features(generator(f"noise {number}"), 120, name=f"noise {number}") for number in range(5)}


def run(*words: object) -> int:
    return main(list(map(str, words)))


@dataclass(frozen=True)
class Released:
    """Options of a release, what its refused map must and must not advise, and the release with the advice taken."""

    options: tuple[str, ...]
    advised: str
    not_advised: str
    taken: tuple[str, ...]


FORMS = {
    "subspaces": Released((), "release the photographs in one call", "epsilon|smaller m|first-octave|--lines", ()),
    "words": Released(
        ("--words", "bundled", "--epsilon", "8"),
        "veil codebook build public/ -o place.npz --word-count 16384.*larger --epsilon",
        "in one call|smaller m|first-octave|--lines",
        ("--words", "bundled", "--epsilon", "10"),
    ),
    "lines": Released(
        ("--lines", "--gravity", "g.csv"),
        r"release with positions \(without --lines\)",
        "epsilon|first-octave|in one call",
        (),
    ),
}


@pytest.fixture
def photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Raw features of five images that share nothing, and their gravity."""
    monkeypatch.chdir(tmp_path)
    write_features(tmp_path / "f.h5", IMAGES.items())
    write_gravity(tmp_path / "g.csv", {name: Gravity(direction=np.array([0.0, 1.0, 0.0])) for name in IMAGES})
    return tmp_path / "f.h5"


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_a_refused_map_advises_what_its_form_has(name: str, photographs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the options that a release of the form has. The advice is then taken, and the command accepts it."""
    form = FORMS[name]
    assert run("privatize", photographs, "-o", "up", "--for", "map", *form.options) == 0
    capsys.readouterr()
    assert run("map", "up", "-o", "map") == 1
    told = capsys.readouterr().err
    assert "photographs with more overlap" in told and re.search(form.advised, told), told
    assert not re.search(form.not_advised, told), told
    words = ["privatize", str(photographs), "-o", "again", "--for", "map", *form.taken]
    asked = Privatize.of(_parser(words).parse_args(words))
    require_consistent(asked, asked.purpose)


@pytest.mark.slow
def test_a_refused_map_of_raw_features_advises_nothing_of_releases(
    photographs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("map", photographs, "-o", "map") == 1
    told = capsys.readouterr().err
    assert "photographs with more overlap" in told and not re.search("epsilon|smaller m|first-octave|in one call", told)


def test_remedies_follow_the_form() -> None:
    """The table of forms and remedies, each form as a map holds it. Words without privacy have no larger epsilon."""
    place, random = world("advice", images=2, points=40), generator("advice")
    name = next(iter(place.poses))
    raw = place.form(name)
    dictionary = dictionary_of(place, others=200)

    def advised(form: Form) -> list[str]:
        image = MapImage(camera=place.camera, keypoints=place.keypoints[name], form=form)
        return [remedy.object for remedy in more_matches({name: image})[1:]]

    assert advised(raw) == []
    assert advised(subspaces(random, raw.vectors.astype(np.float64), 4, raw.space)) == ["HideInSubspaces.selection"]
    assert advised(words_of(raw, dictionary, epsilon=6.0)) == ["dictionary of the place", "HideInWords.epsilon"]
    assert advised(words_of(raw, dictionary, epsilon=np.inf)) == ["dictionary of the place"]


@pytest.mark.parametrize(("share", "more"), [(0.5, True), (0.9, False)])
def test_more_lines_along_gravity_are_advised_where_there_are_few(share: float, more: bool) -> None:
    place = world("advice of lines", images=4, points=200)
    normals = np.tile(np.array([1.0, 0.0, 0.0], dtype=np.float32), (100, 1))
    lines = Lines(
        coefficients=normals, aligned=np.arange(100) < 100 * share, gravity=np.array([0.0, 1.0, 0.0]), releasable=False
    )
    views = {name: LineView(camera=place.camera, lines=lines) for name in place.poses}
    assert (Remedy("raise", "HideInLines.aligned_share") in more_tracks(views)) == more

"""`veil evaluate upright`: rows against a hand count, false queries that are false, and the command on bundled photographs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.errors import InputError
from veil.places.poses.options import UprightOptions, WordOptions
from veil_lab.studies.localization import upright_localization
from veil_lab.studies.localization.upright_localization import (
    Kind,
    UprightSetting,
    UprightTrial,
    mirrored_features,
    tilted,
    upright_row,
)
from worlds import generator, unit
from worlds.documents import keys, section
from worlds.edges import door_scene
from worlds.material import photograph
from worlds.schemas import validate

SETTING = UprightSetting(features=1000, epsilon=3.0)


def trial(position: float | None, rotation: float | None, *, kind: Kind = "true", nfa: float | None = -50.0) -> UprightTrial:
    return UprightTrial(
        setting=SETTING,
        scene="place",
        query="q",
        kind=kind,
        accepted=position is not None,
        log10_nfa=nfa,
        position=position,
        rotation_deg=rotation,
        seconds=2.0,
    )


def test_a_row_counts_by_hand() -> None:
    trials = [
        trial(0.2, 1.0),
        trial(0.2, 3.0),  # turned too far
        trial(0.3, 1.0),  # too far away
        trial(9.0, 30.0),  # astray
        trial(None, None),
        trial(None, None, kind="foreign", nfa=12.0),
        trial(None, None, kind="mirrored", nfa=None),
        trial(1.0, None, kind="mirrored", nfa=-7.0),
    ]
    summary = upright_row(trials, "place", {"place": True}, {"place": 1.0})
    assert (summary.queries, summary.right, summary.accepted, summary.astray) == (5, 1, 4, 1)
    assert (summary.false_queries, summary.false_accepts, summary.least_false_log10_nfa) == (3, 1, -7.0)
    # Without a scale the extent decides: 1 % of 35 is more than 0.3.
    assert upright_row(trials, "place", {"place": False}, {"place": 35.0}).right == 2
    with pytest.raises(InputError, match="at least one query"):
        upright_row([], "place", {}, {})


def test_epsilons_of_the_image_are_those_of_the_accounting() -> None:
    """Golden: 1,000 features of two words each at epsilon 5, 4 and 3, delta 1e-6 (`veil budget plan` gives the same)."""
    epsilons = [UprightSetting(features=1000, epsilon=value).epsilon_image for value in (5.0, 4.0, 3.0)]
    np.testing.assert_allclose(epsilons, [539, 211, 81], atol=1.0)


def test_gravity_is_tilted_by_its_sigma() -> None:
    """Statistics bounded on both sides: |N(0, s)| has the mean s sqrt(2 / pi), and every direction is a unit vector."""
    down = unit(generator("down").normal(size=3))
    drawn = np.array([tilted(down, 0.5, f"case {index}") for index in range(2000)])
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, atol=1e-12)
    angles = np.degrees(np.arccos(np.clip(drawn @ down, -1, 1)))
    assert 0.37 < angles.mean() < 0.43
    assert np.linalg.norm(drawn.mean(axis=0) - down) < 1e-3
    np.testing.assert_array_equal(tilted(down, 0.0, "case"), down)


def test_a_mirrored_photograph_keeps_its_words_and_mirrors_its_places() -> None:
    features = photograph()
    twin = mirrored_features(features)
    np.testing.assert_array_equal(twin.descriptors, features.descriptors)
    np.testing.assert_allclose(twin.keypoints[:, 0] + features.keypoints[:, 0], features.camera.width_px, atol=1e-3)
    np.testing.assert_array_equal(mirrored_features(twin).keypoints[:, 1], features.keypoints[:, 1])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_command_localizes_the_door_and_refuses_its_mirror_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the bundled reference poses. A search of few samples that refines few poses is enough for them."""
    fewer = WordOptions(upright=UprightOptions(samples=60_000, kept=40, refined=10, compared=2))
    monkeypatch.setattr(upright_localization, "WordOptions", lambda: fewer)
    scene = door_scene(tmp_path)
    out = tmp_path / "upright.json"
    asked = (
        "--operating-points",
        "600,5,2",
        "--word-count",
        512,
        "--max-features",
        600,
        "--folds",
        2,
        "--workers",
        1,
        "--mirrored",
    )
    assert main(["evaluate", "upright", *map(str, (scene, *asked, "--nearest", 3, "--json", out))]) == 0
    written = json.loads(out.read_text())
    validate("evaluate-upright", written)
    (row,) = written["rows"]
    assert row["queries"] == 5 and row["right"] >= 4 and row["astray"] == 0
    # Each of the two or three maps is asked about all five photographs, mirrored; a portal is nearly its own mirror image.
    assert row["false_queries"] in (10, 15) and row["false_accepts"] == 0
    assert "right" in capsys.readouterr().out
    text = section("json.md", "veil evaluate upright")
    assert keys(written) <= set(re.findall(r'[`"]([a-z0-9_]+)[`"]', text))


@pytest.mark.parametrize("point", ["1000,5", "a,b,c", "1000;5;2"])
def test_a_point_that_is_none_is_refused(point: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "upright", str(tmp_path), "--operating-points", point])
    assert stop.value.code == 2 and "must be N,EPSILON,M" in capsys.readouterr().err

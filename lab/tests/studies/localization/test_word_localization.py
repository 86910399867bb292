"""Held-out queries in every form: rows against a hand count, and the whole command on bundled photographs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.errors import InputError, RangeError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil_lab.studies.localization.map_dictionaries import dictionary_of
from veil_lab.studies.localization.retrieval import joint_scene
from veil_lab.studies.localization.word_localization_settings import (
    METRIC,
    LocalizationRow,
    Setting,
    Tables,
    Trial,
    localization_row,
    settings_of_forms,
)
from worlds import world
from worlds.documents import section
from worlds.edges import door_scene
from worlds.schemas import validate
from worlds.word_worlds import scene_of

WORDS = Setting(form="words", matching="vocabulary", words=100, epsilon=10.0, m=2, dictionary="reference", iterations=10)


def trial(position: float | None, rotation: float | None, *, true: bool = True, accepted: bool = True) -> Trial:
    return Trial(
        setting=WORDS,
        scene="place",
        query="q",
        true=true,
        accepted=accepted,
        inliers=20,
        position=position,
        rotation_deg=rotation,
        upload_bytes=100,
        epsilon_image=5.0,
    )


def row(trials: list[Trial], extent: float = 1.0) -> LocalizationRow:
    return localization_row(WORDS, trials, descriptor="sift", features=20.0, thresholds=METRIC, extent=extent)


def test_a_row_counts_by_hand() -> None:
    trials = [
        trial(0.2, 1.0),
        trial(0.2, 3.0),  # too far turned for the first threshold
        trial(4.0, 9.0),
        trial(None, None, accepted=False),
        trial(None, None, true=False),
        trial(None, None, true=False, accepted=False),
    ]
    summary = row(trials)
    assert dict(summary.localized) == {"0.25m, 2deg": 0.25, "0.5m, 5deg": 0.5, "5m, 10deg": 0.75}
    assert (summary.queries, summary.accepted, summary.false_queries, summary.false_accepts) == (4, 0.75, 2, 1)
    assert summary.median_position == pytest.approx(0.2) and summary.median_rotation_deg == 3.0
    # The extent scales positions, and positions only.
    wide = row(trials, extent=20.0)
    assert dict(wide.localized) == {"0.25m, 2deg": 0.25, "0.5m, 5deg": 0.5, "5m, 10deg": 0.75}
    far = [trial(4.0, 1.0)]
    assert row(far, extent=20.0).localized["0.25m, 2deg"] == 1.0
    with pytest.raises(InputError, match="at least one held-out query"):
        row([trial(None, None, true=False)])


def test_settings_vary_one_thing_at_a_time() -> None:
    settings = Tables(words=(64, 128), epsilons=(8.0,), sizes=(1,), default=(128, 10.0, 2), elsewhere=("bundled",)).settings()
    assert len(settings) == len(set(settings))
    spoken = [item for item in settings if item.uses_words and not item.hides_positions and item.epsilon != math.inf]
    for item in spoken:
        changed = (item.words != 128) + (item.epsilon != 10.0) + (item.m != 2)
        changed += (item.matching != "vocabulary") + (item.dictionary != "reference") * 1 + (item.iterations != 100_000)
        assert changed <= 2  # a baseline in a varied K, or another dictionary, which has a K of its own
    assert {item.form for item in settings} == {"raw", "subspaces", "lines", "words", "words+lines"}


def test_descriptors_are_compared_once_in_each_form() -> None:
    settings = settings_of_forms(words=64, epsilon=10.0, m=2, dictionary="book.npz", iterations=10)
    assert sorted(item.form for item in settings) == ["lines", "raw", "subspaces", "words", "words+lines"]
    spoken = {(item.words, item.epsilon, item.m, item.dictionary) for item in settings if item.uses_words}
    assert spoken == {(64, 10.0, 2, "book.npz")}


@pytest.mark.slow
def test_a_dictionary_is_refused_where_it_would_be_the_descriptors() -> None:
    with lund_door() as example:
        features = extract_sift(read_picture(example.folder / "DSC_0005.jpg"), SiftOptions(max_features=100))
    assert len(dictionary_of([features], 20, source="a map")) == 20
    with pytest.raises(RangeError, match="a map: 100 descriptors cannot give 51 words"):
        dictionary_of([features], 51, source="a map")


def test_joint_scenes_keep_their_points_apart() -> None:
    one, two = (scene_of(world(name)) for name in ("joint one", "joint two"))
    both = joint_scene({"a": one, "b": two})
    assert len(both.points) == len(one.points) + len(two.points)
    name, image = next(iter(two.images.items()))
    joint = both.images[f"b/{name}"]
    np.testing.assert_array_equal(both.points[joint.point_rows], two.points[image.point_rows])


def keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return {key for key in value if "deg" not in key or key.endswith("_deg")} | {
            key for name, item in value.items() if name != "localized" for key in keys(item)
        }
    return {key for item in value for key in keys(item)} if isinstance(value, list) else set()


@pytest.mark.slow
def test_the_command_on_bundled_photographs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the bundled reference poses. An infinite epsilon and a large one find the door, epsilon 0 finds nothing."""
    scene = door_scene(tmp_path)
    small = (
        "--word-count",
        512,
        1_000_000,
        "--epsilon",
        0,
        12,
        "--m",
        2,
        "--default",
        "512,12,2",
        "--word-samples",
        1000,
        "--folds",
        2,
    )
    fast = ("--max-features", 400, "--retrieval-words", 512_000, "--false", 0, "--workers", 1, "--elsewhere", "bundled")
    files = ("--json", tmp_path / "w.json", "--figure", tmp_path / "w.png")
    assert main(["evaluate", "localization", *map(str, (scene, *small, *fast, *files))]) == 0
    written = json.loads((tmp_path / "w.json").read_text())
    validate("evaluate-localization", written)
    by = {(item["form"], item["epsilon"], item["matching"], item["iterations"]): item for item in written["rows"]}
    strict = "1%, 2deg"
    assert by["raw", None, "distance", None]["localized"][strict] == 1.0
    assert by["words", 12.0, "vocabulary", 1000]["localized"][strict] >= 0.8
    assert by["words", 0.0, "vocabulary", 1000]["accepted"] == 0.0
    assert by["words+lines", 0.0, "vocabulary", 1000]["accepted"] == 0.0
    assert by["words+lines", 12.0, "vocabulary", 1000]["localized"][strict] >= 0.5
    assert by["words", 12.0, "vocabulary", 1000]["epsilon_image"] > 1000
    assert all(item["recall_at_10"] == 1.0 for item in written["retrieval"])  # there are fewer photographs than ten
    assert (tmp_path / "w.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "door: 5 queries, 0 of other places, for each setting" in printed and "raw descriptors" in printed
    assert "door: without K = 1000000: the smallest map is enough for" in printed
    assert ", not 512000: the maps have too few descriptors" in printed
    assert {item["words"] for item in written["rows"] if item["dictionary"] == "reference"} == {512}
    text = section("json.md", "veil evaluate localization")
    assert keys(written) <= set(re.findall(r'[`"]([a-z0-9_]+)[`"]', text))


@pytest.mark.slow
def test_a_default_that_no_map_can_give_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = door_scene(tmp_path)
    asked = ("--default", "1000000,12,2", "--max-features", 300, "--folds", 2, "--workers", 1, "--forms", "words")
    assert main(["evaluate", "localization", *map(str, (scene, *asked))]) == 1
    assert "not for --default 1000000; ask for fewer, or for more --max-features" in capsys.readouterr().err


@pytest.mark.parametrize("point", ["4096,10", "a,b,c", "4096;10;2"])
def test_a_default_that_is_no_point_is_refused(point: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "localization", str(tmp_path), "--default", point])
    assert stop.value.code == 2 and "must be K,EPSILON,M" in capsys.readouterr().err


def test_forms_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure of words needs words: said before any photograph is read."""
    run = ["evaluate", "localization", str(tmp_path / "missing"), "--forms", "raw", "subspaces"]
    assert main([*run, "--figure", str(tmp_path / "f.png")]) == 1
    assert "add words to --forms" in capsys.readouterr().err
    assert main(run) == 1
    assert "add words" not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*run, "telepathy"])

"""Maps and localization by lifting: rows against sums by hand, and the whole command on bundled photographs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from veil.cli import main
from veil.errors import RangeError
from veil.mechanisms.profile import HARDENED_M, Profile
from veil_lab.studies.localization.word_localization_settings import LocalizationRow, Setting
from veil_lab.studies.mapping.by_lifting import LiftedMap, lifting_row, settings_of_liftings
from worlds import world
from worlds.edges import door_scene
from worlds.line_worlds import features_of
from worlds.schemas import validate

RAW = Setting(form="raw")


def mapped(registered: int, points: int, observations: int, px: float | None, *errors: float) -> LiftedMap:
    return LiftedMap(
        scene="place",
        setting=RAW,
        registered=registered,
        total=4,
        points=points,
        observations=observations,
        reprojection_px=px,
        errors=errors,
        turned_deg=tuple(0.0 for _ in errors),
        reason=None if registered else "no two photographs match",
    )


def asked(share: float, position: float | None, inliers: float) -> LocalizationRow:
    return LocalizationRow(
        scene="place",
        descriptor="sift",
        features=100.0,
        setting=RAW,
        queries=4,
        localized={"near": share, "far": 1.0},
        accepted=1.0,
        median_position=position,
        median_rotation_deg=position,
        median_inliers=inliers,
        false_queries=0,
        false_accepts=0,
        upload_bytes=1.0,
        epsilon_image=None,
    )


def test_a_row_sums_scenes_up_by_hand() -> None:
    maps = [mapped(3, 100, 400, 0.2, 0.01, 0.02, 0.09), mapped(0, 0, 0, None)]
    row = lifting_row("all", maps, [asked(0.5, 3.0, 40.0), asked(0.25, None, 20.0)], [10.0, 1.0])
    assert (row.registered, row.total, row.points) == (3, 8, 100)
    assert row.track_length == 4.0 and row.reprojection_px == 0.2
    assert row.position == (0.02, 0.09)
    assert (row.queries, row.localized, row.inliers) == (8, (3, 8), 30.0)
    assert row.query_position is not None and math.isclose(row.query_position, 0.3)  # of the scene with poses
    nothing = lifting_row("place", maps[1:], [asked(0.0, None, 0.0)], [1.0])
    assert nothing.track_length is nothing.reprojection_px is nothing.position is nothing.query_position is None


def test_liftings_are_the_default_at_another_m_and_those_of_the_paper() -> None:
    features = next(iter(features_of(world("by lifting"), "by lifting").values()))
    raw, *settings = settings_of_liftings(["hardened", "random", "hardened"], [HARDENED_M, 8], features)
    assert raw == RAW and [(item.lifting, item.m) for item in settings] == [
        ("hardened", HARDENED_M),
        ("hardened", 8),
        ("random", HARDENED_M),
        ("random", 8),
    ]
    assert settings[0].profile == Profile.hardened(quantized=features.is_quantized)
    assert settings[3].profile == Profile.paper(8, "random")
    with pytest.raises(RangeError, match="hybrid lifting needs m >= 2"):
        settings_of_liftings(["sub-hybrid"], [1], features)


@pytest.mark.slow
def test_maps_and_queries_are_told_by_lifting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: random planes through descriptors keep their neighbors ([D21], Sec. 4.2), so such maps and poses are as raw ones."""
    record = tmp_path / "lifted.json"
    words = ["evaluate", "localization", str(door_scene(tmp_path)), "--lifting", "random", "--m", "2", "--false", "0"]
    words += ["--folds", "2", "--max-features", "400", "--workers", "1", "--json", str(record)]
    assert main(words) == 0
    printed, content = capsys.readouterr(), json.loads(record.read_text())
    assert main([*words, "--figure", str(tmp_path / "f.png")]) == 1
    assert "leave them out" in capsys.readouterr().err
    validate("evaluate-localization", content)
    raw, random = content["maps"]
    assert (raw["lifting"], random["lifting"], random["m"]) == (None, "random", 2)
    assert raw["registered"] == random["registered"] == raw["total"]
    assert max(random["position_shares"]) < 0.02 and 0.8 < random["points"] / raw["points"] < 1.25
    assert [row["accepted"] for row in content["rows"]] == [1.0, 1.0]
    assert f"{raw['registered']} of {raw['total']}" in printed.out and "tight" in printed.out

"""Forged pictures: their sizes and places, cameras that see the same rays, and counts with their intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.extraction.picture import Picture
from veil.geometry.camera import as_colmap
from veil_lab.studies.localization.forged_answers import FORMS, ForgedAnswer, group_counts
from veil_lab.studies.localization.forged_pictures import (
    LAYOUTS,
    PLAIN,
    cropped,
    foliage,
    hidden_sides,
    poster,
    rearranged,
    repeated,
    scaled,
    under_sky,
)
from veil_lab.studies.localization.forged_queries import ForgedOptions, forged_queries, true_counterparts
from worlds import camera, features, generator

FORGED_KINDS = {
    *(f"poster {share}" for share in (0.15, 0.25, 0.4, 0.6)),
    *(f"poster of the place {share}" for share in (0.3, 0.5, 0.7)),
    *("screen", "screen of the place", "collage", "collage of the place", "tiles", "windows", "text", "foliage"),
    *("building under sky", "other place", "other place, cropped", "other place, blurred", "other place, dark"),
    *LAYOUTS,
}


def leaves(name: str, width: int = 640, height: int = 480) -> np.ndarray:
    """A picture with something to see in it."""
    return foliage(generator(name), width, height)


def picture(name: str, width: int, height: int) -> Picture:
    return Picture(gray=leaves(name, width, height), camera=camera(width, height), digest=generator(name).bytes(32))


def test_a_poster_hangs_on_a_plain_wall() -> None:
    canvas = poster(generator("poster"), leaves("poster"), 640, 480, 0.25)
    rows, columns = np.nonzero(canvas != PLAIN)
    assert canvas.shape == (480, 640)
    assert np.ptp(columns) + 1 <= 160 and np.ptp(rows) + 1 <= 120 and np.ptp(columns) > 150
    top = under_sky(generator("sky"), leaves("sky"), 640, 480, 0.3)[:300]
    assert (np.ptp(top, axis=1) == 0).all()


def test_tiles_repeat() -> None:
    """Oracle: the patch's side is the period, to the noise that is added."""
    canvas = repeated(generator("tiles"), leaves("tiles"), 640, 480, 64).astype(float)
    assert np.abs(canvas[:, 64:] - canvas[:, :-64]).mean() < 5 < np.abs(canvas[:, 32:] - canvas[:, :-32]).mean()


@pytest.mark.parametrize("how", ["cropped", "scaled"])
def test_a_part_or_a_copy_is_seen_along_the_same_rays(how: str) -> None:
    """Defining property: the same pixel of the photograph has the same ray before and after."""
    image = np.zeros((480, 640), dtype=np.uint8)
    image[240:244, 320:324] = 255
    if how == "cropped":
        part, seen_by = cropped(generator("part"), image, camera(), 0.6)
    else:
        part, seen_by = scaled(image, camera(), 0.5)
    assert part.shape == (seen_by.height_px, seen_by.width_px)
    center = np.argwhere(part > 128).mean(axis=0)[::-1] + 0.5
    rays = [
        np.asarray(as_colmap(one).cam_from_img(xy[None]))
        for one, xy in ((camera(), np.array([322.0, 242.0])), (seen_by, center))
    ]
    np.testing.assert_allclose(rays[0], rays[1], atol=2e-3)


def test_layouts_move_features_and_keep_what_they_show() -> None:
    item = features(generator("layouts"), 200)
    for name, layout in LAYOUTS.items():
        moved = rearranged(generator(name), item, layout)
        np.testing.assert_array_equal(moved.descriptors, item.descriptors)
        assert moved.keypoints.shape == (200, 2) and moved.keypoints.dtype == np.float32
        if name.startswith("square"):
            assert np.ptp(moved.keypoints, axis=0).max() <= float(name.split()[1])
    assert len(np.unique(rearranged(generator("p"), item, LAYOUTS["one point"]).keypoints, axis=0)) == 1


@pytest.mark.slow
def test_every_kind_is_asked_in_every_draw_and_twice_alike() -> None:
    """The kinds are those of the documentation; the same generator names give the same queries."""
    photographs = {name: picture(name, 320, 240) for name in ("a", "b")}
    options, others = ForgedOptions(draws=1, max_features=150), [picture("other", 320, 240)]
    asked = list(forged_queries("place", photographs, others, options))
    true = list(true_counterparts("place", photographs, ["a"], options))
    assert {item.kind for item in asked} <= FORGED_KINDS and len({item.kind for item in asked}) >= len(FORGED_KINDS) - 2
    assert {item.shows for item in asked} == {None} and {item.shows for item in true} == {"a"} and len(true) == 12
    assert all(len(item.features) <= 150 for item in asked + true)
    again = next(iter(forged_queries("place", photographs, others, options)))
    np.testing.assert_array_equal(again.features.keypoints, asked[0].features.keypoints)
    empty = hidden_sides(photographs["a"].gray, 0.6)
    assert (empty[:96] == 235).all() and np.ptp(empty[100:, 100:200]) > 0


def test_counts_are_of_each_group_and_exact() -> None:
    """Golden interval: none of 40 has the upper limit 1 - 0.025^(1/40) (Clopper and Pearson 1934)."""

    def one(index: int, true: bool, accepted: bool, turned: float | None) -> ForgedAnswer:
        return ForgedAnswer(
            place="p",
            kind="true" if true else "poster 0.4",
            name=str(index),
            true=true,
            form=FORMS[index % 2],
            accepted=accepted,
            matches=9,
            inliers=4,
            log10_nfa=0.0,
            position_error=None,
            rotation_error_deg=turned,
            reason=None,
        )

    answers = [one(index, False, False, None) for index in range(40)] + [
        one(index, True, True, 9.0 * index) for index in range(2)
    ]
    counts = {(item.true, item.group): item for item in group_counts(answers)}
    assert counts[False, "all"].total == 40 and counts[False, "all"].accepted == 0
    assert counts[False, "all"].high == pytest.approx(1 - 0.025 ** (1 / 40))
    assert counts[False, FORMS[0]].total == 20 and counts[False, "poster 0.4"].total == 40
    assert counts[True, "all"].accepted == 2 and counts[True, "all"].astray == 1
    groups = [item.group for item in group_counts(answers) if not item.true]
    assert groups == ["all", FORMS[0], FORMS[1], "p", "poster 0.4"]
    doubted = [replace(answers[0], inliers=20, log10_nfa=-8.0), replace(answers[1], inliers=20, log10_nfa=-5.0), *answers[2:]]
    assert group_counts(doubted)[0].doubted == 1 and counts[False, "all"].doubted == 0

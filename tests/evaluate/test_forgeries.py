"""What forgeries are made of: sizes, places, cameras that see the same rays, and counts with their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from veil.evaluate.adversaries import Asked, ForgedOptions, forged, true_ones
from veil.evaluate.forged_answers import FORMS, Answer, counted
from veil.evaluate.forgeries import (
    LAYOUTS,
    PLAIN,
    cropped,
    hidden_sides,
    poster,
    rearranged,
    repeated,
    scaled,
    under_sky,
)
from veil.extract.picture import Picture
from veil.geometry.camera import as_colmap
from worlds import camera, features, generator


def leaves(name: str) -> np.ndarray:
    """A picture of 640 x 480 with something to see in it."""
    from veil.evaluate.forgeries import foliage

    return foliage(generator(name), 640, 480)


def picture(name: str) -> Picture:
    return Picture(gray=leaves(name), camera=camera(), digest=generator(name).bytes(32))


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
    found = np.argwhere(part > 128).mean(axis=0)[::-1] + 0.5
    rays = [
        np.asarray(as_colmap(one).cam_from_img(xy[None]))
        for one, xy in ((camera(), np.array([322.0, 242.0])), (seen_by, found))
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


def test_every_kind_is_asked_in_every_draw_and_twice_alike() -> None:
    photographs = {name: picture(name) for name in ("a", "b")}
    options = ForgedOptions(draws=1, max_features=150)

    def ask() -> list[Asked]:
        return [*forged("place", photographs, [picture("other")], options), *true_ones("place", photographs, ["a"], options)]

    asked, again = ask(), ask()
    assert len({item.kind for item in asked if item.shows is None}) == 20 + len(LAYOUTS)
    assert {item.shows for item in asked} == {None, "a"} and len([item for item in asked if item.shows]) == 12
    assert all(20 <= len(item.features) <= 150 for item in asked if item.kind not in ("other place, dark",))
    for first, second in zip(asked, again, strict=True):
        np.testing.assert_array_equal(first.features.keypoints, second.features.keypoints)
    empty = hidden_sides(photographs["a"].gray, 0.6)
    assert (empty[:192] == 235).all() and np.ptp(empty[200:, 200:400]) > 0


def test_counts_are_of_each_group_and_exact() -> None:
    """Golden interval: none of 40 has the upper limit 1 - 0.025^(1/40) (Clopper and Pearson 1934)."""

    def one(index: int, true: bool, accepted: bool, turned: float | None) -> Answer:
        return Answer(
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
    found = {(item.true, item.group): item for item in counted(answers)}
    assert found[False, "all"].total == 40 and found[False, "all"].accepted == 0
    assert found[False, "all"].high == pytest.approx(1 - 0.025 ** (1 / 40))
    assert found[False, FORMS[0]].total == 20 and found[False, "poster 0.4"].total == 40
    assert found[True, "all"].accepted == 2 and found[True, "all"].astray == 1

"""Which of a map's points others see, against counts by hand; what is degenerate, and what repeats something else."""

from __future__ import annotations

import numpy as np
import pytest

from veil.features import Features
from veil.forms import Points
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.matching.neighbors import Matches
from veil.mechanisms.profile import Profile
from veil.places.maps.contributions import (
    COMMON,
    Sighting,
    common_points,
    copied_share,
    degenerate,
    in_the_same_place,
    sightings,
)
from veil.scene import MappedImage, Scene
from veil.space import Space
from veil.wire import LineUpload, Upload
from worlds.releases import released, taken

CAMERA = Camera(model="SIMPLE_PINHOLE", width_px=640, height_px=480, params=(500.0, 320.0, 240.0))
SPACE = Space(descriptor="test", normalization="L2", dim=2)


def scene(seen: dict[str, list[int]], points: int) -> Scene:
    """A map of images that observe the points of these rows."""
    images = {}
    for name, rows in seen.items():
        form = Points(vectors=np.ones((len(rows), 2), dtype=np.float32), space=SPACE)
        images[name] = MappedImage(
            name=name,
            camera=CAMERA,
            cam_from_world=Rigid(rotation=np.eye(3), translation=np.zeros(3)),
            keypoints=np.zeros((len(rows), 2), dtype=np.float32),
            point_rows=np.array(rows, dtype=np.int64),
            form=form,
        )
    return Scene(images=images, points=np.zeros((points, 3)), mean_reprojection_error_px=0.5)


def test_points_are_confirmed_by_other_owners_alone() -> None:
    """By hand. Broken twin: counting images in place of owners, as whoever sends two copies confirms himself."""
    first = scene(
        {
            "a1": list(range(0, 40)),
            "a2": list(range(0, 40)),
            "b1": [*range(20, 36), 50, 51],
            "e1": [50, 51, 52],
            "e2": [52, 53],
        },
        60,
    )
    second = scene({"e3": [0, 1], "e4": [1, 2]}, 3)
    owners = {"a1": "a", "a2": "a", "b1": "b", "e1": "e", "e2": "e", "e3": "e", "e4": "e"}
    seen = sightings([first, second], owners)
    assert seen["a1"] == Sighting(model=1, observed=40, confirmed=16, others=1, own=1, alone=False)
    assert seen["b1"] == Sighting(model=1, observed=18, confirmed=18, others=2, own=0, alone=False)
    assert seen["e1"] == Sighting(model=1, observed=3, confirmed=2, others=0, own=0, alone=False)
    assert seen["e2"] == Sighting(model=1, observed=2, confirmed=0, others=0, own=0, alone=False)
    assert seen["e4"] == Sighting(model=2, observed=2, confirmed=0, others=0, own=0, alone=True)
    assert common_points([first, second], "a1", "b1") == 16 > COMMON and common_points([first, second], "a1", "e3") == 0
    lonely = sightings([first], dict.fromkeys(first.images, "a"))
    assert all(item.confirmed == 0 and not item.alone for item in lonely.values()), "one owner is nobody's suspect"
    imported = sightings([first], {"e1": "e", "e2": "e"})
    assert imported["e1"].confirmed == 2, "images without an owner are of whoever made the map"


def upload(features: Features, rows: int, *, lines: bool = False) -> Upload | LineUpload:
    message, _ = released(taken(features, np.arange(rows)), Profile.hardened(quantized=True), lines=lines)
    assert isinstance(message, Upload | LineUpload)
    return message


@pytest.mark.slow
def test_degenerate_messages_are_named_and_photographs_are_not(door: dict[str, Features]) -> None:
    """Planted truth: one place, a line with and without noise, one descriptor, one line; and real photographs of any number."""
    for features in door.values():
        for rows in (4, 30, 300):
            sent = upload(features, rows)
            assert isinstance(sent, Upload) and degenerate(sent.form, sent.keypoints, sent.camera) == []
    features = next(iter(door.values()))
    message, lined = upload(features, 60), upload(features, 60, lines=True)
    assert isinstance(message, Upload) and isinstance(lined, LineUpload)
    form, camera, places = message.form, message.camera, message.keypoints
    flat = np.stack([np.linspace(9, 900, len(form)), np.full(len(form), 300.0)], axis=1).astype(np.float32)
    slanted = flat + np.linspace(0, 100, len(form), dtype=np.float32)[:, None] * np.array([[0, 1]], dtype=np.float32)
    assert any("pixels" in told for told in degenerate(form, np.full_like(places, 99.5), camera))
    for positions in (flat, slanted, flat + np.random.default_rng(0).normal(0, 2, flat.shape).astype(np.float32)):
        assert any("along a line" in told for told in degenerate(form, positions, camera))
    same = form.take(np.zeros(len(form), dtype=np.int64))
    assert degenerate(same, places, camera) == [f"only 1 of its {len(form)} descriptors are different"]
    assert degenerate(lined.form, lined.lines, camera) == []
    one = lined.lines.take(np.zeros(len(lined.lines), dtype=np.int64))
    assert degenerate(lined.form, one, camera) == [f"its {len(one)} lines are 1 different ones"]


def test_copies_are_told_from_other_releases_of_the_same_features(door: dict[str, Features]) -> None:
    """A part of a message is a copy of it, also in another order; other draws for the same features share a few at most."""
    features = next(iter(door.values()))
    message, words = upload(features, 200), released(taken(features, np.arange(100)), None)[0]
    other = upload(list(door.values())[1], 200)
    form = message.form
    backwards = form.take(np.arange(len(form))[::-1].copy())
    assert copied_share(form, form) == copied_share(form, backwards) == 1.0
    assert copied_share(form.take(np.arange(30)), form) == 1.0
    assert copied_share(form, other.form) < 0.05
    assert copied_share(words.form, words.form) > 0.9 and copied_share(words.form, form) == 0.0


def test_matches_in_the_same_place_are_counted() -> None:
    """By hand: the limit is 2 px for a diagonal of 800."""
    left = np.array([[10, 10], [100, 100], [300, 300]], dtype=np.float32)
    right = np.array([[11, 10], [103, 100], [300, 301.9]], dtype=np.float32)
    matches = Matches(indices=np.array([[0, 0], [1, 1], [2, 2]]), distances=np.zeros(3), ratios=np.zeros(3))
    assert in_the_same_place(matches, left, right, CAMERA) == 2

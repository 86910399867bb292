"""The simulated city: truth is planted, images do not depend on each other, copies are copies, gravity errs as it says."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture, read_rgb
from veil_lab.city import images as city_images
from veil_lab.city.images import City, CityImage, CityOptions, mirrored, shared_landmarks
from veil_lab.city.looks import MIRRORED, NEGATIVE, Looks, looks_of, quantized, tile_keypoints
from veil_lab.city.plan import PITCH_M, SIDE_M, block_facades, spiral, spiral_number
from veil_lab.city.tracks import PosedImage, TrackPairs, track_pairs
from veil_lab.city.views import ViewStatistics, repeatability, simulated_distances, statistics_of
from veil_lab.city.walks import gravity_reading, pose


@cache
def looks() -> Looks:
    """Tiles of two bundled photographs at half their size."""
    with lund_door() as example:
        return looks_of([read_rgb(path)[::2, ::2] for path in sorted(example.folder.glob("*.jpg"))[:2]])


@cache
def real() -> TrackPairs:
    """Tracks of four neighboring bundled photographs."""
    with lund_door() as example:
        items = []
        for path in sorted(example.folder.glob("*.jpg"))[2:6]:
            features = extract_sift(read_picture(path, camera=example.camera), SiftOptions(max_features=900))
            items.append(PosedImage(features=features, cam_from_world=example.poses[path.name]))
    return track_pairs(items)


@cache
def statistics() -> ViewStatistics:
    pairs = real()
    angles = np.linspace(0, 55, len(pairs.angle_deg))  # four photographs turn by few degrees; the tests need all bins
    return statistics_of(replace(pairs, angle_deg=angles), looks().descriptors, clutter=0.3)


def city(**options: float) -> City:
    return City(looks=looks(), statistics=statistics(), options=CityOptions(**{"features": 400, **options}))  # type: ignore[arg-type]


@cache
def shown() -> tuple[CityImage, ...]:
    """Images of several walks; from the last three, blocks hide landmarks behind a corner."""
    own = city()
    return tuple(own.image(number) for number in (0, 1, 21, 63, 138))


def test_the_spiral_visits_each_cell_once() -> None:
    """Enumeration: the first 9 x 9 numbers are the cells within 4 of the origin, neighbors touch, and the inverse inverts."""
    cells = [spiral(number) for number in range(81)]
    assert set(cells) == {(x, y) for x in range(-4, 5) for y in range(-4, 5)}
    assert all(abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for a, b in pairwise(cells))
    assert [spiral_number(*cell) for cell in cells] == list(range(81))


@pytest.mark.slow
def test_permuted_descriptors_are_those_of_the_changed_photograph() -> None:
    """Second method: SIFT of the mirrored photograph, and of its negative. The other permutation is the broken twin."""
    with lund_door() as example:
        rgb = np.ascontiguousarray(read_rgb(sorted(example.folder.glob("*.jpg"))[0])[::2, ::2])
    changed = {"as it is": rgb, "mirrored": np.ascontiguousarray(rgb[:, ::-1]), "negative": 255 - rgb}
    sift = {name: extract_sift(Picture.of(item, {}, None), SiftOptions(max_features=400)) for name, item in changed.items()}
    before = sift["as it is"]
    for name, right, wrong in (("mirrored", MIRRORED, NEGATIVE), ("negative", NEGATIVE, MIRRORED)):
        after = sift[name]
        places = before.keypoints * [-1, 1] + [rgb.shape[1], 0] if name == "mirrored" else before.keypoints
        gaps = np.linalg.norm(places[:, None] - after.keypoints[None], axis=2)
        best = []
        for order in (right, wrong):
            distance = np.linalg.norm(before.descriptors[:, None][..., order].astype(float) - after.descriptors[None], axis=2)
            nearest = np.where(gaps < 0.7, distance, np.inf).min(axis=1)
            assert np.isfinite(nearest).sum() > 100
            best.append(np.median(nearest[np.isfinite(nearest)]))
        assert best[0] < 60 < 200 < best[1]


@pytest.mark.slow
def test_keypoints_are_projections_of_their_landmarks_with_the_stated_noise() -> None:
    """Planted truth: the error has the spread of the law, on both sides, whatever the projection code of the city does."""
    errors, typical = [], []
    for image in shown():
        real_ones = image.landmarks >= 0
        rotation, translation = image.cam_from_world.rotation, image.cam_from_world.translation
        x, y, z = (rotation @ image.points[real_ones].T) + translation[:, None]
        assert (z > 0).all()
        errors.append(image.features.keypoints[real_ones] - np.stack([1300 * x / z + 800, 1300 * y / z + 600], axis=1))
        assert image.features.scales is not None
        typical.append(statistics().noise_px + statistics().noise_per_sigma * image.features.scales[real_ones])
    normalized = np.concatenate(errors) / np.concatenate(typical)[:, None]
    spread = np.median(np.abs(normalized)) / np.median(np.abs(statistics().noise))
    assert len(normalized) > 800
    assert 0.85 < spread < 1.15
    assert np.abs(np.concatenate(errors)).max() < 25


def through_blocks(own: City, image: CityImage) -> int:
    """Landmarks in view whose line of sight passes a block's inside, by walking along it in 400 steps."""
    points = own.points(image.seen[::5])
    center = image.cam_from_world.center
    steps = np.linspace(0, 1, 400)[:, None, None]
    at = (center + steps * (points - center))[..., :2]
    beside = np.abs(at - np.round(at / PITCH_M) * PITCH_M).max(axis=2)
    return int((beside < SIDE_M / 2 - 0.6).any(axis=0).sum())  # windows are set back by 0.25 m


@pytest.mark.slow
def test_what_a_block_hides_never_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: walking along the ray. Broken twin: a city that hides nothing."""
    assert sum(through_blocks(city(), image) for image in shown()) == 0
    assert all(set(image.landmarks) - {-1} <= set(image.seen) for image in shown())
    monkeypatch.setattr(city_images, "hidden_by", lambda center, points, cells: np.zeros(len(points), dtype=bool))
    glass = city()
    assert sum(through_blocks(glass, glass.image(image.number)) for image in shown()) > 50


@pytest.mark.slow
def test_an_image_does_not_depend_on_the_others() -> None:
    """Inverse order and a fresh city give equal bytes; another seed does not."""
    again = city()
    for image in reversed(shown()):
        same = again.image(image.number)
        for name in ("keypoints", "descriptors", "scales", "orientations"):
            assert np.array_equal(getattr(same.features, name), getattr(image.features, name))
        assert np.array_equal(same.landmarks, image.landmarks)
        assert np.array_equal(same.gravity.direction, image.gravity.direction)
        assert same.features.image_digest == image.features.image_digest
    other = city(seed=2).image(0)
    assert not np.array_equal(other.cam_from_world.rotation, shown()[0].cam_from_world.rotation)
    assert other.features.image_digest != shown()[0].features.image_digest
    assert not set(other.seen) & set(shown()[0].seen)


@pytest.mark.slow
def test_copied_facades_repeat_exactly_and_others_never() -> None:
    """Planted truth: facades of equal content have equal descriptors, keys and places up to the motion between them."""
    own = city(copied_share=1.0)
    facades = [facade for number in range(9) for facade in own.facades(spiral(number))]
    pairs = [(a, b) for a in facades for b in facades if a.identity < b.identity and a.content == b.content]
    assert len(pairs) > 20
    for one, two in pairs[:3]:
        a, b = own.on_facade(one), own.on_facade(two)
        assert np.array_equal(a.cores, b.cores) and np.array_equal(a.keys, b.keys) and np.array_equal(a.looks, b.looks)
        assert not set(a.ids) & set(b.ids)
        frames = [np.stack([facade.along, facade.normal, [0, 0, 1]]) for facade in (one, two)]
        places = [(c.points - f.corner) @ frame.T for c, f, frame in zip((a, b), (one, two), frames, strict=True)]
        assert np.allclose(places[0], places[1], atol=1e-9)
    unique = [facade.content for number in range(9) for facade in block_facades(1, *spiral(number), copied_share=0.0)]
    assert len(set(unique)) == len(unique)


def test_gravity_errs_by_the_stated_deviation() -> None:
    """Statistics with limits on both sides: both components of the error, at a level of 1e-6."""
    errors = []
    for number in range(1500):
        rotation = pose(1, number).rotation
        read = gravity_reading(1, number, rotation, 0.5)
        errors.append(np.degrees((rotation.T @ read)[:2]))  # the world's down has no horizontal part
    for component in np.array(errors).T:
        low, high = np.sqrt(stats.chi2.ppf([5e-7, 1 - 5e-7], len(component)) / len(component)) * 0.5
        assert 0.4 < low < np.sqrt((component**2).mean()) < high < 0.6
        assert abs(component.mean()) < 5 * 0.5 / np.sqrt(len(component))
    exact = gravity_reading(1, 0, pose(1, 0).rotation, 0.0)
    assert np.allclose(pose(1, 0).rotation.T @ exact, [0, 0, -1])


@pytest.mark.slow
def test_a_mirrored_image_is_no_image_of_the_city() -> None:
    """Inverse pair: twice mirrored is the image itself, and no landmark is claimed."""
    image = shown()[0]
    once, twice = mirrored(image), mirrored(mirrored(image))
    assert (once.landmarks == -1).all() and np.isnan(once.points).all()
    assert not np.array_equal(once.features.descriptors, image.features.descriptors)
    assert np.array_equal(twice.features.descriptors, image.features.descriptors)
    assert np.allclose(twice.features.keypoints, image.features.keypoints, atol=1e-3)
    assert np.allclose(twice.gravity.direction, image.gravity.direction)


def test_shared_landmarks_are_counted_once() -> None:
    """Enumeration by sets; -1 is no landmark, and two features of one landmark count once."""
    random = np.random.default_rng(1)
    landmarks = [random.integers(-1, 12, size=size) for size in (20, 15, 1, 9)]
    shared = shared_landmarks(landmarks).toarray()
    for i, one in enumerate(landmarks):
        for j, two in enumerate(landmarks):
            assert shared[i, j] == (0 if i == j else len((set(one) & set(two)) - {-1}))


def test_repeatability_is_that_of_two_normal_variables() -> None:
    """Second method: scipy's bivariate normal distribution."""
    for share in (0.2, 0.4):
        threshold = stats.norm.isf(share)
        for rho in (0.0, 0.3, 0.8):
            both = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf(np.array([-threshold, -threshold]))
            assert repeatability(np.array([rho]), share)[0] == pytest.approx(both / share, abs=2e-3)


@pytest.mark.slow
def test_simulated_descriptors_differ_as_much_as_real_ones() -> None:
    """Statistics on both sides: the quartiles of distances of near views, real and simulated, differ by less than a tenth."""
    pairs = real()
    angle = np.linspace(0, 55, len(pairs.angle_deg))[pairs.is_repeated]
    near = (angle < 12) & (np.abs(pairs.octaves[pairs.is_repeated]) < 0.3)
    made, _ = simulated_distances(
        statistics(), angle[near], pairs.octaves[pairs.is_repeated][near], looks().descriptors, np.random.default_rng(5)
    )
    for share in (25, 50, 75):
        assert np.percentile(made, share) == pytest.approx(np.percentile(pairs.distance[near], share), rel=0.1)


@pytest.mark.slow
def test_tiles_are_real_first_and_mixed_later() -> None:
    """Planted truth: each kind comes once as it is; later tiles hold the left cells of one kind; all are SIFT of length 512."""
    kinds = looks().kinds
    first = [tile_keypoints(looks(), 7, tile).descriptors for tile in range(kinds)]
    assert len({item.tobytes() for item in first}) == kinds
    mixed = tile_keypoints(looks(), 7, kinds + 3).descriptors
    assert mixed.shape == first[3].shape and not np.array_equal(mixed, first[3])
    lengths = np.linalg.norm(np.concatenate([*first, mixed]).astype(float), axis=1)
    assert (np.abs(lengths - 512) < 40).all()
    assert np.array_equal(quantized(first[0].astype(np.float32) * 3), quantized(first[0].astype(np.float32)))

"""Similarities of pieces come from the images that they share, and none comes of images that have nothing in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.similarity import Similarity
from veil.places.maps.clusters.joining import NoOverlap, Overlap, overlap
from veil.places.maps.clusters.pieces import Piece
from worlds.pieces import anywhere, part, ring, shaken

NAMES = [f"{k:03d}" for k in range(40)]


def two(rng: np.random.Generator, *, straight: bool = False, shared: int = 8) -> tuple[Piece, Piece, Similarity]:
    """Two pieces that share images 12 to 12 + shared, each in its own world, and the true similarity b_from_a."""
    whole = shaken(rng, ring(rng, 40, straight=straight), deg=0.1, shift=0.02)
    to_a, to_b = anywhere(rng), anywhere(rng)
    a, b = part(whole, NAMES[: 12 + shared]), part(whole, NAMES[12:35])
    return shaken(rng, a, deg=0.1, shift=0.02).moved(to_a), b.moved(to_b), to_b @ to_a.inverse()


def without_points(piece: Piece) -> Piece:
    """Piece whose images share no feature with anything."""
    return replace(piece, features={name: rows + 100_000 for name, rows in piece.features.items()})


def off(similarity: Similarity, truth: Similarity) -> tuple[float, float]:
    """Differences of turn in degrees and of scale as a share."""
    return rotation_angle_deg(similarity.rotation @ truth.rotation.T), abs(similarity.scale / truth.scale - 1)


@pytest.mark.parametrize("straight", [False, True])
@pytest.mark.parametrize("points", [True, False])
def test_the_planted_similarity_is_found(straight: bool, points: bool) -> None:
    """Oracle: planted similarities; cameras on a line, and pieces that share no points, leave nothing open."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        a, b, truth = two(rng, straight=straight)
        shared = overlap(a, b if points else without_points(b))
        assert isinstance(shared, Overlap)
        assert shared.agreeing >= 7
        turn, factor = off(shared.b_from_a, truth)
        assert turn < 0.5
        assert factor < 0.03


def test_misplaced_shared_images_are_outvoted() -> None:
    """Oracle: planted similarity; three of eight shared images stand elsewhere in a, together."""
    for seed in range(5):
        rng = np.random.default_rng(100 + seed)
        a, b, truth = two(rng)
        wrong = anywhere(rng)
        poses = dict(a.cam_from_world) | {name: wrong.moved(a.cam_from_world[name]) for name in NAMES[13:16]}
        shared = overlap(replace(a, cam_from_world=poses), b)
        assert isinstance(shared, Overlap)
        assert shared.agreeing == 5
        turn, factor = off(shared.b_from_a, truth)
        assert turn < 0.5
        assert factor < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("shared", [3, 6, 10])
def test_nothing_is_joined_by_accident(shared: int) -> None:
    """Oracle: pieces whose shared names are given to images at random share nothing true; not one of 20 is joined."""
    for seed in range(20):
        rng = np.random.default_rng([seed, shared])
        a, b, _ = two(rng, shared=shared)
        names = sorted(a.cam_from_world.keys() & b.cam_from_world.keys())
        others = rng.permutation([name for name in b.cam_from_world if name not in names])[: len(names)].tolist()
        poses = dict(b.cam_from_world) | {n: b.cam_from_world[o] for n, o in zip(names, others, strict=True)}
        features = dict(b.features) | {n: b.features[o] for n, o in zip(names, others, strict=True)}
        rows = dict(b.point_rows) | {n: b.point_rows[o] for n, o in zip(names, others, strict=True)}
        mixed = replace(b, cam_from_world=poses, features=features, point_rows=rows)
        assert isinstance(overlap(a, mixed), NoOverlap)


def test_images_at_one_place_are_no_evidence() -> None:
    """Oracle: the background: shared images that all stand at one pose agree with each other whichever they are."""
    rng = np.random.default_rng(5)
    a, b, _ = two(rng)
    pose_a, pose_b = a.cam_from_world["014"], b.cam_from_world["014"]
    shared = sorted(a.cam_from_world.keys() & b.cam_from_world.keys())
    one = replace(a, cam_from_world=dict(a.cam_from_world) | dict.fromkeys(shared, pose_a))
    other = replace(b, cam_from_world=dict(b.cam_from_world) | dict.fromkeys(shared, pose_b))
    assert isinstance(overlap(one, without_points(other)), NoOverlap)


def test_one_shared_image_is_not_enough() -> None:
    """Oracle: the statement."""
    rng = np.random.default_rng(6)
    whole = ring(rng, 40)
    shared = overlap(part(whole, NAMES[:10]), part(whole, NAMES[9:20]))
    assert isinstance(shared, NoOverlap)
    assert "share 1 image" in shared.reason


def test_similarities_compose_and_invert() -> None:
    """Oracle: inverse pair, points moved one after another, and a camera that sees the same after its world moved."""
    rng = np.random.default_rng(7)
    first, second = anywhere(rng), anywhere(rng)
    points = rng.normal(size=(5, 3))
    assert np.allclose((second @ first).apply(points), second.apply(first.apply(points)))
    assert np.allclose(first.inverse().apply(first.apply(points)), points)
    pose = ring(rng, 8).cam_from_world["003"]
    assert np.allclose(first.moved(pose).apply(first.apply(points)), first.scale * pose.apply(points))

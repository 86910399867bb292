"""Maps that are wrong contradict their own pairs; broken twins of right maps must be caught."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from veil.geometry.rigid import Rigid
from veil.places.maps.agreement import (
    MAX_TURN_DEG,
    MIN_CUT_MATCHES,
    confirmed,
    consistent_groups,
    explained_shares,
    groups_that_agree,
    turned_pairs,
    weakest_parts,
)
from veil.places.maps.check import (
    gravity_agreement,
    minimum_cut,
    position_uncertainty,
    rotation_disagreement,
    step_ratio,
    thinnest_cut,
)
from veil.places.maps.images import MapImage
from veil.places.maps.uncertainty import FORMAL, LEAST_UNCERTAINTY
from veil.places.maps.verification import VerifiedPair
from veil.scene import MapCheck, MappedImage, Scene
from worlds import World, generator, project, world
from worlds.word_worlds import scene_of


def planted(place: World) -> tuple[Scene, dict[str, MapImage], dict[tuple[str, str], VerifiedPair]]:
    """The right map of a world, its images and its right pairs."""
    scene = scene_of(place)
    images = {n: MapImage(camera=i.camera, keypoints=i.keypoints, form=i.form) for n, i in scene.images.items()}
    pairs = {}
    for a, b in combinations(sorted(place.poses), 2):
        _, rows, columns = np.intersect1d(place.visible[a], place.visible[b], return_indices=True)
        pairs[a, b] = VerifiedPair(inliers=np.stack([rows, columns], axis=1), log10_chance=-100.0)
    return scene, images, pairs


def moved(scene: Scene, poses: dict[str, Rigid]) -> Scene:
    """Scene with its poses replaced."""
    images = {n: replace(image, cam_from_world=poses.get(n, image.cam_from_world)) for n, image in scene.images.items()}
    return replace(scene, images=images)


def test_a_right_map_explains_its_pairs_and_wrong_ones_do_not() -> None:
    """Oracle: planted poses. Broken twins: one image turned up by 20 degrees; all cameras on one center."""
    scene, images, pairs = planted(world("agreement"))
    shares = explained_shares(scene, images, pairs)
    assert len(shares) == 15 and min(shares.values()) > 0.99

    angle = np.radians(20)
    turn = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
    pose = scene.images["03"].cam_from_world
    turned = moved(scene, {"03": Rigid(rotation=turn @ pose.rotation, translation=turn @ pose.translation)})
    shares = explained_shares(turned, images, pairs)
    assert all((share < 0.2) == ("03" in pair) for pair, share in shares.items())
    weights = {pair: len(pairs[pair].inliers) * (2 * share - 1) for pair, share in shares.items()}
    assert consistent_groups(turned.images, weights)[0] == frozenset(scene.images) - {"03"}

    center = scene.images["00"].cam_from_world.center
    collapsed = moved(
        scene,
        {
            name: Rigid(rotation=image.cam_from_world.rotation, translation=-image.cam_from_world.rotation @ center)
            for name, image in scene.images.items()
        },
    )
    assert max(explained_shares(collapsed, images, pairs).values()) < 0.5
    assert position_uncertainty(collapsed) == float("inf")


def test_a_map_that_turns_all_pairs_between_two_parts_is_two_maps() -> None:
    """Planted: all pairs of two halves turn by 15 degrees from a map that explains them. Nulls: by 5; two thirds of them."""
    scene, images, pairs = planted(world("agreement"))
    rotations = {name: image.cam_from_world.rotation for name, image in scene.images.items()}
    half = frozenset(sorted(scene.images)[:3])
    between = {pair for pair in pairs if len(half & {*pair}) == 1}

    def groups(degrees: float, turned: set[tuple[str, str]]) -> list[frozenset[str]]:
        own = {pair: rotations[pair[1]] @ rotations[pair[0]].T for pair in pairs}
        turns = {pair: turned_about_z(degrees) @ own[pair] if pair in turned else own[pair] for pair in pairs}
        entries = {pair: replace(entry, rotation=turns[pair]) for pair, entry in pairs.items()}
        found = turned_pairs(scene, entries)
        assert found == (turned if degrees > MAX_TURN_DEG else set())
        shares = explained_shares(scene, images, entries)
        assert min(shares.values()) > 0.99
        return groups_that_agree(scene.images, shares, entries, turned=found)

    assert set(groups(15.0, between)) == {half, frozenset(scene.images) - half}
    assert groups(5.0, between) == [frozenset(scene.images)]
    assert groups(15.0, {pair for pair in between if "00" not in pair}) == [frozenset(scene.images)]


def turned_about_z(degrees: float) -> np.ndarray:
    """Rotation about the optical axis."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def test_pairs_that_close_a_cycle_of_rotations_confirm_each_other() -> None:
    """Oracle: planted rotations; one pair is turned by 40 degrees, as a repeated facade would have it."""
    scene, _, pairs = planted(world("cycles", images=4))
    angle = np.radians(40)
    turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    for (a, b), pair in pairs.items():
        rotation = scene.images[b].cam_from_world.rotation @ scene.images[a].cam_from_world.rotation.T
        pairs[a, b] = replace(pair, rotation=turn @ rotation if (a, b) == ("00", "03") else rotation)
    assert confirmed(pairs, pairs) == {*pairs} - {("00", "03")}
    assert rotation_disagreement(scene, pairs) == pytest.approx(0, abs=1e-6)
    turned = moved(scene, {n: replace(scene.images[n].cam_from_world, rotation=turn) for n in ("01", "02")})
    angle_deg = rotation_disagreement(turned, pairs)
    assert angle_deg is not None and angle_deg > 10


def test_cycles_are_looked_for_in_time_that_grows_with_the_pairs() -> None:
    """A chain of 4,000 images, each paired with the next two: few triangles a pair, however many pairs there are."""
    same = np.eye(3)
    pair = VerifiedPair(inliers=np.zeros((9, 2), dtype=np.int64), log10_chance=-9.0, rotation=same)
    names = [f"{index:04}" for index in range(4000)]
    pairs = {(a, b): pair for step in (1, 2) for a, b in zip(names, names[step:], strict=False)}
    begun = time.process_time()
    assert confirmed(pairs, pairs) == {*pairs}
    assert time.process_time() - begun < 3


def test_two_halves_of_different_scale_are_told_apart() -> None:
    """A scale jump: half of the cameras, with points of its own, is a tenth of the size. Each half explains its own pairs."""
    scene, images, pairs = planted(world("jump"))
    small = {}
    for name in ("03", "04", "05"):
        pose = scene.images[name].cam_from_world
        small[name] = Rigid(rotation=pose.rotation, translation=0.1 * pose.translation)
    jumped = moved(replace(scene, points=np.concatenate([scene.points, 0.1 * scene.points])), small)
    rows = {n: replace(jumped.images[n], point_rows=jumped.images[n].point_rows + len(scene.points)) for n in small}
    jumped = replace(jumped, images={**jumped.images, **rows})
    shares = explained_shares(jumped, images, pairs)
    weights = {pair: len(pairs[pair].inliers) * (2 * share - 1) for pair, share in shares.items()}
    groups = consistent_groups(scene.images, weights)
    assert {groups[0], groups[1]} == {frozenset({"00", "01", "02"}), frozenset(small)}


def test_groups_are_those_of_a_scan_of_all_pairs() -> None:
    """Slow reference: join the two groups of the largest sum, among equals the pair of last names, until none is positive."""

    def scanned(names: list[str], weights: dict[tuple[str, str], float]) -> list[frozenset[str]]:
        groups = {name: frozenset([name]) for name in sorted(names)}
        while True:
            sums = [
                (sum(w for (a, b), w in weights.items() if {a in groups[i], b in groups[j]} == {True} or
                     {b in groups[i], a in groups[j]} == {True}), i, j)
                for i in groups for j in groups if i < j
            ]  # fmt: skip
            best = max(sums, default=(0, "", ""))
            if best[0] <= 0:
                return sorted(groups.values(), key=lambda group: (-len(group), sorted(group)))
            groups[best[1]] |= groups.pop(best[2])

    random = generator("groups")
    for count in [0, 1, 2, *[7] * 40]:
        names = [f"{k}" for k in range(count)]
        weights = {(a, b): float(random.integers(-3, 4)) for a in names for b in names if a < b and random.random() < 0.7}
        assert consistent_groups(names, weights) == scanned(names, weights)


def test_the_weakest_parts_are_those_of_the_least_cuts_by_enumeration() -> None:
    """Slow reference: of the cuts of fewest explained matches between each contradicting pair, that of the smallest share."""
    random = generator("weakest parts")
    split = 0
    for _ in range(60):
        names = [f"{k}" for k in range(6)]
        pairs = [pair for pair in combinations(names, 2) if random.random() < 0.8]
        matches = {pair: float(random.integers(20, 99)) for pair in pairs}
        explained = {pair: float(round(matches[pair] * random.choice([0.1, 0.9, 1.0]))) for pair in pairs}
        against = [pair for pair in pairs if explained[pair] < 0.5 * matches[pair]]

        def across(side: frozenset[str], weights: dict[tuple[str, str], float]) -> float:
            return sum(weight for (a, b), weight in weights.items() if (a in side) != (b in side))

        sides = [frozenset(side) for size in range(1, 6) for side in combinations(names, size)]
        found = weakest_parts(names, explained, matches, against)
        least = {
            pair: min(across(side, explained) for side in sides if pair[0] in side and pair[1] not in side) for pair in against
        }
        if len(found) == 2:
            split += 1
            share = across(found[0], explained) / across(found[0], matches)
            assert share < MIN_CUT_MATCHES and min(map(len, found)) >= 2 and found[0] | found[1] == set(names)
            parted = [pair for pair in against if (pair[0] in found[0]) != (pair[1] in found[0])]
            assert any(across(found[0], explained) == least[pair] for pair in parted)
        else:
            assert found == [frozenset(names)]
            for pair in against:  # every least cut has a single image on a side, or is explained well enough
                cuts = [s for s in sides if pair[0] in s and pair[1] not in s and across(s, explained) == least[pair]]
                assert any(len(s) in (1, 5) or across(s, explained) >= MIN_CUT_MATCHES * across(s, matches) for s in cuts)
    assert split >= 10


def test_false_pairs_do_not_hold_two_parts_together_against_the_true_ones() -> None:
    """Two halves that a repeated structure joins wrongly: the true pairs between them are fewer, and contradict.

    Broken twin: as many false matches that the map explains, and no true ones that contradict it, are one place.
    """
    scene, _, pairs = planted(world("repeated", images=8))
    names, half = sorted(scene.images), frozenset(sorted(scene.images)[:4])
    pairs = {
        (a, b): replace(
            pair,
            inliers=np.repeat(pair.inliers[:1], 300 if (a in half) == (b in half) else 40, axis=0),
            rotation=scene.images[b].cam_from_world.rotation @ scene.images[a].cam_from_world.rotation.T,
        )
        for (a, b), pair in pairs.items()
    }
    between = [pair for pair in pairs if (pair[0] in half) != (pair[1] in half)]
    false = [("02", "05"), ("03", "04"), ("03", "05"), ("02", "04")]
    for pair in false:
        pairs[pair] = replace(pairs[pair], inliers=np.repeat(pairs[pair].inliers[:1], 150, axis=0), rotation=None)
    shares = {pair: 1.0 if pair in false or pair not in between else 0.0 for pair in pairs}
    weights = {pair: len(pairs[pair].inliers) * (2 * share - 1) for pair, share in shares.items()}
    assert sum(weights[pair] for pair in between) > 0  # so that groups by sums do not part the halves
    assert len(consistent_groups(names, weights)) == 1
    assert groups_that_agree(names, shares, pairs, turned=()) == [half, frozenset(names) - half]
    alone = {pair: share for pair, share in shares.items() if share}
    assert groups_that_agree(names, alone, pairs, turned=()) == [frozenset(names)]
    held = {pair: 1e4 for pair in [("00", "07")] if shares.pop(pair) == 0}  # a pair of a map that is not judged anew
    assert groups_that_agree(names, shares, pairs, held, turned=()) == [frozenset(names)]
    assert groups_that_agree([], {}, {}, turned=()) == []


def test_the_least_cut_is_that_of_enumeration() -> None:
    random = generator("cuts")
    for nodes in (2, 3, 6):
        weights = np.triu(random.integers(0, 9, (nodes, nodes)).astype(float), 1)
        weights += weights.T
        least = min(
            weights[np.ix_(side, sorted(set(range(nodes)) - set(side)))].sum()
            for size in range(1, nodes)
            for side in combinations(range(nodes), size)
        )
        side = minimum_cut(weights)
        assert 0 < side.sum() < nodes
        assert weights[np.ix_(side, ~side)].sum() == least


def test_the_neck_counts_common_points() -> None:
    """Two halves of a map that share seven planted points."""
    scene, _, _ = planted(world("neck", images=4, points=100))
    images = {}
    for index, (name, image) in enumerate(scene.images.items()):
        half = (image.point_rows < 47) if index < 2 else (image.point_rows >= 40)
        rows = np.flatnonzero(half)
        images[name] = replace(
            image, keypoints=image.keypoints[rows], point_rows=image.point_rows[rows], form=image.form.take(rows)
        )
    cut = thinnest_cut(replace(scene, images=images))
    assert cut is not None and cut.points == 7
    assert set(cut.sides) == {frozenset({"00", "01"}), frozenset({"02", "03"})}


def test_uncertainty_is_what_noise_does_to_the_cameras() -> None:
    """Second method: the pseudoinverse of all of bundle adjustment by finite differences, and noise drawn through it."""
    place = world("uncertainty", images=4, points=30)
    scene, _, _ = planted(place)
    names = sorted(scene.images)
    poses = [scene.images[name].cam_from_world for name in names]

    def residuals(x: np.ndarray) -> np.ndarray:
        cameras, points = x[: 6 * len(names)].reshape(-1, 6), x[6 * len(names) :].reshape(-1, 3)
        parts = []
        for name, pose, step in zip(names, poses, cameras, strict=True):
            turn = _rotation(step[:3]) @ pose.rotation
            center = pose.center + step[3:]
            at = Rigid(rotation=turn, translation=-turn @ center)
            parts.append(project(at, (place.points + points)[scene.images[name].point_rows], place.camera).ravel())
        return np.concatenate(parts)

    size = 6 * len(names) + 3 * len(place.points)
    steps = 1e-5 * np.eye(size)
    jacobian = np.stack([(residuals(step) - residuals(-step)) / 2e-5 for step in steps], axis=1)
    spread = np.linalg.pinv(jacobian, rcond=1e-7)
    centers = np.array([pose.center for pose in poses])
    errors = []
    random = generator("noise")
    for _ in range(400):
        solved = (spread @ random.normal(0, 0.5, len(jacobian)))[: 6 * len(names)].reshape(-1, 6)[:, 3:]
        away = centers - centers.mean(axis=0)
        columns = [np.tile(axis, len(names)) for axis in np.eye(3)]
        columns += [np.cross(np.tile(axis, (len(names), 1)), away).ravel() for axis in np.eye(3)]
        similar = np.stack([*columns, away.ravel()], axis=1)
        left = solved.ravel() - similar @ np.linalg.lstsq(similar, solved.ravel(), rcond=None)[0]
        errors.append((left.reshape(-1, 3) ** 2).sum(axis=1))
    extent = np.linalg.norm(np.ptp(centers, axis=0))
    expected = np.median(np.sqrt(np.mean(errors, axis=0))) / extent
    uncertainty = position_uncertainty(scene)
    assert uncertainty is not None
    expected = math.hypot(FORMAL * expected, LEAST_UNCERTAINTY)
    assert uncertainty == pytest.approx(expected, rel=0.1)  # 400 draws know a deviation to about 3 %


def test_clusters_of_cameras_on_one_center_are_not_sure() -> None:
    """Two groups of cameras that share no point, each nearly on one center: their sizes are free, whatever rounding says."""
    random = generator("collapsed clusters")
    place = world("collapsed clusters")
    names, half = sorted(place.poses), len(place.points) // 2
    for gap in 10.0 ** np.arange(-8, -5, 0.25):
        images = {}
        for index, name in enumerate(names):
            center = [0.5 * (index % 2), 0.0, -4.0] + gap * random.normal(size=3)
            rotation = _rotation(random.normal(size=(1, 3)) * 0.05)[0]
            rows = np.arange(half) + half * (index % 2)
            images[name] = MappedImage(
                name=name,
                camera=place.camera,
                cam_from_world=Rigid(rotation=rotation, translation=-rotation @ center),
                keypoints=np.zeros((half, 2), dtype=np.float32),
                point_rows=rows,
                form=place.form(name).take(np.zeros(half, dtype=np.int64)),
            )
        scene = Scene(images=images, points=place.points, mean_reprojection_error_px=0.5)
        assert position_uncertainty(scene) == np.inf, gap


def _rotation(angles: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_rotvec(angles).as_matrix()


def test_gravity_and_steps_tell_a_bent_map() -> None:
    """Oracle: gravity of the planted poses; a third of the readings is turned over, one camera stands far away."""
    scene, _, _ = planted(world("gravity check"))
    down = np.array([0.0, 1.0, 0.0])
    readings = {name: image.cam_from_world.rotation @ down for name, image in scene.images.items()}
    assert gravity_agreement(scene, readings) == (pytest.approx(0, abs=1e-4), 1.0)
    readings |= {"01": -readings["01"], "02": -readings["02"]}
    _, agreeing = gravity_agreement(scene, readings)
    assert agreeing == pytest.approx(4 / 6)
    pose = scene.images["05"].cam_from_world
    ordinary = step_ratio(scene)
    far = step_ratio(
        moved(scene, {"05": Rigid(rotation=pose.rotation, translation=pose.translation + np.array([100.0, 0, 0]))})
    )
    assert ordinary is not None and far is not None
    assert ordinary < 3 < 20 < far


def test_doubts_name_their_number_and_the_record_comes_back() -> None:
    """Inverse pair: a record is read back as it was written. Doubts begin at each limit and not before it."""
    good = MapCheck(
        pairs=10, explained_pairs=7, contradicting_pairs=2, explained_matches=0.95, neck=40, uncertainty=0.001, step_ratio=2.0
    )
    assert good.doubts == []
    assert MapCheck.from_json(good.as_json()) == good
    for change, word in (
        ({"contradicting_pairs": 4}, "4 others"),
        ({"explained_matches": 0.69, "uncertainty": None}, "69%"),
        ({"rotation_deg": 10.1}, "10 degrees"),
        ({"neck": 19}, "19 common"),
        ({"explained_matches": 1.0, "uncertainty": 0.041}, "4.1%"),
        ({"explained_matches": 0.85, "uncertainty": 0.021}, "2.1%"),
        ({"uncertainty": float("inf")}, "not determined"),
        ({"gravity_agreeing": 0.4}, "60%"),
        ({"pairs": 0, "explained_pairs": 0}, "no pair"),
    ):
        doubts = replace(good, **change).doubts
        assert len(doubts) == 1 and word in doubts[0]
    for share, uncertainty in ((1.0, 0.039), (0.85, 0.019)):
        assert replace(good, explained_matches=share, uncertainty=uncertainty).doubts == []
    assert good.vague is None and replace(good, uncertainty=None).vague is None
    assert "known to 2.7% of their extent" in str(replace(good, uncertainty=0.027).vague)
    assert replace(good, focal_deviation=0.09).vague is None
    assert "focal lengths of this map are known to 29%" in str(replace(good, focal_deviation=0.29).vague)

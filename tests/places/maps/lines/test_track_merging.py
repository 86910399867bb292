"""Merging of tracks: those cut in two are joined again, observations that disagree leave, and chance joins little."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np

from veil.features import Features
from veil.mechanisms.lines import lift_to_lines
from veil.places.maps.lines.problem import LineView, MappingProblem, mapping_problem
from veil.places.maps.lines.reconstruction import Reconstruction, empty_reconstruction, merge_tracks, triangulated
from veil.places.maps.lines.tracks import MatchGraph, join, match_graph
from veil.randomness import seeded
from worlds import World, generator, world

HALVES = ("00", "01", "02"), ("03", "04", "05")
LIMIT_PX = 2.0


def features_at(place: World, key: str, keypoints: np.ndarray) -> Features:
    form = place.form(key)
    digest = key.encode().ljust(32, b"\0")
    return Features(keypoints=keypoints, descriptors=form.vectors, space=form.space, camera=place.camera, image_digest=digest)


def views_of(place: World, keypoints: dict[str, np.ndarray]) -> dict[str, LineView]:
    """Lines through the keypoints, half of them along gravity."""
    return {
        key: LineView(
            camera=place.camera,
            lines=lift_to_lines(
                features_at(place, key, keypoints[key]), gravity=pose.rotation @ [0, 1.0, 0], randomness=seeded("completion")
            ),
        )
        for key, pose in place.poses.items()
    }


def cut_graph(place: World, partner: np.ndarray) -> MatchGraph:
    """Point p is matched to itself, distinctively, within each half, and to `partner[p]`, ambiguously, across them."""
    where = {key: {int(p): row for row, p in enumerate(place.visible[key])} for key in place.poses}
    matches, ratios = {}, {}
    for a, b in combinations(sorted(place.poses), 2):
        same = any(a in half and b in half for half in HALVES)
        rows = [(row, where[b][q]) for p, row in where[a].items() if (q := p if same else int(partner[p])) in where[b]]
        matches[a, b] = np.array(rows, dtype=np.int64).reshape(-1, 2)
        ratios[a, b] = np.full(len(rows), 0.5 if same else 0.9)
    return match_graph({key: len(place.visible[key]) for key in place.poses}, matches, ratios=ratios)


def posed(place: World, views: dict[str, LineView], graph: MatchGraph) -> tuple[MappingProblem, Reconstruction]:
    """Mapping problem of the strong matches, and the reconstruction at the planted poses with the points that follow."""
    problem = mapping_problem(views, graph)
    reconstruction = empty_reconstruction(problem)
    for image, key in enumerate(graph.names):
        reconstruction = reconstruction.with_pose(image, place.poses[key])
    return problem, with_points(problem, reconstruction)


def with_points(problem: MappingProblem, reconstruction: Reconstruction) -> Reconstruction:
    return triangulated(problem, reconstruction, limit_px=LIMIT_PX, min_lines=3, min_angle_deg=1.5)


def points_of(place: World, problem: MappingProblem) -> np.ndarray:
    """The planted point of each observation."""
    tracks = problem.tracks
    return np.array([place.visible[tracks.names[i]][f] for i, f in zip(tracks.image, tracks.feature, strict=True)])


def lengths(problem: MappingProblem) -> np.ndarray:
    return np.diff(problem.tracks.starts)


def mixed(place: World, problem: MappingProblem) -> np.ndarray:
    """Which tracks hold observations of more than one planted point."""
    owner, starts = points_of(place, problem), problem.tracks.starts
    return np.array([len(np.unique(owner[a:b])) > 1 for a, b in pairwise(starts)])


def test_tracks_cut_in_two_are_joined_by_ambiguous_matches() -> None:
    """Planted truth: halves that both have a point become one track, and its point rests on more lines."""
    place = world("cut", images=6, points=300)
    graph = cut_graph(place, np.arange(300))
    before, reconstruction = posed(place, views_of(place, place.keypoints), graph)
    assert lengths(before).max() == 3 and not graph.strong.all()
    after, carried = merge_tracks(before, reconstruction, limit_px=LIMIT_PX)
    assert not mixed(place, after).any()
    everywhere = set.intersection(*(set(place.visible[key].tolist()) for key in place.poses))
    assert (lengths(after) == 6).sum() > 0.9 * len(everywhere) > 100
    final = with_points(after, carried)
    lines = np.bincount(after.tracks.track[final.observed], minlength=len(after.tracks))
    assert (lines == 6).sum() > 0.85 * len(everywhere)
    # Six lines determine a point better than three do.
    errors = []
    for problem, result in ((before, reconstruction), (after, final)):
        rows = np.flatnonzero(result.observed)
        gaps = result.points[problem.tracks.track[rows]] - place.points[points_of(place, problem)[rows]]
        errors.append(float(np.median(np.linalg.norm(gaps, axis=1))))
    assert errors[1] < 0.5 * errors[0] < 0.05


def test_wrong_ambiguous_matches_join_little() -> None:
    """Broken twin: joined without a check of the points, nearly every track across the halves mixes two of them."""
    place = world("wrong", images=6, points=300)
    graph = cut_graph(place, generator("partners").permutation(300))
    before, reconstruction = posed(place, views_of(place, place.keypoints), graph)
    after, _ = merge_tracks(before, reconstruction, limit_px=LIMIT_PX)
    # Nine matches, each in two directions, may agree by chance with the probability of docs/theory/lines.md, Eq. 10.
    probability = 1 - (1 - 2 * LIMIT_PX * np.hypot(640, 480) / (640 * 480)) ** 18
    # A pair of halves that joins is one track of the two that there were.
    assert 0.01 < mixed(place, after).mean() < probability / (2 - probability)
    naive = mapping_problem(dict(zip(graph.names, before.views, strict=True)), graph, join(graph, graph.first, graph.second))
    assert mixed(place, naive).mean() > 0.9


def test_observations_that_disagree_leave_and_may_join_their_own() -> None:
    """Planted truth: in one image two features trade places, matched distinctively as they were and weakly as they are."""
    place = world("swapped", images=6, points=240)
    last, row_of = "05", {int(p): row for row, p in enumerate(place.visible["05"])}
    pairs = [(p, p + 1) for p in range(0, 120, 2) if p in row_of and p + 1 in row_of]
    keypoints = dict(place.keypoints)
    keypoints[last] = place.keypoints[last].copy()
    swapped = {}
    for p, q in pairs:
        keypoints[last][[row_of[p], row_of[q]]] = place.keypoints[last][[row_of[q], row_of[p]]]
        swapped[row_of[p]], swapped[row_of[q]] = q, p
    where = {key: {int(p): row for row, p in enumerate(place.visible[key])} for key in place.poses}
    matches, ratios = {}, {}
    for a, b in combinations(sorted(place.poses), 2):
        rows = [(row, where[b][p]) for p, row in where[a].items() if p in where[b]]
        weak = [(where[a][p], row) for row, p in swapped.items() if b == last and p in where[a]]
        matches[a, b] = np.array([*rows, *weak], dtype=np.int64).reshape(-1, 2)
        ratios[a, b] = np.array([0.3] * len(rows) + [0.9] * len(weak))
    graph = match_graph({key: len(place.visible[key]) for key in place.poses}, matches, ratios=ratios)
    before, reconstruction = posed(place, views_of(place, keypoints), graph)
    after, _ = merge_tracks(before, reconstruction, limit_px=LIMIT_PX)
    assert len(swapped) > 80
    stayed = moved = 0
    tracks, owner = after.tracks, points_of(place, after)
    for row, point in swapped.items():
        for k in np.flatnonzero((tracks.image == 5) & (tracks.feature == row)):
            others = owner[(tracks.track == tracks.track[k]) & (tracks.image != 5)]
            stayed += int((others == place.visible[last][row]).all())
            moved += int((others == point).all())
    assert moved > 0.85 * len(swapped)
    assert stayed < 0.1 * len(swapped)


def test_what_is_complete_stays_as_it_is() -> None:
    """Without noise or wrong matches there is nothing to join or to let go: same tracks, same points."""
    place = world("complete", images=6, points=150, noise_px=0.0)
    keys = sorted(place.poses)
    where = {key: {int(p): row for row, p in enumerate(place.visible[key])} for key in keys}
    matches = {
        (a, b): np.array([(row, where[b][p]) for p, row in where[a].items() if p in where[b]], dtype=np.int64)
        for a, b in combinations(keys, 2)
    }
    graph = match_graph({key: len(place.visible[key]) for key in keys}, matches)
    before, reconstruction = posed(place, views_of(place, place.keypoints), graph)
    after, carried = merge_tracks(before, reconstruction, limit_px=LIMIT_PX)
    for name in ("track", "image", "feature"):
        np.testing.assert_array_equal(getattr(after.tracks, name), getattr(before.tracks, name))
    np.testing.assert_array_equal(carried.observed, reconstruction.observed)
    has = np.unique(before.tracks.track[reconstruction.observed])
    assert len(has) > 100
    np.testing.assert_array_equal(carried.points[has], reconstruction.points[has])
    np.testing.assert_array_equal(after.lines, before.lines)


def test_images_that_are_not_registered_change_nothing() -> None:
    """Planted truth: without poses of one half, no match across agrees, and its tracks stay what they were."""
    place = world("half", images=6, points=200)
    graph = cut_graph(place, np.arange(200))
    problem = mapping_problem(views_of(place, place.keypoints), graph)
    reconstruction = empty_reconstruction(problem)
    for image in range(3):
        reconstruction = reconstruction.with_pose(image, place.poses[graph.names[image]])
    after, _ = merge_tracks(problem, with_points(problem, reconstruction), limit_px=LIMIT_PX)
    assert lengths(after).max() == 3
    late = problem.tracks.image >= 3
    assert (after.tracks.image >= 3).sum() == late.sum()

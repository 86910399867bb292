"""Pieces are joined to one world; loops expose wrong overlaps, and what nothing connects stays apart."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from veil.errors import Remedy
from veil.geometry.similarity import align_poses, pose_error
from veil.places.maps.clusters.joined_maps import Group, joined
from veil.places.maps.clusters.joining import Overlap, averaged, consistent_edges, join
from veil.places.maps.clusters.pieces import Piece, homes, merged
from veil.places.maps.clusters.view_graph import Cluster
from veil.places.maps.images import NoMap
from worlds.pieces import anywhere, part, ring, shaken

COUNT, SIZE, SHARED = 60, 18, 8
NAMES = [f"{k:03d}" for k in range(COUNT)]


def pieces_of(rng: np.random.Generator, whole: Piece, starts: range) -> list[Piece]:
    """Pieces of consecutive images around a ring, each shaken a little and in its own world."""
    pieces = []
    for start in starts:
        names = sorted(NAMES[k % COUNT] for k in range(start, start + SIZE))
        pieces.append(shaken(rng, part(whole, names), deg=0.05, shift=0.01).moved(anywhere(rng)))
    return pieces


def test_a_ring_of_pieces_closes() -> None:
    """Oracle: planted poses of the whole ring."""
    rng = np.random.default_rng(0)
    whole = ring(rng, COUNT)
    pieces = pieces_of(rng, whole, range(0, COUNT, SIZE - SHARED))
    result = join(pieces)
    assert len(result.joints) == 1 and not result.rejected and len(result.edges) == len(pieces)
    placed = {k: pieces[k].moved(way) for k, way in result.joints[0].world_from_piece.items()}
    piece = merged(placed, homes(placed, {}))
    assert set(piece.cam_from_world) == set(NAMES)
    alignment = align_poses([piece.cam_from_world[n] for n in NAMES], [whole.cam_from_world[n] for n in NAMES])
    errors = [pose_error(piece.cam_from_world[n], whole.cam_from_world[n], alignment) for n in NAMES]
    assert max(position for position, _ in errors) < 0.3
    assert max(turn for _, turn in errors) < 1.0


def test_points_of_shared_features_are_merged() -> None:
    """Oracle: the planted map without noise: as many points, each observed by the features that observe it there."""
    rng = np.random.default_rng(1)
    whole = part(ring(rng, COUNT), NAMES)
    pieces = [part(whole, NAMES[start : start + 30]).moved(anywhere(rng)) for start in (0, 15, 30)]
    result = join(pieces)
    placed = {k: pieces[k].moved(way) for k, way in result.joints[0].world_from_piece.items()}
    piece = merged(placed, homes(placed, {}))
    truth = {
        frozenset((name, int(f)) for name in NAMES for f in whole.features[name][whole.point_rows[name] == row])
        for row in range(len(whole.points))
    }
    tracks: dict[int, set[tuple[str, int]]] = {}
    for name in NAMES:
        for feature, row in zip(piece.features[name].tolist(), piece.point_rows[name].tolist(), strict=True):
            tracks.setdefault(row, set()).add((name, feature))
    long = {track for track in truth if len(track) > 1}
    # A point that only the images of two pieces without a common image of it see stays two points.
    assert len({frozenset(track) for track in tracks.values()} & long) > 0.9 * len(long)
    assert all(any(track <= whole_track for whole_track in truth) for track in tracks.values())


def test_a_wrong_overlap_is_rejected_by_loops() -> None:
    """Oracle: two planted pieces hold images that stand elsewhere in one of them; the way around says so, and poses stay."""
    rng = np.random.default_rng(2)
    whole = ring(rng, COUNT)
    pieces = pieces_of(rng, whole, range(0, COUNT, SIZE - SHARED))
    # Piece 0 holds five images of the far side of the ring as if they stood within it.
    far, near = part(whole, NAMES[28:33]), pieces[0]
    moved = far.moved(replace(anywhere(rng), scale=1.0))
    poses = dict(near.cam_from_world) | dict(moved.cam_from_world)
    rows = dict(near.point_rows) | {name: row + len(near.points) for name, row in moved.point_rows.items()}
    pieces[0] = Piece(
        cam_from_world=poses,
        points=np.concatenate([near.points, moved.points]),
        features=dict(near.features) | dict(moved.features),
        point_rows=rows,
    )
    result = join(pieces)
    assert len(result.joints) == 1
    assert result.rejected and all(0 in edge for edge in result.rejected)
    assert any("contradicts" in reason for reason in result.reasons.values())
    placed = {k: pieces[k].moved(way) for k, way in result.joints[0].world_from_piece.items()}
    cores = {NAMES[k % COUNT]: k // 10 for k in range(COUNT)}
    piece = merged(placed, homes(placed, cores))
    alignment = align_poses([piece.cam_from_world[n] for n in NAMES], [whole.cam_from_world[n] for n in NAMES])
    assert max(pose_error(piece.cam_from_world[n], whole.cam_from_world[n], alignment)[0] for n in NAMES) < 0.3


class Refusing:
    """Maps of clusters, none of which is left after they were joined."""

    @property
    def left_out(self) -> dict[str, str]:
        return {}

    def names(self, model: Piece) -> list[str]:
        return list(model.cam_from_world)

    def piece(self, model: Piece) -> Piece:
        return model

    def together(self, group: Group[Piece], reasons: list[str]) -> list[Piece]:
        reasons.append("it cannot be trusted")
        return []

    def apart(self, maps: list[Piece]) -> list[Piece]:
        return maps


def test_what_helps_a_cluster_is_said_where_no_map_is_left() -> None:
    """Oracle: the statements. One of two clusters is refused by its own task, the map of the other after joining."""
    rng = np.random.default_rng(3)
    model = part(ring(rng, COUNT), NAMES[:SIZE])
    parts = [Cluster(core=frozenset(NAMES[k : k + SIZE])) for k in (0, SIZE)]
    more = (Remedy("give", "photographs with more overlap"),)
    answers: dict[int, Piece | NoMap] = {0: model, 1: NoMap("dark", remedy=more)}
    answer = joined(Refusing(), parts, answers)
    assert answer == NoMap("cluster 2: dark; it cannot be trusted", remedy=more)


def test_the_best_placement_of_all_is_found() -> None:
    """Oracle: the planted right edges of graphs of five pieces with three wrong ones: the placement is no worse."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        worlds = [anywhere(rng) for _ in range(5)]
        overlaps = {}
        edges = list(itertools.combinations(range(5), 2))
        wrong = {edges[k] for k in rng.choice(len(edges), 3, replace=False)}
        for i, j in edges:
            true = worlds[j].inverse() @ worlds[i]
            overlaps[i, j] = Overlap(
                b_from_a=anywhere(rng) if (i, j) in wrong else true,
                shared=20,
                agreeing=int(rng.integers(6, 20)),
                log10_chance=-9.0,
            )
        kept, rejected = consistent_edges(overlaps, [10.0] * 5)
        assert kept | rejected == set(edges)
        assert sum(overlaps[e].agreeing for e in kept) >= sum(overlaps[e].agreeing for e in set(edges) - wrong)


def test_averaging_spreads_the_error_of_a_loop() -> None:
    """Oracle: least squares: of a loop of equal edges of scale, each takes the same share of what is left over."""
    one = anywhere(np.random.default_rng(3))
    identity = one @ one.inverse()
    edges = {}
    for i, j in [(0, 1), (1, 2), (2, 3), (0, 3)]:
        scale = 1.2 if (i, j) == (0, 3) else 1.0
        edges[i, j] = Overlap(b_from_a=replace(identity, scale=scale), shared=9, agreeing=9, log10_chance=-9.0)
    logs = np.log([place.scale for place in averaged([identity] * 4, edges)])
    assert np.allclose(np.diff(logs), -np.log(1.2) / 4, atol=1e-6)


def test_pieces_without_common_images_stay_apart() -> None:
    """Oracle: planted components: two rings, and a piece by itself."""
    rng = np.random.default_rng(4)
    first, second = ring(rng, 40), ring(rng, 40)
    renamed = Piece(
        cam_from_world={f"x{k}": v for k, v in second.cam_from_world.items()},
        points=second.points,
        features={f"x{k}": v for k, v in second.features.items()},
        point_rows={f"x{k}": v for k, v in second.point_rows.items()},
    )
    other = [f"x{k:03d}" for k in range(40)]
    pieces = [part(first, NAMES[:15]), part(renamed, other[:12]), part(first, NAMES[8:20]), part(first, NAMES[30:40])]
    result = join(pieces)
    assert [sorted(joint.world_from_piece) for joint in result.joints] == [[0, 2], [1], [3]]

"""Agreement of a map with the verified pairs that it was made from, and the images that stay together where it does not.

A pair's matches are explained where the map's two poses let each one be a point: in front of both cameras, within the limit
of both positions, and where a point that the map already has of it is seen there. Cameras that fell on one center explain no
parallax, so a collapsed map contradicts its pairs. Where pairs contradict each other, images are gathered by correlation
clustering: a pair speaks for two images' being together with the count of its explained matches minus the others, or against it
if a cycle of rotations confirms the pair; clusters are joined greedily by the largest sum (greedy additive edge contraction,
Keuper et al., ICCV 2015) until no sum is positive. Where all stay together and pairs contradict the map all the same, it is
asked of cuts between their images: false pairs of a repeated structure hold two parts together that true ones would hold
elsewhere. It is asked of cuts once more where it turns pairs by far: in a map that is bent between two parts, the few matches
between these may lie on their epipolar lines all the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64

from veil.geometry.camera import as_colmap
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.places.maps.images import MapImage, Pair
from veil.places.maps.options import LEAST_INLIERS
from veil.places.maps.verification import VerifiedPair
from veil.scene import EXPLAINED, Scene

LIMIT_PX = 4.0
# Two parts of a map are apart where it explains a smaller share of the matches between them. Right maps of photographs explain
# more across every cut between contradicting images, wrong ones about half.
MIN_CUT_MATCHES = 0.7
# Cuts are asked for of so many contradicting pairs at most, those of most matches.
MOST_CUTS = 100
# Two parts of a map are apart, too, where most pairs between them turn by more than this from it, weighed by their matches.
# Single pairs turn as far in right maps, by the plane that most of their matches lie on.
MAX_TURN_DEG, MIN_CUT_STRAIGHT = 10.0, 0.3
# Three pairs whose rotations lead back to the start to within this angle confirm each other.
CYCLE_DEG = 5.0


def explained_shares(scene: Scene, images: Mapping[str, MapImage], pairs: Mapping[Pair, VerifiedPair]) -> dict[Pair, float]:
    """Share of the matches that the map explains, for each verified pair whose images are both in the map.

    `images` are those that the map was made from, by name. A match is explained if some point in front of both cameras projects
    within `LIMIT_PX` of both positions, and a point that either feature has in the map projects within twice that of the other
    feature (mapping.md#the-check).
    """
    views = {name: _view(scene, name, images[name].keypoints) for name in scene.images}
    shares = {}
    for (a, b), pair in pairs.items():
        if a not in views or b not in views:
            continue
        left, right = views[a].take(pair.inliers[:, 0]), views[b].take(pair.inliers[:, 1])
        b_from_a = right.cam_from_world @ left.cam_from_world.inverse()
        good = explained(left.rays, right.rays, b_from_a, left.limit, right.limit)
        # A point that one of the two features has must be seen where the other one is: parts of different scale differ here.
        good &= _sees(right, left.points) & _sees(left, right.points)
        shares[a, b] = float(good.mean())
    return shares


def turned_pairs(scene: Scene, pairs: Mapping[Pair, VerifiedPair]) -> frozenset[Pair]:
    """Pairs of mapped images that turn by more than `MAX_TURN_DEG` from the map, and whose rotation a cycle confirms."""
    inside = {pair: entry for pair, entry in pairs.items() if {*pair} <= scene.images.keys()}
    turns = {pair: turn_deg(scene, pair, entry) for pair, entry in inside.items()}
    return confirmed([pair for pair, turn in turns.items() if turn is not None and turn > MAX_TURN_DEG], inside)


def turn_deg(scene: Scene, pair: Pair, entry: VerifiedPair) -> float | None:
    """Angle in degrees between the rotation of a pair of mapped images by itself and in the map; None if it has none."""
    if entry.rotation is None:
        return None
    one, other = (scene.images[name].cam_from_world.rotation for name in pair)
    return float(rotation_angle_deg(entry.rotation.T @ other @ one.T))


def seen_by_map(
    scene: Scene, images: Mapping[str, MapImage], pairs: Mapping[Pair, VerifiedPair], seed: int
) -> dict[Pair, VerifiedPair]:
    """The pairs, with rotations under the cameras of the map where these differ from those of the verification.

    A guessed focal length is off by up to a factor of two, and so is the angle of a turn computed under it. The rotation is
    estimated anew from the inliers of the pair under the cameras of the map; `seed` is that of COLMAP's RANSAC.
    """
    moved = {name for name, image in scene.images.items() if image.camera.params != images[name].camera.params}
    return {
        pair: replace(entry, rotation=_rotation_in_map(scene, images, pair, entry, seed))
        if {*pair} & moved and {*pair} <= scene.images.keys()
        else entry
        for pair, entry in pairs.items()
    }


def _rotation_in_map(
    scene: Scene, images: Mapping[str, MapImage], pair: Pair, entry: VerifiedPair, seed: int
) -> Float64[np.ndarray, "3 3"] | None:
    """Rotation b_from_a of a pair's inliers by themselves, under the cameras of the map; None where COLMAP gives none."""
    from veil.colmap import pycolmap

    options = pycolmap.TwoViewGeometryOptions()
    options.min_num_inliers, options.compute_relative_pose, options.ransac.random_seed = LEAST_INLIERS, True, seed
    views = [
        (as_colmap(scene.images[name].camera), images[name].keypoints[rows].astype(np.float64))
        for name, rows in zip(pair, entry.inliers.T, strict=True)
    ]
    same = np.tile(np.arange(len(entry.inliers), dtype=np.uint32)[:, None], 2)
    geometry = pycolmap.estimate_calibrated_two_view_geometry(*views[0], *views[1], same, options)
    pose = geometry.cam2_from_cam1
    return None if pose is None else np.asarray(pose.rotation.matrix(), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _MappedView:
    """Features of a mapped image: their normalized positions, and the world point of each, NaN where it has none."""

    cam_from_world: Rigid
    rays: Float64[np.ndarray, "features 2"]
    points: Float64[np.ndarray, "features 3"]
    limit: float

    def take(self, rows: np.ndarray) -> _MappedView:
        return replace(self, rays=self.rays[rows], points=self.points[rows])


def _view(scene: Scene, name: str, keypoints: np.ndarray) -> _MappedView:
    image = scene.images[name]
    rays = np.asarray(as_colmap(image.camera).cam_from_img(np.ascontiguousarray(keypoints, dtype=np.float64))).reshape(-1, 2)
    rows = {
        position: row for position, row in zip(map(tuple, image.keypoints.tolist()), image.point_rows.tolist(), strict=True)
    }
    points = np.full((len(keypoints), 3), np.nan)
    for feature, position in enumerate(map(tuple, keypoints.tolist())):
        if (row := rows.get(position)) is not None:
            points[feature] = scene.points[row]
    return _MappedView(cam_from_world=image.cam_from_world, rays=rays, points=points, limit=LIMIT_PX / image.camera.focal_px)


def _sees(view: _MappedView, points: Float64[np.ndarray, "n 3"]) -> Bool[np.ndarray, "n"]:
    """Mask of the world points that project to within twice the limit of the view's features; true where there is no point."""
    nowhere = np.isnan(points[:, 0])
    at = view.cam_from_world.apply(np.where(nowhere[:, None], 0.0, points))
    return nowhere | _near(at, view.rays, 2 * view.limit)


def explained(
    left: Float64[np.ndarray, "n 2"],
    right: Float64[np.ndarray, "n 2"],
    right_from_left: Rigid,
    left_limit: float,
    right_limit: float,
) -> Bool[np.ndarray, "n"]:
    """Mask of the matches that some point in front of both cameras, or at infinity, explains within the limits.

    `left`, `right` and the limits are in the normalized image planes.
    """
    a = _homogeneous(left) @ right_from_left.rotation.T
    b = _homogeneous(right)
    t = right_from_left.translation
    # Depths of the closest points of the two rays: |x a + t - y b|^2 is least.
    aa, bb, ab = (a * a).sum(axis=1), (b * b).sum(axis=1), (a * b).sum(axis=1)
    determinant = np.maximum(aa * bb - ab * ab, 1e-18)
    at, bt = a @ t, b @ t
    x = (ab * bt - bb * at) / determinant
    y = (aa * bt - ab * at) / determinant
    middle = (x[:, None] * a + t + y[:, None] * b) / 2
    good = (x > 0) & (y > 0) & _near(middle, right, right_limit)
    good &= _near((middle - t) @ right_from_left.rotation, left, left_limit)
    return good | _near(a, right, right_limit)


def _near(points: np.ndarray, positions: np.ndarray, limit: float) -> Bool[np.ndarray, "n"]:
    """Mask of the points in a camera's frame that lie in front of it and project to within `limit` of `positions`."""
    depth = points[:, 2:]
    before = depth[:, 0] > 0
    return before & (np.linalg.norm(points[:, :2] / np.where(before[:, None], depth, 1.0) - positions, axis=1) <= limit)


def _homogeneous(positions: np.ndarray) -> np.ndarray:
    return np.hstack([positions, np.ones((len(positions), 1))])


def confirmed(asked: Iterable[Pair], pairs: Mapping[Pair, VerifiedPair]) -> frozenset[Pair]:
    """Pairs, of those `asked` for, whose rotation a cycle over two other pairs confirms to within `CYCLE_DEG`.

    Repeated structure and dominant planes make pairs that chance does not explain and that are wrong all the same, each in its
    own way; right ones close cycles.
    """
    turns: dict[str, dict[str, Float64[np.ndarray, "3 3"]]] = {}
    for (a, b), pair in pairs.items():
        if pair.rotation is not None:
            turns.setdefault(a, {})[b] = pair.rotation
            turns.setdefault(b, {})[a] = pair.rotation.T

    def closes(a: str, b: str) -> bool:
        own = turns.get(a, {}).get(b)
        if own is None:
            return False
        between = sorted(turns[a].keys() & turns[b].keys())
        return any(rotation_angle_deg(turns[c][b] @ turns[a][c] @ own.T) <= CYCLE_DEG for c in between)

    return frozenset(pair for pair in asked if closes(*pair))


def contradicting(shares: Mapping[Pair, float], pairs: Mapping[Pair, VerifiedPair]) -> frozenset[Pair]:
    """Pairs that a map does not explain although a cycle of rotations confirms them, by the shares that it explains."""
    return confirmed([pair for pair, share in shares.items() if share < EXPLAINED], pairs)


def agreement_weights(shares: Mapping[Pair, float], pairs: Mapping[Pair, VerifiedPair]) -> dict[Pair, float]:
    """Weights of pairs for and against their images' being together, for `veil.places.maps.agreement.consistent_groups`."""
    against = contradicting(shares, pairs)
    return {
        pair: len(pairs[pair].inliers) * (2 * share - 1)
        for pair, share in shares.items()
        if share >= EXPLAINED or pair in against
    }


def groups_that_agree(
    names: Iterable[str],
    shares: Mapping[Pair, float],
    pairs: Mapping[Pair, VerifiedPair],
    held: Mapping[Pair, float] | None = None,
    *,
    turned: Collection[Pair],
) -> list[frozenset[str]]:
    """Groups of images of a map that its pairs let stay together, the largest first (mapping.md#the-check).

    `shares` of the matches of its `pairs` are explained by the map, and it turns those that are `turned` (`turned_pairs`).
    `held` are weights for pairs that are not judged anew.
    """
    held = held or {}
    groups = consistent_groups(names, {**held, **agreement_weights(shares, pairs)})
    if len(groups) > 1:
        return groups
    counts = {pair: float(len(pairs[pair].inliers)) for pair in shares}
    explained = {**held, **{pair: counts[pair] * share for pair, share in shares.items()}}
    straight = {pair: weight for pair, weight in explained.items() if pair not in turned}
    every = {**held, **counts}
    for holds, against, least in (
        (explained, contradicting(shares, pairs), MIN_CUT_MATCHES),
        (straight, turned, MIN_CUT_STRAIGHT),
    ):
        asked = sorted(against, key=lambda pair: (-counts[pair], pair))[:MOST_CUTS]
        groups = weakest_parts(groups[0], holds, every, asked, least) if groups else []
        if len(groups) > 1:
            break
    return groups


def weakest_parts(
    names: Iterable[str],
    explained: Mapping[Pair, float],
    matches: Mapping[Pair, float],
    against: Iterable[Pair],
    least: float = MIN_CUT_MATCHES,
) -> list[frozenset[str]]:
    """Two parts of the images `names`, the larger first, if too few matches between them are explained; else all in one.

    Asked are the cuts of fewest `explained` matches between the images of each pair of `against` (Ford and Fulkerson 1956). The
    two parts are those of the smallest share, if it is below `least`. Single images are no parts: `doubtful_images`
    judges them.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    ordered = sorted(names)
    row = {name: k for k, name in enumerate(ordered)}
    both = sorted(explained.keys() | matches.keys())
    i, j = np.array([(row[a], row[b]) for a, b in both], dtype=np.int32).reshape(-1, 2).T
    holds = np.array([explained.get(pair, 0.0) for pair in both])
    every = np.array([matches.get(pair, 0.0) for pair in both])
    ends, size = (np.concatenate([i, j]), np.concatenate([j, i])), (len(ordered), len(ordered))
    capacity = csr_matrix((np.tile(np.rint(holds).astype(np.int32), 2), ends), shape=size)
    parts = [frozenset(ordered)]
    for a, b in against:
        more = capacity - maximum_flow(capacity, row[a], row[b]).flow > 0
        side = np.zeros(len(ordered), dtype=bool)
        side[breadth_first_order(more, row[a], return_predecessors=False)] = True
        across = side[i] != side[j]
        share = holds[across].sum() / max(1.0, every[across].sum())
        if share < least and 2 <= side.sum() <= len(ordered) - 2:
            least = share
            parts = [frozenset(name for name in ordered if side[row[name]] == inside) for inside in (True, False)]
    return sorted(parts, key=lambda part: (-len(part), sorted(part)))


def consistent_groups(names: Iterable[str], weights: Mapping[Pair, float]) -> list[frozenset[str]]:
    """Groups of images, the largest first, joined by pairs that speak for (weight > 0) or against (< 0) their being together.

    Correlation clustering by greedy additive edge contraction (Keuper et al. 2015).
    """
    ordered = sorted(names)
    place = {name: k for k, name in enumerate(ordered)}
    groups = [frozenset([name]) for name in ordered]
    between: list[dict[int, float]] = [{} for _ in ordered]
    for (a, b), weight in sorted(weights.items()):
        i, j = place[a], place[b]
        between[i][j] = between[j][i] = between[i].get(j, 0.0) + weight
    # Of equal sums the pair with the last names is joined; an entry whose sum has changed since is passed over.
    heap = [(-weight, -i, -j) for i, row in enumerate(between) for j, weight in row.items() if i < j and weight > 0]
    heapq.heapify(heap)
    while heap:
        less, i, j = heapq.heappop(heap)
        into, gone = -i, -j
        if between[into].get(gone) != -less:
            continue
        groups[into], groups[gone] = groups[into] | groups[gone], frozenset()
        for other, value in between[gone].items():
            del between[other][gone]
            if other != into:
                total = between[into].get(other, 0.0) + value
                between[into][other] = between[other][into] = total
                if total > 0:
                    heapq.heappush(heap, (-total, -min(into, other), -max(into, other)))
        between[gone] = {}
    return sorted((group for group in groups if group), key=lambda group: (-len(group), sorted(group)))

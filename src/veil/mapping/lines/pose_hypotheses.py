"""Poses that one more image could have in a map of lines, and what speaks for each (docs/theory/mapping.md, An image more).

Where gravity is known in the image and in the map, samples are four lines and the search is compiled; else they are six. The
search is made once for the points of every neighbor alone, because on repeated structure the pose that most lines agree with
need not be the right one: a right pose agrees with its nearest neighbors' most distinctive matches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.gravity import gravity_spread_px
from veil.geometry.rigid import Rigid
from veil.geometry.robust.grouped import grouped
from veil.geometry.robust.grouped_search import search
from veil.geometry.robust.ransac import RansacOptions
from veil.geometry.robust.resection_lines import LineResection, resect_from_lines
from veil.localization.by_distance import P6L, line_agreement, pose_log10_nfa
from veil.mapping.lines.reconstruction import Model, World, mapped_tracks, upright
from veil.mapping.lines.registration import LineMapOptions

NEIGHBORS = 8
MIN_ROWS = 8
SEARCHES = 2  # of each list of points, with their own seeds
SAMPLES = 300  # of each search
SAME_DEG, SAME_SHARE = 3.0, 0.1  # closer poses are one


@dataclass(frozen=True, kw_only=True, eq=False)
class Sighting:
    """Lines of one image through the projections of points: `problem` row r is observation `rows[r]` of the world.

    `down` is gravity in the camera and in the map; None where the image has no reading, or the map.
    """

    image: int
    rows: Int64[np.ndarray, "_"]
    problem: LineResection
    down: tuple[Float64[np.ndarray, "3"], Float64[np.ndarray, "3"]] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A pose, and which lines agree with it within the limit."""

    pose: Rigid
    inliers: Bool[np.ndarray, "_"]
    score: float


def candidate_poses(
    seen: Sighting, sources: list[Int64[np.ndarray, "_"]], *, limit_px: float, sigma_deg: float, seed: int
) -> list[Candidate]:
    """Distinct poses, the best supported first; `sources` are rows of the problem, each a source of samples."""
    problem = seen.problem
    starts = _upright_poses(problem, seen.down, sources, limit_px, sigma_deg, seed) if seen.down is not None else []
    if not starts:
        found = resect_from_lines(problem, RansacOptions(max_error=limit_px, max_iterations=1000, seed=seed))
        starts = [] if found is None else [found.model]
    wide_px = limit_px + gravity_spread_px(sigma_deg, problem.focal_px)
    settled = [pose for start in starts if (pose := _settled(problem, start, wide_px, limit_px)) is not None]
    found_all = sorted((_judged(problem, pose, limit_px) for pose in settled), key=lambda item: -item.score)
    distinct: list[Candidate] = []
    for item in found_all:
        if not any(same_pose(item.pose, other.pose, _depth(problem, other)) for other in distinct):
            distinct.append(item)
    return distinct


def _upright_poses(
    problem: LineResection,
    down: tuple[Float64[np.ndarray, "3"], Float64[np.ndarray, "3"]],
    sources: list[Int64[np.ndarray, "_"]],
    limit_px: float,
    sigma_deg: float,
    seed: int,
) -> list[Rigid]:
    """The best pose of each search that anything but its own sample agrees with."""
    poses = []
    for number, source in enumerate(sources):
        groups, _ = grouped(
            group=np.arange(len(problem.lines)),
            points=problem.points,
            point_rows=np.arange(len(problem.lines)),
            seen=problem.lines,
            as_lines=True,
            half_extent=problem.half_extent,
            lists=[source],
            down_cam=down[0],
            down_world=down[1],
        )
        if len(groups.list_starts) < 2:
            continue
        for again in range(SEARCHES):
            wide_px = limit_px + again * gravity_spread_px(sigma_deg, problem.focal_px)
            rotation, translation, gain, _ = search(
                groups,
                limit=wide_px / problem.focal_px,
                iterations=SAMPLES,
                seed=(seed << 40) + SEARCHES * number + again + 1,
                floor=0.0,
                first_floor=0.0,
            )
            if gain > groups.sample_size:
                poses.append(Rigid(rotation=rotation, translation=translation))
    return poses


def _settled(problem: LineResection, pose: Rigid, wide_px: float, limit_px: float) -> Rigid | None:
    """The pose refined with limits that shrink by halves: the reading of gravity may be off."""
    steps = max(0, math.ceil(math.log2(wide_px / limit_px)))
    for limit in [limit_px * 2.0**k for k in range(steps, -1, -1)] + [limit_px]:
        refined = problem.refine(pose, problem.residuals(pose) < limit, limit / 3)
        if refined is None:
            return None
        pose = refined
    return pose


def _judged(problem: LineResection, pose: Rigid, limit_px: float) -> Candidate:
    residuals = problem.residuals(pose)
    value = np.maximum(1 - np.minimum(residuals / limit_px, 1.0) ** 2, 0)
    return Candidate(pose=pose, inliers=residuals < limit_px, score=float(value.sum()))


def _depth(problem: LineResection, item: Candidate) -> float:
    points = problem.points[item.inliers] if item.inliers.any() else problem.points
    return float(abs(np.median(points @ item.pose.rotation[2] + item.pose.translation[2])))


def same_pose(a: Rigid, b: Rigid, depth: float) -> bool:
    """Whether two poses differ by little, beside the distance of what they see."""
    turn = math.degrees(math.acos(float(np.clip((np.trace(a.rotation @ b.rotation.T) - 1) / 2, -1, 1))))
    return turn < SAME_DEG and float(np.linalg.norm(a.center - b.center)) < SAME_SHARE * depth


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What speaks for a pose: of the points that it shares with one other image, those that agree, or of all together.

    `log10_nfa` is the least of (docs/theory/lines.md, Eq. 11) over these sets, `share` that of the set that it came from,
    `inliers` are those of all points, `aligned_share` is their part along gravity.
    """

    log10_nfa: float
    share: float
    inliers: int
    aligned_share: float


def registration(world: World, model: Model, image: int, options: LineMapOptions) -> Rigid | str:
    """The pose of one image in the map, or why it was refused."""
    seen, sources = sighting(world, model, image)
    if len(seen.rows) < options.min_registration_inliers:
        return f"sees {len(seen.rows)} points, fewer than the {options.min_registration_inliers} that have to agree"
    if (~seen.problem.aligned).sum() < 2:
        return f"sees {len(seen.rows)} points, but all along gravity"
    found = candidate_poses(
        seen,
        [np.arange(len(seen.rows)), *sources],
        limit_px=options.resection_error_px,
        sigma_deg=options.seed.gravity_sigma_deg,
        seed=options.seed.seed,
    )
    if not found:
        return f"no pose explains the {len(seen.rows)} points that it sees"
    weighed = [(candidate, evidence(world, seen, sources, candidate, options)) for candidate in found]
    weighed.sort(key=lambda item: item[1].log10_nfa)
    (best, support), others = weighed[0], weighed[1:]
    if support.inliers < options.min_registration_inliers or support.log10_nfa > options.max_log10_nfa:
        return f"{support.inliers} of {len(seen.rows)} lines agree, which chance also gives"
    if support.share < options.min_neighbor_share:
        return f"only {support.share:.0%} of the lines agree that it shares with any one image, as on repeated structure"
    if support.aligned_share > options.max_aligned_share:
        return f"{support.aligned_share:.0%} of its inliers follow gravity, so its height is not determined"
    for other, rival in others:
        if other.score > options.max_twin_share * best.score:
            return f"another pose explains {rival.inliers} lines, against {support.inliers}: it is not determined"
        apart = other.inliers & ~best.inliers
        if rival.log10_nfa <= options.max_log10_nfa and apart.sum() > options.max_rival_share * best.inliers.sum():
            return f"another pose explains {int(apart.sum())} other lines, against {support.inliers}: repeated structure"
    return best.pose


def contradicted(world: World, model: Model, options: LineMapOptions) -> dict[int, str]:
    """Registered images whose evidence no longer holds, and why: too few lines agree with points that four others fix."""
    tracks = world.tracks
    length = np.bincount(tracks.track[model.observed], minlength=len(tracks))
    found = {}
    for image in np.flatnonzero(model.registered).tolist():
        rows = np.flatnonzero((tracks.image == image) & (length[tracks.track] - model.observed >= 4))
        seen = _problem(world, model, image, rows)
        inliers = seen.problem.residuals(model.pose(image)) < options.resection_error_px
        if inliers.sum() < options.min_firm_inliers:
            found[image] = f"was taken out again: only {int(inliers.sum())} of its lines agree with points that others checked"
            continue
        held = Candidate(pose=model.pose(image), inliers=inliers, score=float(inliers.sum()))
        support = evidence(world, seen, neighbors(world, model, image, rows), held, options)
        if support.log10_nfa > options.max_log10_nfa or support.share < options.min_neighbor_share:
            found[image] = f"was taken out again: {support.inliers} of {len(rows)} lines agreed in the end"
    return found


def sighting(world: World, model: Model, image: int) -> tuple[Sighting, list[Int64[np.ndarray, "_"]]]:
    """The points that an image sees, and for each of its nearest neighbors which of them that one observes."""
    tracks = world.tracks
    rows = np.flatnonzero((tracks.image == image) & mapped_tracks(world, model)[tracks.track])
    length = np.bincount(tracks.track[model.observed], minlength=len(tracks))
    rows = rows[np.argsort(-length[tracks.track[rows]], kind="stable")]  # points of many lines are most trusted
    return _problem(world, model, image, rows), neighbors(world, model, image, rows)


def _problem(world: World, model: Model, image: int, rows: Int64[np.ndarray, "rows"]) -> Sighting:
    known = upright(world, model)
    problem = LineResection(
        lines=world.lines[rows],
        points=model.points[world.tracks.track[rows]],
        aligned=world.aligned[rows],
        focal_px=float(world.focal_px[image]),
        half_extent=world.half_extent[image],
    )
    read = known is not None and np.isfinite(world.gravity[image]).all()
    down = (world.gravity[image], known.down_world) if known is not None and read else None
    return Sighting(image=image, rows=rows, problem=problem, down=down)


def neighbors(world: World, model: Model, image: int, rows: Int64[np.ndarray, "rows"]) -> list[Int64[np.ndarray, "_"]]:
    """For each registered image that observes most of the rows' points, the indices of those rows."""
    tracks = world.tracks
    place = np.full(len(tracks), -1)
    place[tracks.track[rows]] = np.arange(len(rows))
    other = np.flatnonzero(model.observed & (place[tracks.track] >= 0) & (tracks.image != image))
    counts = np.bincount(tracks.image[other], minlength=len(world.views))
    nearest = np.argsort(-counts, kind="stable")[:NEIGHBORS]
    return [np.sort(place[tracks.track[other[tracks.image[other] == j]]]) for j in nearest if counts[j] >= MIN_ROWS]


def evidence(
    world: World, seen: Sighting, sources: list[Int64[np.ndarray, "_"]], candidate: Candidate, options: LineMapOptions
) -> Evidence:
    """All points, and those of each neighbor, weighed against chance, which may choose among these sets."""
    agreement = max(
        line_agreement(world.views[seen.image].camera, options.resection_error_px),
        by_chance(seen.problem, candidate.pose, options.resection_error_px),
    )
    sets = [np.arange(len(seen.rows)), *sources]
    weights = [
        (pose_log10_nfa(int(candidate.inliers[rows].sum()), len(rows), agreement, P6L), float(candidate.inliers[rows].mean()))
        for rows in sets
    ]
    log10_nfa, share = min(weights)
    count = int(candidate.inliers.sum())
    return Evidence(
        log10_nfa=log10_nfa + math.log10(len(sets)),
        share=share,
        inliers=count,
        aligned_share=float(seen.problem.aligned[candidate.inliers].mean()) if count else 1.0,
    )


def by_chance(problem: LineResection, pose: Rigid, limit_px: float) -> float:
    """The share of wrong pairs of a line and a point at hand that agree with a pose: high where points gather."""
    count = len(problem.lines)
    if count < 2:
        return 1.0
    shares = []
    for shift in np.unique(np.linspace(1, count - 1, 16).astype(int)):
        shuffled = LineResection(
            lines=np.roll(problem.lines, shift, axis=0),
            points=problem.points,
            aligned=problem.aligned,
            focal_px=problem.focal_px,
            half_extent=problem.half_extent,
        )
        shares.append(float((shuffled.residuals(pose) < limit_px).mean()))
    return float(np.mean(shares))

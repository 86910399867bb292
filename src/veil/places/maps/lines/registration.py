"""One image more in a map from lines: candidates for its pose, the evidence for each, and adjustment with it.

Where gravity is known in the image and in the map, samples are four lines and the search is compiled; else they are six. The
search is made once for the points of every neighbor alone, because on repeated structure the pose that most lines agree with
need not be the right one: a right pose agrees with its nearest neighbors' most distinctive matches. The reconstruction is then
adjusted with the image at its pose, or at the mirror image of that (docs/theory/mapping.md, An image more).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import require_positive
from veil.geometry.bundle.adjustment import AdjustOptions
from veil.geometry.gravity import gravity_spread_px
from veil.geometry.rigid import Rigid
from veil.geometry.robust.grouped import grouped
from veil.geometry.robust.grouped_search import search
from veil.geometry.robust.ransac import RansacOptions
from veil.geometry.robust.resection_lines import LineResection, mirrored, relief, resect_from_lines
from veil.geometry.robust.significance import P6L, line_agreement, pose_log10_nfa
from veil.places.maps.lines.problem import MappingProblem
from veil.places.maps.lines.quad import SeedOptions
from veil.places.maps.lines.reconstruction import Reconstruction, adjusted, line_distances, mapped_tracks, triangulated, upright

# Adjustments between two images need not converge: the next image moves everything again.
INTERMEDIATE = AdjustOptions(loss_px=1.0, max_iterations=15, tol=1e-5)
FINAL = AdjustOptions(max_iterations=30, tol=1e-7)
ROUNDS = 3
# Points this close to a plane, as a share of their depth, leave a pose and its mirror image nearly alike.
FLAT_RELIEF = 0.005
NEIGHBORS = 8  # registered images whose points are a source of samples by themselves
MIN_ROWS = 8  # shared points that such a neighbor must have
SEARCHES = 2  # of each source of samples, each with its own random seed
SAMPLES = 300  # of each search
SAME_DEG, SAME_SHARE = 3.0, 0.1  # poses closer than this, in degrees and as a share of the depth, are one


@dataclass(frozen=True, kw_only=True)
class LineMapOptions:
    """Thresholds of mapping from lines, in pixels and degrees. Raises RangeError for errors or angles that are not positive.

    An image enters (docs/theory/mapping.md, An image more) with `min_registration_inliers` lines that agree within
    `resection_error_px`, at most `max_aligned_share` of them along gravity. Of the points that it shares with one neighbor, or
    of all its points, `min_neighbor_share` or more must agree, and log10 of the expected number of such poses by chance must
    not exceed `max_log10_nfa`. It is refused if another pose explains other lines, `max_rival_share` as many, or has
    `max_twin_share` of its score. It stays with `min_firm_inliers` on points that four others observe: those have a check of
    their own.

    A point needs `min_lines` lines that agree within `point_error_px`, and two rays `min_angle_deg` apart.

    Seeds of `quads` image quads are compared, and mapping starts from up to `attempts` of them where none is sure; if none
    takes in another image, from those of quads of other images. A map whose seed chance explains is refused, unless it took in
    `min_weak_share` of the images and at least `min_weak_images`. All cameras are adjusted when the number of images is
    `global_ratio` times what it was when they last were, else the newest camera and its `local_images` nearest.
    """

    seed: SeedOptions = field(default_factory=SeedOptions)
    quads: int = 10
    attempts: int = 3
    resection_error_px: float = 6.0
    point_error_px: float = 4.0
    min_angle_deg: float = 1.5
    min_lines: int = 4
    min_registration_inliers: int = 15
    min_firm_inliers: int = 20
    min_neighbor_share: float = 0.25
    max_rival_share: float = 0.6
    max_twin_share: float = 0.85
    max_aligned_share: float = 0.9
    max_log10_nfa: float = -6.0
    min_weak_share: float = 0.8
    min_weak_images: int = 8
    global_ratio: float = 1.1
    local_images: int = 6

    def __post_init__(self) -> None:
        require_positive(self, "resection_error_px", "point_error_px", "min_angle_deg")


def triangulate(
    problem: MappingProblem, reconstruction: Reconstruction, limit_px: float, options: LineMapOptions
) -> Reconstruction:
    """Reconstruction with every track triangulated anew, by the rules of `options` but for `limit_px` (`triangulated`)."""
    return triangulated(
        problem, reconstruction, limit_px=limit_px, min_lines=options.min_lines, min_angle_deg=options.min_angle_deg
    )


def settle(
    problem: MappingProblem, reconstruction: Reconstruction, free: Bool[np.ndarray, "images"], options: LineMapOptions
) -> Reconstruction:
    """Reconstruction after turns of triangulation of all tracks and adjustment of the cameras `free` (mask of images).

    Each of the two shows the other what was wrong.
    """
    for _ in range(ROUNDS):
        reconstruction = triangulate(problem, reconstruction, options.point_error_px, options)
        reconstruction = adjusted(problem, reconstruction, free, INTERMEDIATE)
    return triangulate(problem, reconstruction, options.point_error_px, options)


def with_image(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    image: int,
    pose: Rigid,
    *,
    everything: bool,
    options: LineMapOptions,
) -> Reconstruction:
    """Reconstruction with `image` registered at `pose`, settled.

    Over nearly flat points the mirror image of the pose is tried too, and the one that fits is taken. `everything` adjusts all
    cameras, else only the image and its nearest neighbors.
    """

    def settled(candidate: Rigid) -> Reconstruction:
        larger = reconstruction.with_pose(image, candidate)
        return settle(
            problem, larger, larger.registered if everything else _neighbors(problem, larger, image, options), options
        )

    rows = np.flatnonzero((problem.tracks.image == image) & mapped_tracks(problem, reconstruction)[problem.tracks.track])
    points = reconstruction.points[problem.tracks.track[rows]]
    larger = reconstruction.with_pose(image, pose)
    near = (
        line_distances(problem, larger, problem.tracks.image[rows], problem.tracks.feature[rows], points)
        < options.point_error_px
    )
    other = mirrored(pose, points[near]) if near.any() and relief(pose, points[near]) < FLAT_RELIEF else None
    if other is None:
        return settled(pose)
    return min((settled(pose), settled(other)), key=lambda trial: _cost(problem, trial, image, options))


def _cost(problem: MappingProblem, reconstruction: Reconstruction, image: int, options: LineMapOptions) -> float:
    """Robust cost of all lines of the tracks that `image` observes."""
    tracks = problem.tracks
    mine = np.zeros(len(tracks), dtype=bool)
    mine[tracks.track[tracks.image == image]] = True
    rows = np.flatnonzero(mine[tracks.track] & reconstruction.registered[tracks.image])
    distance = line_distances(
        problem, reconstruction, tracks.image[rows], tracks.feature[rows], reconstruction.points[tracks.track[rows]]
    )
    return float(np.log1p((np.minimum(distance, options.point_error_px) / noise_px(problem, reconstruction)) ** 2).sum())


def _neighbors(
    problem: MappingProblem, reconstruction: Reconstruction, image: int, options: LineMapOptions
) -> Bool[np.ndarray, "images"]:
    """Mask of the image and the registered images that share most tracks with it."""
    mine = np.zeros(len(problem.tracks), dtype=bool)
    mine[problem.tracks.track[problem.tracks.image == image]] = True
    shared = (
        np.bincount(problem.tracks.image[mine[problem.tracks.track]], minlength=len(problem.views)) * reconstruction.registered
    )
    chosen = np.zeros(len(problem.views), dtype=bool)
    chosen[np.argsort(-shared, kind="stable")[: options.local_images + 1]] = True
    return chosen & reconstruction.registered


def noise_px(problem: MappingProblem, reconstruction: Reconstruction) -> float:
    """Scale in pixels of the robust loss for these lines: twice their median residual, between 0.2 and 2 pixels."""
    rows = np.flatnonzero(reconstruction.observed)
    tracks = problem.tracks
    distance = line_distances(
        problem, reconstruction, tracks.image[rows], tracks.feature[rows], reconstruction.points[tracks.track[rows]]
    )
    return float(np.clip(2 * np.median(distance), 0.2, 2.0)) if len(rows) else 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenPoints:
    """Lines of one image that should pass through the projections of points of the map.

    Row r of `resection` is observation `rows[r]` of the mapping problem. `down` is gravity in the camera and in the map (unit
    vectors); None where the image or the map has no reading.
    """

    image: int
    rows: Int64[np.ndarray, "_"]
    resection: LineResection
    down: tuple[Float64[np.ndarray, "3"], Float64[np.ndarray, "3"]] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """Candidate pose cam_from_world, mask of the lines that agree with it within the limit, and their score."""

    pose: Rigid
    inliers: Bool[np.ndarray, "_"]
    score: float


def candidate_poses(
    seen: SeenPoints, sources: list[Int64[np.ndarray, "_"]], *, limit_px: float, sigma_deg: float, seed: int
) -> list[Candidate]:
    """Distinct poses for the lines of `seen`, the best supported first.

    `sources` are lists of rows of the resection, each of which samples are drawn from by themselves. Lines agree within
    `limit_px` pixels; `sigma_deg` is the standard deviation of a reading of gravity in degrees.
    """
    resection = seen.resection
    starts = _upright_poses(resection, seen.down, sources, limit_px, sigma_deg, seed) if seen.down is not None else []
    if not starts:
        consensus = resect_from_lines(resection, RansacOptions(max_error=limit_px, max_iterations=1000, seed=seed))
        starts = [] if consensus is None else [consensus.model]
    wide_px = limit_px + gravity_spread_px(sigma_deg, resection.focal_px)
    refined = [pose for start in starts if (pose := _refined(resection, start, wide_px, limit_px)) is not None]
    scored = sorted((_scored(resection, pose, limit_px) for pose in refined), key=lambda item: -item.score)
    distinct: list[Candidate] = []
    for item in scored:
        if not any(same_pose(item.pose, other.pose, _depth(resection, other)) for other in distinct):
            distinct.append(item)
    return distinct


def _upright_poses(
    resection: LineResection,
    down: tuple[Float64[np.ndarray, "3"], Float64[np.ndarray, "3"]],
    sources: list[Int64[np.ndarray, "_"]],
    limit_px: float,
    sigma_deg: float,
    seed: int,
) -> list[Rigid]:
    """Best pose of each search with known gravity, if more than its own sample agrees with it."""
    poses = []
    for number, source in enumerate(sources):
        groups, _ = grouped(
            group=np.arange(len(resection.lines)),
            points=resection.points,
            point_rows=np.arange(len(resection.lines)),
            seen=resection.lines,
            as_lines=True,
            half_extent=resection.half_extent,
            lists=[source],
            down_cam=down[0],
            down_world=down[1],
        )
        if len(groups.list_starts) < 2:
            continue
        for again in range(SEARCHES):
            wide_px = limit_px + again * gravity_spread_px(sigma_deg, resection.focal_px)
            rotation, translation, gain, _ = search(
                groups,
                limit=wide_px / resection.focal_px,
                iterations=SAMPLES,
                seed=(seed << 40) + SEARCHES * number + again + 1,
                floor=0.0,
                first_floor=0.0,
            )
            if gain > groups.sample_size:
                poses.append(Rigid(rotation=rotation, translation=translation))
    return poses


def _refined(resection: LineResection, pose: Rigid, wide_px: float, limit_px: float) -> Rigid | None:
    """Pose refined with limits that shrink by halves from `wide_px` to `limit_px`, because the reading of gravity may be off.

    None if too few lines agree at any of them.
    """
    steps = max(0, math.ceil(math.log2(wide_px / limit_px)))
    for limit in [limit_px * 2.0**k for k in range(steps, -1, -1)] + [limit_px]:
        refined = resection.refine(pose, resection.residuals(pose) < limit, limit / 3)
        if refined is None:
            return None
        pose = refined
    return pose


def _scored(resection: LineResection, pose: Rigid, limit_px: float) -> Candidate:
    residuals = resection.residuals(pose)
    value = np.maximum(1 - np.minimum(residuals / limit_px, 1.0) ** 2, 0)
    return Candidate(pose=pose, inliers=residuals < limit_px, score=float(value.sum()))


def _depth(resection: LineResection, item: Candidate) -> float:
    points = resection.points[item.inliers] if item.inliers.any() else resection.points
    return float(abs(np.median(points @ item.pose.rotation[2] + item.pose.translation[2])))


def same_pose(a: Rigid, b: Rigid, depth: float) -> bool:
    """Whether two poses differ by little, compared with the `depth` of what they see (world units)."""
    turn = math.degrees(math.acos(float(np.clip((np.trace(a.rotation @ b.rotation.T) - 1) / 2, -1, 1))))
    return turn < SAME_DEG and float(np.linalg.norm(a.center - b.center)) < SAME_SHARE * depth


@dataclass(frozen=True, kw_only=True)
class LineEvidence:
    """Evidence for a pose, from all points of the image or from those that it shares with one other image.

    `log10_nfa` is log10 of the number of false alarms (docs/theory/lines.md, Eq. 11), the least over these sets of points,
    `share` the share of that set's points that agree, `inliers` the number of all points that agree, and
    `aligned_share` the share of these whose lines follow gravity.
    """

    log10_nfa: float
    share: float
    inliers: int
    aligned_share: float


def accepted_pose(problem: MappingProblem, reconstruction: Reconstruction, image: int, options: LineMapOptions) -> Rigid | str:
    """Pose cam_from_world of one image (index) in the map, or the reason why it is refused."""
    seen, sources = sighting(problem, reconstruction, image)
    if len(seen.rows) < options.min_registration_inliers:
        return f"sees {len(seen.rows)} points, fewer than the {options.min_registration_inliers} that have to agree"
    if (~seen.resection.aligned).sum() < 2:
        return f"sees {len(seen.rows)} points, but all along gravity"
    candidates = candidate_poses(
        seen,
        [np.arange(len(seen.rows)), *sources],
        limit_px=options.resection_error_px,
        sigma_deg=options.seed.gravity_sigma_deg,
        seed=options.seed.seed,
    )
    if not candidates:
        return f"no pose explains the {len(seen.rows)} points that it sees"
    weighed = [(candidate, evidence(problem, seen, sources, candidate, options)) for candidate in candidates]
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


def contradicted(problem: MappingProblem, reconstruction: Reconstruction, options: LineMapOptions) -> dict[int, str]:
    """Reasons for the registered images (indices) whose evidence no longer holds.

    Only points that four or more other images observe are counted.
    """
    tracks = problem.tracks
    length = np.bincount(tracks.track[reconstruction.observed], minlength=len(tracks))
    reasons = {}
    for image in np.flatnonzero(reconstruction.registered).tolist():
        rows = np.flatnonzero((tracks.image == image) & (length[tracks.track] - reconstruction.observed >= 4))
        seen = _sighting(problem, reconstruction, image, rows)
        inliers = seen.resection.residuals(reconstruction.pose(image)) < options.resection_error_px
        if inliers.sum() < options.min_firm_inliers:
            reasons[image] = (
                f"was taken out again: only {int(inliers.sum())} of its lines agree with points that others checked"
            )
            continue
        held = Candidate(pose=reconstruction.pose(image), inliers=inliers, score=float(inliers.sum()))
        support = evidence(problem, seen, neighbors(problem, reconstruction, image, rows), held, options)
        if support.log10_nfa > options.max_log10_nfa or support.share < options.min_neighbor_share:
            reasons[image] = f"was taken out again: {support.inliers} of {len(rows)} lines agreed in the end"
    return reasons


def sighting(
    problem: MappingProblem, reconstruction: Reconstruction, image: int
) -> tuple[SeenPoints, list[Int64[np.ndarray, "_"]]]:
    """Lines of an image (index) with the points that it sees, and for each of its nearest neighbors the rows that it shares."""
    tracks = problem.tracks
    rows = np.flatnonzero((tracks.image == image) & mapped_tracks(problem, reconstruction)[tracks.track])
    length = np.bincount(tracks.track[reconstruction.observed], minlength=len(tracks))
    rows = rows[np.argsort(-length[tracks.track[rows]], kind="stable")]  # points of many lines are most trusted
    return _sighting(problem, reconstruction, image, rows), neighbors(problem, reconstruction, image, rows)


def _sighting(
    problem: MappingProblem, reconstruction: Reconstruction, image: int, rows: Int64[np.ndarray, "rows"]
) -> SeenPoints:
    known = upright(problem, reconstruction)
    resection = LineResection(
        lines=problem.lines[rows],
        points=reconstruction.points[problem.tracks.track[rows]],
        aligned=problem.aligned[rows],
        focal_px=float(problem.focal_px[image]),
        half_extent=problem.half_extent[image],
    )
    read = known is not None and np.isfinite(problem.gravity[image]).all()
    down = (problem.gravity[image], known.down_world) if known is not None and read else None
    return SeenPoints(image=image, rows=rows, resection=resection, down=down)


def neighbors(
    problem: MappingProblem, reconstruction: Reconstruction, image: int, rows: Int64[np.ndarray, "rows"]
) -> list[Int64[np.ndarray, "_"]]:
    """Indices into `rows` whose points a neighbor observes, for each of the `NEIGHBORS` images that observe most of them.

    `rows` are observations of `image`; images with fewer than `MIN_ROWS` shared points are left out.
    """
    tracks = problem.tracks
    place = np.full(len(tracks), -1)
    place[tracks.track[rows]] = np.arange(len(rows))
    other = np.flatnonzero(reconstruction.observed & (place[tracks.track] >= 0) & (tracks.image != image))
    counts = np.bincount(tracks.image[other], minlength=len(problem.views))
    nearest = np.argsort(-counts, kind="stable")[:NEIGHBORS]
    return [np.sort(place[tracks.track[other[tracks.image[other] == j]]]) for j in nearest if counts[j] >= MIN_ROWS]


def evidence(
    problem: MappingProblem,
    seen: SeenPoints,
    sources: list[Int64[np.ndarray, "_"]],
    candidate: Candidate,
    options: LineMapOptions,
) -> LineEvidence:
    """Evidence for a candidate, from all points or those of one neighbor; chance may choose among these sets, too."""
    agreement = max(
        line_agreement(problem.views[seen.image].camera, options.resection_error_px),
        by_chance(seen.resection, candidate.pose, options.resection_error_px),
    )
    sets = [np.arange(len(seen.rows)), *sources]
    weights = [
        (pose_log10_nfa(int(candidate.inliers[rows].sum()), len(rows), agreement, P6L), float(candidate.inliers[rows].mean()))
        for rows in sets
    ]
    log10_nfa, share = min(weights)
    count = int(candidate.inliers.sum())
    return LineEvidence(
        log10_nfa=log10_nfa + math.log10(len(sets)),
        share=share,
        inliers=count,
        aligned_share=float(seen.resection.aligned[candidate.inliers].mean()) if count else 1.0,
    )


def by_chance(resection: LineResection, pose: Rigid, limit_px: float) -> float:
    """Share of the wrong pairs of a line and a point of this resection that agree with a pose: high where points gather."""
    count = len(resection.lines)
    if count < 2:
        return 1.0
    shares = []
    for shift in np.unique(np.linspace(1, count - 1, 16).astype(int)):
        shuffled = LineResection(
            lines=np.roll(resection.lines, shift, axis=0),
            points=resection.points,
            aligned=resection.aligned,
            focal_px=resection.focal_px,
            half_extent=resection.half_extent,
        )
        shares.append(float((shuffled.residuals(pose) < limit_px).mean()))
    return float(np.mean(shares))

"""Maps from lines alone, against reference cameras: the protocol of Geppert et al. 2020, Sec. 4.1.

Errors are of the registered images after similarity
alignment of camera centers, as the field reports them, and pairwise, which no alignment touches. Hidden keypoints are known
here and nowhere else: they tell how well the server can now name the positions that it was not sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.features import Features
from veil.geometry.gravity import aligned_from_cam
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_centers, pairwise_rotation_deg, pose_error
from veil.matching import Matches
from veil.mechanisms.lines import LineOptions, LineRule, lift_to_lines
from veil.places.maps import NoMap
from veil.places.maps.lines import LineMap, LineMapOptions, LineView, MatchGraph, map_from_lines, match_graph
from veil.places.maps.lines.problem import MappingProblem, mapping_problem
from veil.places.maps.lines.reconstruction import Reconstruction, line_distances
from veil.progress import Progress
from veil.randomness import seeded
from veil.trials.position_leakage import leakage_of_lines
from veil.trials.reconstruction_run import ErrorStatistics, Run, RunSecondsJson

# Matches with a ratio of distances from here on are dropped, as COLMAP does; both methods get the same matches.
MAX_RATIO = 0.8
# Image pairs with fewer matches below the ratio are put down to chance (lines.md#points-and-cameras).
MIN_PAIR_MATCHES = 15


@dataclass(frozen=True, kw_only=True, eq=False)
class MappableScene:
    """A scene ready to be mapped: raw features, matches of all image pairs, reference poses (cam_from_world) and gravity.

    `gravity` holds unit vectors of down in each camera's frame: measured ones if `gravity_is_measured`, else exact ones from
    the reference. `seconds` are those of extraction and matching.
    """

    name: str
    features: Mapping[str, Features]
    matches: Mapping[tuple[str, str], Matches]
    reference: Mapping[str, Rigid]
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    gravity_is_measured: bool
    seconds: RunSecondsJson = field(default_factory=RunSecondsJson)


def map_lines(
    subject: MappableScene,
    *,
    seed: int,
    gravity_noise_deg: float = 0.0,
    rule: LineRule | None = None,
    options: LineMapOptions | None = None,
    progress: Progress | None = None,
) -> Run:
    """The run of mapping from lines that hide the keypoints; `seed` draws the lines and the noise of gravity.

    `gravity_noise_deg` is the standard deviation of both tilts of gravity, `rule` how lines are drawn (None:
    at random, half of them along gravity).
    """
    views = line_views(subject, seed=seed, gravity_noise_deg=gravity_noise_deg, rule=rule)
    start = time.perf_counter()
    graph = subject_graph(subject)
    line_map = map_from_lines(views, graph, options=options, progress=progress)
    seconds: RunSecondsJson = {**subject.seconds, "map": time.perf_counter() - start}
    base = Run(
        scene=subject.name,
        method="lines",
        seed=seed,
        gravity_noise_deg=gravity_noise_deg,
        total=len(views),
        gravity_is_measured=subject.gravity_is_measured,
        aligned_share=float(np.mean([view.lines.aligned.mean() for view in views.values()])),
        seconds=seconds,
    )
    if isinstance(line_map, NoMap):
        return replace(base, reason=line_map.reason)
    problem = mapping_problem(views, graph, line_map.tracks)
    reconstruction = _reconstruction(problem, line_map)
    rows = np.flatnonzero(line_map.observed)
    tracks = line_map.tracks
    distance = line_distances(
        problem, reconstruction, tracks.image[rows], tracks.feature[rows], line_map.points[tracks.track[rows]]
    )
    leakage = leakage_of_lines(problem, reconstruction, subject.features)
    run = replace(
        base,
        refused=line_map.refused,
        check=line_map.check,
        observations=len(rows),
        line_reprojection_px=float(np.median(distance)),
        point_reprojection_px=leakage.median_px,
        leakage=leakage,
    )
    mapped = np.unique(tracks.track[rows])
    return judged(run, subject.reference, line_map.cam_from_world, line_map.points[mapped])


def subject_graph(subject: MappableScene) -> MatchGraph:
    """The graph of the subject's matches that mapping from lines takes; pairs with few distinctive matches are left out."""
    pairs = {
        pair: matches for pair, matches in subject.matches.items() if (matches.ratios < MAX_RATIO).sum() >= MIN_PAIR_MATCHES
    }
    return match_graph(
        {name: len(item) for name, item in subject.features.items()},
        {pair: matches.indices for pair, matches in pairs.items()},
        ratios={pair: matches.ratios for pair, matches in pairs.items()},
        max_ratio=MAX_RATIO,
    )


def line_views(
    subject: MappableScene,
    *,
    seed: int,
    gravity_noise_deg: float = 0.0,
    rule: LineRule | None = None,
) -> dict[str, LineView]:
    """The lines that hide the keypoints of each image in the run of `seed`, with the image's camera, by name.

    Gravity is disturbed by `gravity_noise_deg` before lines are drawn along it.
    """
    options = rule or LineOptions()
    gravity = disturbed(subject.gravity, gravity_noise_deg, name=f"{subject.name} {seed}")
    randomness = seeded(f"reconstruction {subject.name} {seed}")
    return {
        name: LineView(
            camera=item.camera, lines=lift_to_lines(item, gravity=gravity.get(name), randomness=randomness, options=options)
        )
        for name, item in subject.features.items()
    }


def disturbed(
    gravity: Mapping[str, Float64[np.ndarray, "3"]], sigma_deg: float, *, name: str
) -> dict[str, Float64[np.ndarray, "3"]]:
    """Unit vectors of `gravity`, each tilted about two horizontal axes by independent normal angles of `sigma_deg`.

    `name` seeds the draws. Raises InputError unless `sigma_deg` lies in [0, 45).
    """
    if not 0 <= sigma_deg < 45:
        raise InputError(f"gravity noise must lie in [0, 45) degrees, got {sigma_deg!r}")
    random = np.random.default_rng(list(f"gravity noise {name}".encode()))
    tilted = {}
    for image in sorted(gravity):
        tilt = np.tan(np.radians(random.normal(0.0, 1.0, 2) * sigma_deg))
        leaning = aligned_from_cam(gravity[image]).T @ np.array([tilt[0], 1.0, tilt[1]])
        tilted[image] = leaning / np.linalg.norm(leaning)
    return tilted


def _reconstruction(problem: MappingProblem, line_map: LineMap) -> Reconstruction:
    """A finished map from lines as the mapper's reconstruction of its problem."""
    images = len(problem.views)
    rotations, translations = np.tile(np.eye(3), (images, 1, 1)), np.zeros((images, 3))
    registered = np.zeros(images, dtype=bool)
    for index, name in enumerate(line_map.tracks.names):
        if name in line_map.cam_from_world:
            registered[index] = True
            rotations[index] = line_map.cam_from_world[name].rotation
            translations[index] = line_map.cam_from_world[name].translation
    return Reconstruction(
        registered=registered,
        rotations=rotations,
        translations=translations,
        points=line_map.points,
        observed=line_map.observed,
    )


def judged(run: Run, reference: Mapping[str, Rigid], poses: Mapping[str, Rigid], points: np.ndarray) -> Run:
    """The run with its errors, and with poses and points in the reference's frame.

    Fewer than three images with a reference pose give no alignment: the map stays in its own frame, and `reason` says so.
    """
    names = sorted(set(poses) & set(reference))
    if len(names) < 3:
        return replace(run, cam_from_world=poses, points=points, reason="fewer than three images have a reference pose")
    mapped, references = [poses[name] for name in names], [reference[name] for name in names]
    alignment = align_centers(mapped, references)
    errors = {name: pose_error(poses[name], reference[name], alignment) for name in names}
    values = np.array(list(errors.values()))
    centers = np.array([reference[name].center for name in sorted(reference)])
    return replace(
        run,
        cam_from_world={name: _moved(pose, alignment) for name, pose in poses.items()},
        points=alignment.apply(points),
        position=ErrorStatistics.of(values[:, 0]),
        rotation_deg=ErrorStatistics.of(values[:, 1]),
        pairwise_rotation_deg=pairwise_rotation_deg(mapped, references),
        errors=errors,
        extent=float(np.linalg.norm(np.ptp(centers, axis=0))),
    )


def _moved(cam_from_map: Rigid, reference_from_map: Similarity) -> Rigid:
    """The camera's pose in the reference's frame."""
    rotation = cam_from_map.rotation @ reference_from_map.rotation.T
    return Rigid(rotation=rotation, translation=-rotation @ reference_from_map.apply(cam_from_map.center))

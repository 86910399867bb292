"""Maps from lines alone and from raw keypoints, against reference cameras: the protocol of Geppert et al. 2020, Sec. 4.1.

Both start from the same features and the same matches in the same run. Errors are of the registered images after similarity
alignment of camera centers, as the field reports them, and pairwise, which no alignment touches. Hidden keypoints are known
here and nowhere else: they tell how well the server can now name the positions that it was not sent.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.features import Features
from veil.forms import Form
from veil.geometry.camera import as_colmap
from veil.geometry.gravity import aligned_from_cam
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_centers, pairwise_rotation_deg, pose_error
from veil.mapping import MapImage, MapOptions, NoMap, build_map
from veil.mapping.lines import (
    LineMap,
    LineMapOptions,
    LineView,
    MatchGraph,
    NoLineMap,
    map_from_lines,
    match_graph,
)
from veil.mapping.lines.reconstruction import Model, World, line_distances, world_of
from veil.matching import Matches
from veil.mechanisms.lines import LineOptions, lift_to_lines
from veil.mechanisms.public import publish
from veil.randomness import seeded
from veil.scene import Scene
from veil.studies.mapping.plain_colmap import plain_map
from veil.studies.mapping.position_leakage import leak_of_lines, leak_of_points
from veil.studies.mapping.reconstruction_run import Run, Spread

# COLMAP's own ratio; the two methods get the same matches.
MAX_RATIO = 0.8
# Pairs with fewer matches below the ratio are chance (lines.md#points-and-cameras).
MIN_PAIR_MATCHES = 15


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A scene ready to be mapped: raw features, matches of all pairs, reference poses, exact or measured gravity."""

    name: str
    features: Mapping[str, Features]
    matches: Mapping[tuple[str, str], Matches]
    reference: Mapping[str, Rigid]
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    gravity_is_measured: bool
    seconds: Mapping[str, float] = field(default_factory=dict)


def map_points(subject: Subject, *, seed: int = 0, progress: Callable[[int, int], None] | None = None) -> Run:
    """Plain COLMAP on the raw keypoints. Verification counts as matching; `seconds["map"]` is incremental mapping alone."""
    images = {n: MapImage(camera=f.camera, keypoints=f.keypoints, form=publish(f)) for n, f in subject.features.items()}
    with tempfile.TemporaryDirectory(prefix="veil-") as folder:
        scene, verifying, mapping = plain_map(
            images, _distinctive(subject.matches), workdir=Path(folder), seed=seed, progress=progress
        )
    seconds = {**subject.seconds, "match": subject.seconds.get("match", 0.0) + verifying, "map": mapping}
    return _of_points(subject, scene, method="points", seed=seed, seconds=seconds)


def map_checked(
    subject: Subject,
    *,
    forms: Mapping[str, Form] | None = None,
    matches: Mapping[tuple[str, str], Matches] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """The map that `veil map` makes of the positions: verified by evidence, checked, refused where it contradicts itself.

    Of other forms of the same features if `forms` and their `matches` are given. `seconds["map"]` holds verification too.
    """
    forms = forms or {name: publish(item) for name, item in subject.features.items()}
    images = {n: MapImage(camera=f.camera, keypoints=f.keypoints, form=forms[n]) for n, f in subject.features.items()}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="veil-") as folder:
        scene = build_map(
            images,
            subject.matches if matches is None else matches,
            workdir=Path(folder),
            options=MapOptions(seed=seed),
            gravity=subject.gravity if subject.gravity_is_measured else None,
            progress=progress,
        )
    seconds = {**subject.seconds, "map": time.perf_counter() - start}
    return _of_points(subject, scene, method="checked", seed=seed, seconds=seconds)


def _of_points(subject: Subject, scene: Scene | NoMap, *, method: str, seed: int, seconds: Mapping[str, float]) -> Run:
    total = len(subject.features)
    base = Run(scene=subject.name, method=method, seed=seed, gravity_noise_deg=0.0, total=total, seconds=seconds)
    if isinstance(scene, NoMap):
        return replace(base, reason=scene.reason, refused=scene.left_out, check=scene.check)
    poses = {name: image.cam_from_world for name, image in scene.images.items()}
    errors = np.concatenate([_reprojection(scene, name) for name in scene.images])
    run = replace(
        base,
        observations=scene.observation_count,
        point_reprojection_px=float(np.median(errors)),
        leak=leak_of_points(),
        refused={} if scene.check is None else scene.check.left_out,
        check=scene.check,
    )
    return _judged(run, subject.reference or poses, poses, scene.points)


def map_lines(
    subject: Subject,
    *,
    seed: int,
    gravity_noise_deg: float = 0.0,
    aligned_share: float = LineOptions().aligned_share,
    options: LineMapOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """The map of lines that stand for the keypoints, drawn (and gravity disturbed) by `seed`."""
    views = line_views(subject, seed=seed, gravity_noise_deg=gravity_noise_deg, aligned_share=aligned_share)
    start = time.perf_counter()
    graph = subject_graph(subject)
    found = map_from_lines(views, graph, options=options, progress=progress)
    seconds = {**subject.seconds, "map": time.perf_counter() - start}
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
    if isinstance(found, NoLineMap):
        return replace(base, reason=found.reason)
    world = world_of(views, graph, found.tracks)
    model = _model(world, found)
    rows = np.flatnonzero(found.observed)
    tracks = found.tracks
    distance = line_distances(world, model, tracks.image[rows], tracks.feature[rows], found.points[tracks.track[rows]])
    leak = leak_of_lines(world, model, subject.features)
    run = replace(
        base,
        refused=found.refused,
        check=found.check,
        observations=len(rows),
        line_reprojection_px=float(np.median(distance)),
        point_reprojection_px=leak.median_px,
        leak=leak,
    )
    mapped = np.unique(tracks.track[rows])
    return _judged(run, subject.reference, found.cam_from_world, found.points[mapped])


def subject_graph(subject: Subject) -> MatchGraph:
    """The matches as mapping from lines takes them."""
    pairs = {pair: found for pair, found in subject.matches.items() if (found.ratios < MAX_RATIO).sum() >= MIN_PAIR_MATCHES}
    return match_graph(
        {name: len(item) for name, item in subject.features.items()},
        {pair: found.indices for pair, found in pairs.items()},
        ratios={pair: found.ratios for pair, found in pairs.items()},
        max_ratio=MAX_RATIO,
    )


def line_views(
    subject: Subject,
    *,
    seed: int,
    gravity_noise_deg: float = 0.0,
    aligned_share: float = LineOptions().aligned_share,
) -> dict[str, LineView]:
    """The lines that stand for the keypoints in the run of `seed`."""
    options = LineOptions(aligned_share=aligned_share)
    gravity = disturbed(subject.gravity, gravity_noise_deg, name=f"{subject.name} {seed}")
    chance = seeded(f"reconstruction {subject.name} {seed}")
    return {
        name: LineView(camera=item.camera, lines=lift_to_lines(item, gravity=gravity.get(name), chance=chance, options=options))
        for name, item in subject.features.items()
    }


def disturbed(
    gravity: Mapping[str, Float64[np.ndarray, "3"]], sigma_deg: float, *, name: str
) -> dict[str, Float64[np.ndarray, "3"]]:
    """Every direction tilted about two horizontal axes by independent normal angles of `sigma_deg`."""
    if not 0 <= sigma_deg < 45:
        raise InputError(f"gravity noise must lie in [0, 45) degrees, got {sigma_deg!r}")
    random = np.random.default_rng(list(f"gravity noise {name}".encode()))
    found = {}
    for image in sorted(gravity):
        tilt = np.tan(np.radians(random.normal(0.0, 1.0, 2) * sigma_deg))
        leaning = aligned_from_cam(gravity[image]).T @ np.array([tilt[0], 1.0, tilt[1]])
        found[image] = leaning / np.linalg.norm(leaning)
    return found


def _distinctive(matches: Mapping[tuple[str, str], Matches]) -> dict[tuple[str, str], Matches]:
    return {pair: found.take(found.ratios < MAX_RATIO) for pair, found in matches.items()}


def _model(world: World, found: LineMap) -> Model:
    images = len(world.views)
    rotations, translations = np.tile(np.eye(3), (images, 1, 1)), np.zeros((images, 3))
    registered = np.zeros(images, dtype=bool)
    for index, name in enumerate(found.tracks.names):
        if name in found.cam_from_world:
            registered[index] = True
            rotations[index] = found.cam_from_world[name].rotation
            translations[index] = found.cam_from_world[name].translation
    return Model(
        registered=registered, rotations=rotations, translations=translations, points=found.points, observed=found.observed
    )


def _judged(run: Run, reference: Mapping[str, Rigid], poses: Mapping[str, Rigid], points: np.ndarray) -> Run:
    """The run with its errors, poses and points in the reference's frame."""
    names = sorted(set(poses) & set(reference))
    if len(names) < 3:
        return replace(run, cam_from_world=poses, points=points, reason="fewer than three images have a reference pose")
    ours, theirs = [poses[name] for name in names], [reference[name] for name in names]
    alignment = align_centers(ours, theirs)
    errors = {name: pose_error(poses[name], reference[name], alignment) for name in names}
    values = np.array(list(errors.values()))
    centers = np.array([reference[name].center for name in sorted(reference)])
    return replace(
        run,
        cam_from_world={name: _moved(pose, alignment) for name, pose in poses.items()},
        points=alignment.apply(points),
        position=Spread.of(values[:, 0]),
        rotation_deg=Spread.of(values[:, 1]),
        pairwise_rotation_deg=pairwise_rotation_deg(ours, theirs),
        errors=errors,
        extent=float(np.linalg.norm(np.ptp(centers, axis=0))),
    )


def _moved(cam_from_map: Rigid, reference_from_map: Similarity) -> Rigid:
    rotation = cam_from_map.rotation @ reference_from_map.rotation.T
    return Rigid(rotation=rotation, translation=-rotation @ reference_from_map.apply(cam_from_map.center))


def _reprojection(scene: Scene, name: str) -> np.ndarray:
    image = scene.images[name]
    in_camera = image.cam_from_world.apply(scene.points[image.point_rows])
    projected = np.asarray(as_colmap(image.camera).img_from_cam(in_camera))
    return np.linalg.norm(projected - image.keypoints, axis=1)

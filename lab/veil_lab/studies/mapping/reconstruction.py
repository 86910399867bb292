"""Maps from raw keypoints, against reference cameras, beside the maps from lines of `veil.trials.line_maps`.

Both start from the same features and the same matches in the same run.

Maps by plain COLMAP are the comparison: COLMAP's own verification and incremental mapper run with their defaults, except that
known intrinsics are held; there is none of veil's evidence, no second matching, and no check of the map.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.forms import Form
from veil.geometry.camera import as_colmap
from veil.matching import Matches
from veil.mechanisms.public import publish
from veil.places.maps import MapImage, MapOptions, NoMap, build_map
from veil.places.maps.colmap.database import write_database
from veil.places.maps.scenes import scene_of
from veil.progress import Progress
from veil.scene import Scene
from veil.trials.line_maps import MAX_RATIO, MappableScene, judged
from veil.trials.position_leakage import leakage_of_points
from veil.trials.reconstruction_run import Method, Run, RunSecondsJson


def plain_map(
    images: Mapping[str, MapImage],
    matches: Mapping[tuple[str, str], Matches],
    *,
    workdir: Path,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Scene | NoMap, float, float]:
    """The largest model, or the reason why there is none, and the wall seconds of verification and of mapping.

    `matches` are all used: callers drop those with a ratio of 0.8 or more, as COLMAP would. `workdir` takes the database and
    the models. `progress` is called with the numbers of registered images and of all.
    """
    from veil.colmap import pycolmap

    start = time.perf_counter()
    _, known = write_database(workdir / "database.db", images, matches)
    pycolmap.set_random_seed(seed)
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = seed
    pycolmap.geometric_verification(workdir / "database.db", two_view_geometry_options=verification)
    verified = time.perf_counter()
    registered = 0

    def on_image() -> None:
        nonlocal registered
        registered += 1
        if progress is not None:
            progress(min(registered + 2, len(images)), len(images))

    pipeline = pycolmap.IncrementalPipelineOptions()
    pipeline.extract_colors = False
    pipeline.min_model_size = min(3, len(images))
    pipeline.multiple_models = len(images) > 3
    pipeline.random_seed, pipeline.num_threads = seed, 1  # with more threads the same seed gives several models
    guessed = any(not image.camera.focal_is_known for image in images.values())
    pipeline.ba_refine_focal_length = pipeline.ba_refine_extra_params = guessed
    pipeline.constant_cameras = known
    (workdir / "sparse").mkdir()
    models = pycolmap.incremental_mapping(
        workdir / "database.db", workdir, workdir / "sparse", options=pipeline, next_image_callback=on_image
    )
    done = time.perf_counter()
    best = max(models.values(), key=lambda model: (model.num_reg_images(), model.num_points3D()), default=None)
    scene = NoMap("no two images gave enough matches for a start") if best is None else scene_of(best, images)
    return scene, verified - start, done - verified


def map_points(subject: MappableScene, *, seed: int = 0, progress: Progress | None = None) -> Run:
    """The run of plain COLMAP on the raw keypoints.

    Verification counts as matching; `seconds["map"]` is incremental mapping alone.
    """
    images = {n: MapImage(camera=f.camera, keypoints=f.keypoints, form=publish(f)) for n, f in subject.features.items()}
    with tempfile.TemporaryDirectory(prefix="veil-") as folder:
        scene, verifying, mapping = plain_map(
            images, distinctive(subject.matches), workdir=Path(folder), seed=seed, progress=progress
        )
    seconds: RunSecondsJson = {**subject.seconds, "match": subject.seconds.get("match", 0.0) + verifying, "map": mapping}
    return _of_points(subject, scene, method="points", seed=seed, seconds=seconds)


def map_checked(
    subject: MappableScene,
    *,
    forms: Mapping[str, Form] | None = None,
    matches: Mapping[tuple[str, str], Matches] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Run:
    """The run of `veil map` on the positions: verified by evidence, checked, and refused where it contradicts itself.

    `forms`, with their `matches`, stand in for the raw descriptors: other forms of the same features, by image name.
    `seconds["map"]` holds verification too.
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
    seconds: RunSecondsJson = {**subject.seconds, "map": time.perf_counter() - start}
    return _of_points(subject, scene, method="checked", seed=seed, seconds=seconds)


def _of_points(subject: MappableScene, scene: Scene | NoMap, *, method: Method, seed: int, seconds: RunSecondsJson) -> Run:
    """The run of a map from points, with its errors, or of none with the reason."""
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
        leakage=leakage_of_points(),
        refused={} if scene.check is None else scene.check.left_out,
        check=scene.check,
    )
    return judged(run, subject.reference or poses, poses, scene.points)


def distinctive(matches: Mapping[tuple[str, str], Matches]) -> dict[tuple[str, str], Matches]:
    """The matches of each pair whose ratio is below `MAX_RATIO`."""
    return {pair: pair_matches.take(pair_matches.ratios < MAX_RATIO) for pair, pair_matches in matches.items()}


def _reprojection(scene: Scene, name: str) -> np.ndarray:
    """Distances in pixels between the keypoints of an image and the projections of their points."""
    image = scene.images[name]
    in_camera = image.cam_from_world.apply(scene.points[image.point_rows])
    projected = np.asarray(as_colmap(image.camera).img_from_cam(in_camera))
    return np.linalg.norm(projected - image.keypoints, axis=1)

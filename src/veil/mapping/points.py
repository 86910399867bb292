"""Point structure-from-motion through COLMAP, from matches of raw or private features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from veil.errors import InputError
from veil.forms import Form, Subsets
from veil.geometry.camera import Camera, as_colmap, from_colmap
from veil.geometry.rigid import rigid_from_colmap
from veil.match.neighbors import Matches
from veil.scene import MappedImage, Scene

WORD_TRIALS, WORD_INLIERS = 30_000, 25


@dataclass(frozen=True, kw_only=True, eq=False)
class MapImage:
    """One image to map: what an upload holds, or a public image's raw descriptors."""

    camera: Camera
    keypoints: Float32[np.ndarray, "features 2"]
    form: Form


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """Models of fewer than `min_model_images` images are dropped; one seed serves verification and mapping."""

    min_model_images: int = 3
    seed: int = 0


@dataclass(frozen=True)
class NoMap:
    """No map could be built, and why."""

    reason: str


def build_map(
    images: Mapping[str, MapImage],
    matches: Mapping[tuple[str, str], Matches],
    *,
    workdir: Path,
    options: MapOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scene | NoMap:
    """Verify matches geometrically, reconstruct incrementally, keep the model with most images.

    `workdir` is an empty folder that receives `database.db` and `sparse/` in COLMAP's formats; both hold released
    data only. Raises InputError if there are fewer than two images.
    """
    options = options or MapOptions()
    verify(images, matches, workdir=workdir, options=options)
    return reconstruct(images, workdir=workdir, options=options, progress=progress)


def verify(
    images: Mapping[str, MapImage],
    matches: Mapping[tuple[str, str], Matches],
    *,
    workdir: Path,
    options: MapOptions,
) -> None:
    """The first half of `build_map`: `database.db` with geometrically verified matches."""
    import pycolmap

    if len(images) < 2:
        raise InputError(f"a map needs at least two images, got {len(images)}")
    _fill_database(workdir / "database.db", sorted(images), images, matches)
    # COLMAP seeds its threads' generators with seed + thread, so that one thread is what repeats.
    pycolmap.set_random_seed(options.seed)
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = options.seed
    if any(isinstance(image.form, Subsets) for image in images.values()):
        # Shared words are mostly coincidences: fewer of them are right than COLMAP expects of matches, and more must agree.
        verification.ransac.min_inlier_ratio = 0.05
        verification.ransac.max_num_trials = WORD_TRIALS
        verification.min_num_inliers = WORD_INLIERS
    pycolmap.geometric_verification(workdir / "database.db", two_view_geometry_options=verification)


def reconstruct(
    images: Mapping[str, MapImage],
    *,
    workdir: Path,
    options: MapOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Scene | NoMap:
    """The second half of `build_map`, from the database that `verify` left in `workdir`."""
    import pycolmap

    registered = 0

    def on_image() -> None:
        nonlocal registered
        registered += 1
        if progress is not None:
            progress(min(registered + 2, len(images)), len(images))

    (workdir / "sparse").mkdir()
    pycolmap.set_random_seed(options.seed)
    models = pycolmap.incremental_mapping(
        workdir / "database.db",
        workdir,
        workdir / "sparse",
        options=_pipeline(images, options),
        next_image_callback=on_image,
    )
    if not models:
        return NoMap(
            "no two images gave enough matches for a start; take photographs with more overlap, or a smaller m; "
            "words need a larger epsilon to map than to localize"
        )
    best = max(models.values(), key=lambda model: (model.num_reg_images(), model.num_points3D()))
    return _scene(best, images)


def _pipeline(images: Mapping[str, MapImage], options: MapOptions) -> Any:
    import pycolmap

    pipeline = pycolmap.IncrementalPipelineOptions()
    pipeline.extract_colors = False  # there are no photographs here
    pipeline.min_model_size = min(options.min_model_images, len(images))
    pipeline.random_seed = options.seed
    pipeline.multiple_models = len(images) > options.min_model_images
    guessed = any(not image.camera.focal_is_known for image in images.values())
    pipeline.ba_refine_focal_length = guessed
    pipeline.ba_refine_extra_params = guessed
    return pipeline


def _fill_database(
    path: Path,
    names: Sequence[str],
    images: Mapping[str, MapImage],
    matches: Mapping[tuple[str, str], Matches],
) -> None:
    import pycolmap

    database = pycolmap.Database.open(path)
    try:
        cameras: dict[Camera, int] = {}
        image_ids = {}
        for name in names:
            image = images[name]
            if image.camera not in cameras:  # images of equal intrinsics share one camera
                cameras[image.camera] = _write_camera(database, image.camera)
            image_ids[name] = _write_image(database, name, cameras[image.camera])
            database.write_keypoints(image_ids[name], image.keypoints)
        for (a, b), found in matches.items():
            if len(found):
                database.write_matches(image_ids[a], image_ids[b], found.indices.astype(np.uint32))
    finally:
        database.close()


def _write_camera(database: Any, camera: Camera) -> int:
    import pycolmap

    model = as_colmap(camera)
    camera_id = database.write_camera(model)
    model.camera_id = camera_id
    rig = pycolmap.Rig(rig_id=camera_id)
    rig.add_ref_sensor(model.sensor_id)
    database.write_rig(rig, use_rig_id=True)
    return camera_id


def _write_image(database: Any, name: str, camera_id: int) -> int:
    import pycolmap

    image = pycolmap.Image(name=name, camera_id=camera_id)
    image_id = database.write_image(image)
    image.image_id = image_id
    frame = pycolmap.Frame(frame_id=image_id, rig_id=camera_id)
    frame.add_data_id(image.data_id)
    database.write_frame(frame, use_frame_id=True)
    return image_id


def _scene(model: Any, images: Mapping[str, MapImage]) -> Scene:
    point_ids = sorted(model.points3D)
    row_of = {point_id: row for row, point_id in enumerate(point_ids)}
    mapped = {}
    for image_id in model.reg_image_ids():
        image = model.images[image_id]
        seen = [(i, row_of[p.point3D_id]) for i, p in enumerate(image.points2D) if p.has_point3D()]
        rows = np.array([i for i, _ in seen], dtype=np.int64)
        source = images[image.name]
        mapped[image.name] = MappedImage(
            name=image.name,
            camera=from_colmap(model.cameras[image.camera_id]),
            cam_from_world=rigid_from_colmap(image.cam_from_world()),
            keypoints=source.keypoints[rows],
            point_rows=np.array([row for _, row in seen], dtype=np.int64),
            form=source.form.take(rows),
        )
    return Scene(
        images=mapped,
        points=np.array([model.points3D[point_id].xyz for point_id in point_ids], dtype=np.float64).reshape(-1, 3),
        mean_reprojection_error_px=float(model.compute_mean_reprojection_error()),
    )

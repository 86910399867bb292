"""Maps by plain COLMAP from features that veil matched: the comparison for veil's maps of positions.

COLMAP's own verification and incremental mapper run with their defaults, except that known intrinsics are held; there is none
of veil's evidence, no second matching, and no check of the map.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from veil.matching.neighbors import Matches
from veil.places.maps.database import write_database
from veil.places.maps.images import MapImage
from veil.places.maps.points import NoMap
from veil.places.maps.scenes import scene_of
from veil.progress import Progress
from veil.scene import Scene


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
    # COLMAP seeds its threads' generators with seed + thread, so that one thread is what repeats.
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
    pipeline.random_seed = seed
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

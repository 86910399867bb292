"""Growth of maps of positions: new images are matched with those of a map and added to it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np

from veil.errors import InputError
from veil.forms import Lines
from veil.mapping import Limits, MapImage, MapOptions, NoMap
from veil.mapping.growth import grow_map, images_of, require_addable
from veil.matching import match_pairs
from veil.pipelines.mapping import BuiltMap, MappingOptions, Steps, readings_of, silent
from veil.pipelines.maps import Map
from veil.pipelines.uploads import LoadedImage
from veil.scene import Scene, mean_down


def add_positions(
    base: Map,
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions,
    gravity: Mapping[str, np.ndarray] | None = None,
    steps: Steps = silent,
) -> BuiltMap | NoMap:
    """The map `base` with those of the new `images` that agree with it, or why none can be added; `base` stays as it is.

    - `base`: a map of positions. The poses of its images and its gravity are those of the new map too.
    - `images`: by names that the map does not have, in the form of the map's.
    - `options`: seed, workers, ratio test and time limit, as for a new map.
    - `gravity`: readings of the new images; they give the map its gravity if it has none.

    Raises InputError if the map has a name already, came from lines or is of another form, VeilError if COLMAP fails.
    """
    placed = {}
    for name, image in images.items():
        if isinstance(image.positions, Lines):
            raise InputError(f"{name} hides its positions, and the map was made from positions; map such messages apart")
        placed[name] = MapImage(camera=image.camera, keypoints=image.positions, form=image.form)
    require_addable(base.scene, placed)
    settings = MapOptions(seed=options.seed, max_ratio=options.max_ratio, limits=Limits(max_seconds=options.max_seconds))
    forms = {name: image.form for name, image in {**images_of(base.scene), **placed}.items()}
    with steps("matching") as bar:
        matches = match_pairs(forms, pairs_with_new(base.scene, placed), workers=options.workers, progress=bar)
    with tempfile.TemporaryDirectory(prefix="veil-map-") as workdir, steps("mapping") as bar:
        scene = grow_map(base.scene, placed, matches, workdir=Path(workdir), options=settings, gravity=gravity, progress=bar)
    if isinstance(scene, NoMap):
        return scene
    readings = None
    if gravity is not None:
        readings = readings_of(scene, gravity)
        if scene.measured_down is None:
            scene = replace(scene, measured_down=mean_down(gravity, scene.images))
    left_out = {} if scene.check is None else {n: r for n, r in scene.check.left_out.items() if n in placed}
    return BuiltMap(map=Map(scene=scene), check=scene.check, left_out=left_out, readings=readings)


def pairs_with_new(base: Scene, new: Mapping[str, MapImage]) -> list[tuple[str, str]]:
    """All pairs of a new image with another new one or with one of the map, each in the order of the names."""
    pairs = [*combinations(sorted(new), 2), *product(sorted(new), sorted(base.images))]
    return sorted((min(pair), max(pair)) for pair in pairs)

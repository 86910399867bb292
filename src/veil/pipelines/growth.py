"""Growth of maps of positions: new images are matched with those of a map and added to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from veil.errors import InputError
from veil.files.checkpoints import working_folder
from veil.forms import Lines
from veil.mapping import Limits, MapImage, MapOptions, NoMap
from veil.mapping.growth import grow_map, images_of, require_addable
from veil.pipelines.chosen_matches import MatchingWork, matched_as_chosen
from veil.pipelines.mapping import BuiltMap, MappingOptions, Steps, readings_of, silent
from veil.pipelines.maps import Map
from veil.pipelines.uploads import LoadedImage
from veil.scene import mean_down


def add_positions(
    base: Map,
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    steps: Steps = silent,
) -> BuiltMap | NoMap:
    """The map `base` with those of the new `images` that agree with it, or why none can be added; `base` stays as it is.

    - `base`: a map of positions. The poses of its images and its gravity are those of the new map too.
    - `images`: by names that the map does not have, in the form of the map's.
    - `options`: seed, workers, pairs, ratio test and time limit, as for a new map; pairs of two images of the map are left out.
    - `gravity`: readings of the new images; they give the map its gravity if it has none.

    - `work`: what keeps matches and where the mapper works; the images of the map are in no file, so no engine matches them.

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
    work = replace(work, engine=None) if work is not None else None
    old = frozenset(base.scene.images)
    matches = matched_as_chosen(forms, options.pairs, work, workers=options.workers, steps=steps, matched_already=old)
    with working_folder(None if work is None else work.unfinished) as workdir, steps("mapping") as bar:
        scene = grow_map(base.scene, placed, matches, workdir=workdir, options=settings, gravity=gravity, progress=bar)
    if isinstance(scene, NoMap):
        return scene
    readings = None
    if gravity is not None:
        readings = readings_of(scene, gravity)
        if scene.measured_down is None:
            scene = replace(scene, measured_down=mean_down(gravity, scene.images))
    left_out = {} if scene.check is None else {n: r for n, r in scene.check.left_out.items() if n in placed}
    return BuiltMap(map=Map(scene=scene), check=scene.check, left_out=left_out, readings=readings)

"""Growth of maps of positions: new images are matched with those of a map and added to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from veil.errors import InputError
from veil.files.maps.checkpoints import working_folder
from veil.forms import Lines
from veil.matching.lightglue import LightGlue
from veil.places.built_maps import BuiltMap, MappingOptions, readings_of
from veil.places.held_map import Map, ranked_images
from veil.places.line_mapping import map_lines
from veil.places.located_images import with_located
from veil.places.maps import MapImage, MapOptions, NoMap, StageLimits
from veil.places.maps.growth import grow_map as grown_scene
from veil.places.maps.growth import require_addable
from veil.places.maps.scenes import images_of
from veil.places.pairs.choice import pairs_with_map
from veil.places.pairs.images import LoadedImage, PlacedImages, of_map_images
from veil.places.pairs.matching import MatchingWork, matched_as_chosen
from veil.progress import Progress, Steps, silent
from veil.scene import mean_down


def grow_loaded(
    base: Map,
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions | None = None,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    network: LightGlue | None = None,
    steps: Steps[Progress] = silent,
) -> BuiltMap | NoMap:
    """Add images as a server holds them to a map, by lines if all hide their positions; `base` stays as it is.

    Arguments, and what is raised, are those of `veil.map_images`.
    """
    options = options or MappingOptions()
    if images and all(isinstance(image.positions, Lines) for image in images.values()):
        if network is not None:
            PlacedImages(images)  # says why it cannot be
        return map_lines(images, options=options, add_to=base, work=work, steps=steps)
    return add_positions(base, images, options=options, gravity=gravity, work=work, network=network, steps=steps)


def add_positions(
    base: Map,
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    network: LightGlue | None = None,
    steps: Steps[Progress] = silent,
) -> BuiltMap | NoMap:
    """The map `base` with those of the new `images` that agree with it, or why none can be added; `base` stays as it is.

    - `base`: a map of positions. The poses of its images and its gravity are those of the new map too.
    - `images`: by names that the map does not have, in the form of the map's.
    - `options`: seed, workers, pairs, ratio test and time limit, as for a new map; pairs of two images of the map are left out.
    - `gravity`: readings of the new images; they give the map its gravity if it has none.
    - `work`: what keeps matches and where the mapper works; the images of the map are in no file, so no engine matches them.
    - `network`: matches in place of nearest neighbors, where map and new images are raw.

    Raises InputError if the map has a name already, came from lines or is of another form, or a network is to match what is
    protected, VeilError if COLMAP fails.
    """
    placed = {}
    for name, image in images.items():
        if isinstance(image.positions, Lines):
            raise InputError(f"{name} hides its positions, and the map was made from positions; map such messages apart")
        placed[name] = MapImage(camera=image.camera, keypoints=image.positions, form=image.form)
    require_addable(base.scene, placed)
    ranked = partial(ranked_images, base, threads=options.workers)
    choice = pairs_with_map(
        ranked, {name: image.form for name, image in placed.items()}, options.pairs, threads=options.workers
    )
    settings = MapOptions(seed=options.seed, max_ratio=options.max_ratio, limits=StageLimits(max_seconds=options.max_seconds))
    known = {**images_of(base.scene), **placed}
    forms = {name: image.form for name, image in known.items()}
    work = replace(work, engine=None) if work is not None else None
    if network is not None:
        work = replace(work or MatchingWork(), network=of_map_images(network, known))
    old = frozenset(base.scene.images)
    matches = matched_as_chosen(forms, choice, work, workers=options.workers, steps=steps, matched_already=old)
    with working_folder(None if work is None else work.unfinished) as workdir:
        with steps("mapping") as bar:
            scene = grown_scene(base.scene, placed, matches, workdir=workdir, options=settings, gravity=gravity, progress=bar)
        where = base if isinstance(scene, NoMap) else Map(scene=scene)
        outcome = scene if isinstance(scene, NoMap) else scene.check
        left_out = {} if outcome is None else dict(outcome.left_out)
        if options.locate and {*images} <= {*left_out, *where.scene.images}:  # nothing was stopped or refused
            with steps("locating") as bar:
                (located,) = with_located(
                    [where],
                    images,
                    placed,
                    matches,
                    before=base,
                    reasons=left_out,
                    workdir=workdir,
                    options=settings,
                    threads=options.workers,
                    gravity=gravity,
                    progress=bar,
                )
            scene = located if len(located.images) > len(base.scene.images) else scene
    if isinstance(scene, NoMap):
        return scene
    readings = None
    if gravity is not None:
        readings = readings_of(scene, gravity)
        if scene.measured_down is None:
            scene = replace(scene, measured_down=mean_down(gravity, scene.images))
    if scene.check is not None:
        left_out = {name: why for name, why in {**left_out, **scene.check.left_out}.items() if name not in scene.images}
        scene = replace(scene, check=replace(scene.check, left_out=left_out))
    left_out = {name: why for name, why in left_out.items() if name in placed}
    return BuiltMap(map=Map(scene=scene), check=scene.check, left_out=left_out, readings=readings)

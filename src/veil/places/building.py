"""Mapping of every kind of images: from positions through COLMAP, at known poses or none, or from random lines alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from veil.errors import InputError, Remedy
from veil.files.maps.checkpoints import working_folder
from veil.files.maps.cluster_results import OF_POSITIONS
from veil.forms import Lines
from veil.geometry.camera import Camera, rescaled
from veil.geometry.rigid import Rigid
from veil.matching.lightglue import LightGlue
from veil.places.built_maps import BuiltMap, MappingOptions, readings_of
from veil.places.held_map import Map
from veil.places.images_on_demand import map_image
from veil.places.line_mapping import map_lines
from veil.places.maps import MapImage, MapOptions, NoMap, StageLimits
from veil.places.maps.known_poses import map_at_poses
from veil.places.pairs.images import FormsOf, LoadedImage, NetworkMatching, PlacedImages
from veil.places.pairs.matching import MatchingWork, matched_as_chosen
from veil.progress import Progress, Steps, silent
from veil.scene import mean_down


def map_loaded(
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions | None = None,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    network: LightGlue | None = None,
    steps: Steps[Progress] = silent,
) -> BuiltMap | NoMap:
    """Build a map from images as a server holds them: from lines alone if all hide their positions, else from positions.

    Arguments, and what is raised, are those of `veil.map_images`.
    """
    options = options or MappingOptions()
    if images and all(isinstance(image.positions, Lines) for image in images.values()):
        if network is not None:
            PlacedImages(images)  # says why it cannot be
        return map_lines(images, options=options, work=work, steps=steps)
    return map_positions(images, options=options, gravity=gravity, work=work, network=network, steps=steps)


def map_positions(
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    network: LightGlue | None = None,
    steps: Steps[Progress] = silent,
) -> BuiltMap | NoMap:
    """Build a map from positions, through COLMAP. Raises as `map_images` does."""
    from veil.places.kept_clusters import cluster_key, running
    from veil.places.located_images import with_located
    from veil.places.maps.clusters.of_positions import map_in_clusters  # loads SciPy
    from veil.places.maps.clusters.view_graph import ClusterOptions

    work = _with_network(images, work, network)
    placed = _placed(images)
    settings = _settings(options)
    matches = matched_as_chosen(FormsOf(images), options.pairs, work, workers=options.workers, steps=steps)
    unfinished = None if work is None else work.unfinished
    with working_folder(unfinished) as workdir:
        with steps("mapping") as bar:
            mapped = map_in_clusters(
                placed,
                matches,
                workdir=workdir,
                options=settings,
                clusters=ClusterOptions(size=options.cluster_size),
                gravity=gravity,
                run_all=running(work, OF_POSITIONS, cluster_key),
                progress=bar,
            )
        if isinstance(mapped, NoMap):
            return mapped
        scenes = mapped.maps
        if options.locate:
            with steps("locating") as bar:
                scenes = with_located(
                    [Map(scene=item) for item in scenes],
                    images,
                    placed,
                    matches,
                    reasons={} if scenes[0].check is None else scenes[0].check.left_out,
                    workdir=workdir,
                    options=settings,
                    threads=options.workers,
                    gravity=gravity,
                    progress=bar,
                )
    scene, *further = scenes
    readings = None
    if gravity is not None:
        scene, readings = replace(scene, measured_down=mean_down(gravity, scene.images)), readings_of(scene, gravity)
    left_out = {} if scene.check is None else dict(scene.check.left_out)
    return BuiltMap(
        map=Map(scene=scene),
        check=scene.check,
        left_out=left_out,
        readings=readings,
        further=tuple(Map(scene=item) for item in further),
        reasons=mapped.reasons,
    )


def map_posed(
    images: Mapping[str, LoadedImage],
    cameras: Mapping[str, Camera],
    poses: Mapping[str, Rigid],
    *,
    options: MappingOptions | None = None,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    network: LightGlue | None = None,
    steps: Steps[Progress] = silent,
) -> BuiltMap | NoMap:
    """Build a map of images at known poses: their matches are triangulated, and poses and cameras stay as they are.

    - `images`: by name, with positions.
    - `cameras`, `poses`: intrinsics and poses cam_from_world by name. Images without any are left out and named. The camera of
      an image of another size is rescaled to it. The image is left out where the ratio of its sides is another one.
    - `options`: seed, workers, pairs, ratio test and time limit; the map is not built in clusters, and nothing is located.
    - `gravity`, `work`, `network`, `steps`: as for `map_positions`.

    Raises as `map_images` does.
    """
    options = options or MappingOptions()
    fitting = _rescaled(images, cameras)
    left_out = _unposed(images, cameras, fitting)
    images = {name: image for name, image in images.items() if name not in left_out}
    if not images:
        first, reason = next(iter(left_out.items()), ("", "there are no images"))
        raise InputError(f"none of the {len(left_out)} images has a pose in the model; {first}: {reason}")
    work = _with_network(images, work, network)
    placed = _placed(images, fitting)
    matches = matched_as_chosen(FormsOf(images), options.pairs, work, workers=options.workers, steps=steps)
    with working_folder(None if work is None else work.unfinished) as workdir, steps("triangulating"):
        scene = map_at_poses(placed, poses, matches, workdir=workdir, options=_settings(options))
    if isinstance(scene, NoMap):
        return replace(scene, left_out={**left_out, **scene.left_out})
    if scene.check is not None:
        left_out = {**left_out, **scene.check.left_out}
        scene = replace(scene, check=replace(scene.check, left_out=left_out))
    readings = None
    if gravity is not None:
        scene, readings = replace(scene, measured_down=mean_down(gravity, scene.images)), readings_of(scene, gravity)
    return BuiltMap(map=Map(scene=scene), check=scene.check, left_out=left_out, readings=readings)


def _rescaled(images: Mapping[str, LoadedImage], cameras: Mapping[str, Camera]) -> dict[str, Camera]:
    """The cameras of a model at the sizes of the images, by name, where the sides have the same ratio."""
    sizes = {name: (image.camera.width_px, image.camera.height_px) for name, image in images.items() if name in cameras}
    fitting = {name: rescaled(cameras[name], *size) for name, size in sizes.items()}
    return {name: camera for name, camera in fitting.items() if camera is not None}


def _unposed(images: Mapping[str, LoadedImage], cameras: Mapping[str, Camera], fitting: Mapping[str, Camera]) -> dict[str, str]:
    """Why images cannot be mapped at known poses, by name: the model has none, or it is of another shape."""
    reasons = {}
    for name, image in images.items():
        camera, own = cameras.get(name), image.camera
        if camera is None:
            reasons[name] = "the model has no image of this name"
        elif name not in fitting:
            sizes = f"{own.width_px}x{own.height_px} px, in the model {camera.width_px}x{camera.height_px} px"
            reasons[name] = f"its features are of {sizes}, which has another ratio of the sides"
    return reasons


def _with_network(
    images: Mapping[str, LoadedImage], work: MatchingWork | None, network: LightGlue | None
) -> MatchingWork | None:
    """The work with the network that matches, if one does."""
    if network is None:
        return work
    return replace(work or MatchingWork(), network=NetworkMatching(network=network, images=PlacedImages(images)))


def _placed(images: Mapping[str, LoadedImage], cameras: Mapping[str, Camera] | None = None) -> dict[str, MapImage]:
    """The images for the mapper, with these cameras in place of their own. Raises InputError for lines, or a single image."""
    for name, image in images.items():
        if isinstance(image.positions, Lines):
            raise InputError(
                f"{name} hides its positions and others do not",
                remedy=(Remedy("give", "images of one kind"), Remedy("give", "Protection.lines")),
            )
    if len(images) < 2:
        raise InputError(f"a map needs at least two images, got {len(images)}")
    return {name: map_image(image, None if cameras is None else cameras[name]) for name, image in images.items()}


def _settings(options: MappingOptions) -> MapOptions:
    """The mapper's part of the options."""
    return MapOptions(
        seed=options.seed,
        max_ratio=options.max_ratio,
        limits=StageLimits(max_seconds=options.max_seconds),
        global_mapper=options.global_mapper,
    )

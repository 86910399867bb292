"""Mapping of every kind of images: from positions through COLMAP, or from random lines alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from veil.errors import InputError
from veil.features import Features
from veil.files.checkpoints import CLUSTERS, Checkpoints, working_folder
from veil.files.cluster_results import ClusterResults
from veil.forms import Lines
from veil.map_check import MapCheck
from veil.mapping import Limits, MapOptions, NoMap
from veil.mapping.gravity import ReadingsCheck, checked_readings
from veil.mapping.lines import LineMap, LineMapOptions, MatchGraph, NoLineMap, map_from_lines, match_graph
from veil.mapping.lines.check import LineMapCheck
from veil.mapping.lines.incremental import extend_map
from veil.mapping.lines.quad import SeedOptions
from veil.mapping.lines.scenes import LineImage, images_of, reconstruction_of, scene_of
from veil.mapping.lines.several_models import further_maps
from veil.matching import Matches
from veil.matching.ratio import calibrated
from veil.pipelines.chosen_matches import MatchingWork, matched_as_chosen
from veil.pipelines.images_on_demand import FormsOf, map_image
from veil.pipelines.maps import Map
from veil.pipelines.pair_choice import PairChoice
from veil.pipelines.steps import Steps, silent
from veil.pipelines.uploads import LoadedImage, loaded
from veil.scene import Scene, mean_down
from veil.wire.message import Message

# A ratio that every match passes, so that all may start a track.
EVERY_MATCH = 1.01


@dataclass(frozen=True, kw_only=True)
class MappingOptions:
    """Options of building a map.

    - `seed`: of RANSAC and mapping.
    - `workers`: number of image pairs that are matched at a time.
    - `pairs`: which pairs of images are matched; by default all up to some hundred images, else those that look alike.
    - `cluster_size`: more images than this are mapped in clusters of so many, which are joined; positions only.
    - `max_ratio`: largest ratio of nearest to second nearest distance, in (0, 1]. None: for maps of positions learned from the
      images, for maps of lines the calibrated one.
    - `max_seconds`: stops the mapper of positions after so long; None: only where it hangs.
    - `global_mapper`: COLMAP's global mapper in place of the incremental one; positions only.
    - `gravity_sigma_deg`: standard deviation of the gravity that lines come with, in degrees.
    """

    seed: int = 0
    workers: int = 2
    pairs: PairChoice | None = None
    cluster_size: int = 500
    max_ratio: float | None = None
    max_seconds: float | None = None
    global_mapper: bool = False
    gravity_sigma_deg: float = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class BuiltMap:
    """A map with the record of how sure it is.

    - `map`: the map.
    - `check`: numbers for and against it (docs/theory/mapping.md#the-check; for lines #how-sure-a-map-is).
    - `left_out`: why images are not in the map, by name.
    - `readings`: readings of gravity compared with the map; None if a map of positions was given none.
    - `further`: maps of images that share too little with the first.
    - `reasons`: sentences on why parts of a map of positions do not join, and why clusters of images have no map.
    """

    map: Map
    check: MapCheck | LineMapCheck | None
    left_out: Mapping[str, str] = field(default_factory=dict)
    readings: ReadingsCheck | None = None
    further: tuple[Map, ...] = ()
    reasons: tuple[str, ...] = ()


def map_images(
    images: Mapping[str, Message | Features | LoadedImage],
    *,
    options: MappingOptions | None = None,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    steps: Steps = silent,
) -> BuiltMap | NoMap:
    """Build a map from images, or say why there is none (docs/theory/mapping.md).

    - `images`: by name, messages, or raw features that their owner makes public. All hide their positions in lines (then four
      images or more with gravity are needed), or none does.
    - `options`: seed, workers, pairs, ratio test and time limit.
    - `gravity`: by image name, float (3,) vectors that point down in the camera frames (x right, y down, z forward). They check
      a map of positions, and such a map needs them to serve queries of words with lines.
    - `work`: where pairs are matched and what keeps their matches; by default this process, and nothing.
    - `steps`: shows progress, see `Steps`.

    Raises InputError for fewer than two images or for images of both kinds, VeilError if COLMAP fails.
    """
    options = options or MappingOptions()
    prepared = {name: loaded(image) for name, image in images.items()}
    if prepared and all(isinstance(image.positions, Lines) for image in prepared.values()):
        return map_lines(prepared, options=options, work=work, steps=steps)
    return map_positions(prepared, options=options, gravity=gravity, work=work, steps=steps)


def map_positions(
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions,
    gravity: Mapping[str, np.ndarray] | None = None,
    work: MatchingWork | None = None,
    steps: Steps = silent,
) -> BuiltMap | NoMap:
    """Build a map from positions, through COLMAP. Raises as `map_images` does."""
    from veil.mapping.clustered import map_in_clusters, one_after_another  # load SciPy
    from veil.mapping.view_graph import ClusterOptions
    from veil.pipelines.kept_clusters import keeping

    placed = {}
    for name, image in images.items():
        if isinstance(image.positions, Lines):
            raise InputError(f"{name} hides its positions and others do not; map them apart, or release all with --lines")
        placed[name] = map_image(image)
    if len(placed) < 2:
        raise InputError(f"a map needs at least two images, got {len(placed)}")
    settings = MapOptions(
        seed=options.seed,
        max_ratio=options.max_ratio,
        limits=Limits(max_seconds=options.max_seconds),
        global_mapper=options.global_mapper,
    )
    matches = matched_as_chosen(FormsOf(images), options.pairs, work, workers=options.workers, steps=steps)
    unfinished = None if work is None else work.unfinished
    run_all = one_after_another if work is None or work.engine is None else work.engine.map
    with working_folder(unfinished) as workdir, steps("mapping") as bar:
        mapped = map_in_clusters(
            placed,
            matches,
            workdir=workdir,
            options=settings,
            clusters=ClusterOptions(size=options.cluster_size),
            gravity=gravity,
            run_all=run_all if unfinished is None else keeping(ClusterResults(unfinished / CLUSTERS), run_all),
            progress=bar,
        )
    if isinstance(mapped, NoMap):
        return mapped
    scene, readings = mapped.scene, None
    if gravity is not None:
        scene, readings = replace(scene, measured_down=mean_down(gravity, scene.images)), readings_of(scene, gravity)
    left_out = {} if scene.check is None else dict(scene.check.left_out)
    return BuiltMap(
        map=Map(scene=scene),
        check=scene.check,
        left_out=left_out,
        readings=readings,
        further=tuple(Map(scene=item) for item in mapped.further),
        reasons=mapped.reasons,
    )


def map_lines(
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions,
    add_to: Map | None = None,
    unfinished: Checkpoints | None = None,
    work: MatchingWork | None = None,
    steps: Steps = silent,
) -> BuiltMap | NoMap:
    """Build a map from lines alone, or extend the map `add_to` by more images (Geppert et al. 2020).

    `unfinished` holds checkpoints of the model, `work` keeps matches: what they hold is not computed again. Raises InputError
    if the map already has one of the images, or a message sends positions.
    """
    base = None if add_to is None else add_to.scene
    if positions := sorted(name for name, image in images.items() if not isinstance(image.positions, Lines)):
        raise InputError(f"{positions[0]} sends its positions; a map of lines takes messages with lines only")
    new = {
        name: LineImage(camera=image.camera, lines=image.positions, form=image.form)
        for name, image in images.items()
        if isinstance(image.positions, Lines)
    }
    if base is not None and (known := sorted(set(base.images) & set(new))):
        raise InputError(f"the map already has {', '.join(known[:3])}; give new messages only")
    job = _LineJob(new=new, base=base, options=options, unfinished=unfinished, work=work, steps=steps)
    return job.built()


@dataclass(frozen=True, kw_only=True, eq=False)
class _LineJob:
    """One run of mapping from lines: new images, and the map that they are added to, if any."""

    new: Mapping[str, LineImage]
    base: Scene | None
    options: MappingOptions
    unfinished: Checkpoints | None
    work: MatchingWork | None
    steps: Steps

    @property
    def images(self) -> dict[str, LineImage]:
        """All images by name: those of the base, and the new ones."""
        return {**(images_of(self.base) if self.base else {}), **self.new}

    @property
    def settings(self) -> LineMapOptions:
        """Options of the mapper from lines."""
        return line_settings(self.options)

    def built(self) -> BuiltMap | NoMap:
        """Match the images, map them, and map apart those that share too little with the first map."""
        images = self.images
        matches = self._matched()
        graph = match_graph(
            {name: len(image.form) for name, image in images.items()},
            {pair: item.indices for pair, item in matches.items()},
            ratios={pair: item.ratios for pair, item in matches.items()},
            max_ratio=self._max_ratio(),
        )
        first = self._mapped(graph)
        if isinstance(first, NoLineMap):
            return NoMap(first.reason)
        scenes = [scene_of(first, images)]
        if self.base is None:
            views = {name: image.view for name, image in images.items()}
            with self.steps("mapping the rest") as bar:
                rest = further_maps(views, graph, first, options=self.settings, progress=bar)
                scenes += [scene_of(item, images) for item in rest]
        down = {name: image.view.lines.gravity for name, image in images.items() if image.view.lines.gravity is not None}
        return BuiltMap(
            map=Map(scene=scenes[0]),
            check=first.check,
            left_out=dict(first.refused),
            readings=readings_of(scenes[0], down),
            further=tuple(Map(scene=scene) for scene in scenes[1:]),
        )

    def _max_ratio(self) -> float:
        """Largest ratio of matches that may start a track: as asked for, else calibrated, else one that every match passes."""
        if self.options.max_ratio is not None:
            return self.options.max_ratio
        forms = [image.form for image in self.images.values()]
        try:
            return calibrated(forms[0], forms[-1])
        except InputError:
            return EVERY_MATCH

    def _matched(self) -> dict[tuple[str, str], Matches]:
        """Matches of the chosen pairs by their names, but of none within the base, whose features are matched already."""
        forms = {name: image.form for name, image in self.images.items()}
        old = frozenset(self.base.images) if self.base else frozenset()
        return matched_as_chosen(
            forms, self.options.pairs, self.work, workers=self.options.workers, steps=self.steps, matched_already=old
        )

    def _mapped(self, graph: MatchGraph) -> LineMap | NoLineMap:
        """The first map: the extended base, or a new map, resumed from its checkpoint."""
        views = {name: image.view for name, image in self.images.items()}
        with self.steps("mapping") as bar:
            if self.base is not None:
                tracks, reconstruction = reconstruction_of(self.base, graph)
                return extend_map(
                    views, graph, tracks=tracks, reconstruction=reconstruction, options=self.settings, progress=bar
                )
            resume = None if self.unfinished is None else self.unfinished.model()
            save = None if self.unfinished is None else self.unfinished.save_model
            return map_from_lines(views, graph, options=self.settings, resume=resume, checkpoint=save, progress=bar)


def line_settings(options: MappingOptions) -> LineMapOptions:
    """Options of the mapper from lines that `MappingOptions` stand for."""
    return LineMapOptions(seed=SeedOptions(seed=options.seed, gravity_sigma_deg=options.gravity_sigma_deg))


def readings_of(scene: Scene, gravity: Mapping[str, np.ndarray]) -> ReadingsCheck:
    """The images' readings of gravity (down in the camera frame, by image name) compared with the scene's poses."""
    return checked_readings({name: image.cam_from_world for name, image in scene.images.items()}, gravity)

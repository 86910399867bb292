"""Mapping from random lines alone, at once or by clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veil.errors import InputError
from veil.files.maps.checkpoints import Checkpoints
from veil.files.maps.cluster_results import OF_LINES
from veil.forms import Lines
from veil.matching import Matches
from veil.matching.ratio import calibrated
from veil.places.built_maps import BuiltMap, MappingOptions, readings_of
from veil.places.held_map import Map
from veil.places.maps import NoMap
from veil.places.maps.lines import LineMap, LineMapOptions, LineView, MatchGraph, map_from_lines, match_graph
from veil.places.maps.lines.incremental import extend_map, further_maps
from veil.places.maps.lines.quad import SeedOptions
from veil.places.maps.lines.stored_maps import LineImage, images_of, reconstruction_of, scene_of
from veil.places.pairs.images import LoadedImage
from veil.places.pairs.matching import MatchingWork, matched_as_chosen
from veil.progress import Progress, Steps, silent
from veil.scene import Scene

# A ratio that every match passes, so that all may start a track.
EVERY_MATCH = 1.01


def map_lines(
    images: Mapping[str, LoadedImage],
    *,
    options: MappingOptions,
    add_to: Map | None = None,
    unfinished: Checkpoints | None = None,
    work: MatchingWork | None = None,
    steps: Steps[Progress] = silent,
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
    steps: Steps[Progress]

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
        if self.base is None and len(images) > self.options.cluster_size:
            return self._in_clusters(graph)
        first = self._mapped(graph)
        if isinstance(first, NoMap):
            return NoMap(first.reason, remedy=first.remedy)
        scenes = [scene_of(first, images)]
        if self.base is None:
            with self.steps("mapping the rest") as bar:
                rest = further_maps(self._views(), graph, first, options=self.settings, progress=bar)
                scenes += [scene_of(item, images) for item in rest]
        return BuiltMap(
            map=Map(scene=scenes[0]),
            check=first.check,
            left_out=dict(first.refused),
            readings=readings_of(scenes[0], self._down()),
            further=tuple(Map(scene=scene) for scene in scenes[1:]),
        )

    def _in_clusters(self, graph: MatchGraph) -> BuiltMap | NoMap:
        """Maps by clusters, which are joined where they overlap; what is kept of a run that was killed is not mapped again."""
        from veil.places.kept_clusters import line_cluster_key, running
        from veil.places.maps.clusters.of_lines import map_lines_in_clusters
        from veil.places.maps.clusters.view_graph import ClusterOptions

        images = self.images
        with self.steps("mapping") as bar:
            clustered = map_lines_in_clusters(
                self._views(),
                graph,
                options=self.settings,
                clusters=ClusterOptions(size=self.options.cluster_size),
                run_all=running(self.work, OF_LINES, line_cluster_key),
                progress=bar,
            )
        if isinstance(clustered, NoMap):
            return NoMap(clustered.reason, remedy=clustered.remedy)
        first, *further = (scene_of(item, images) for item in clustered.maps)
        mapped = {name for scene in (first, *further) for name in scene.images}
        refused = {name: reason for item in clustered.maps for name, reason in item.refused.items()}
        return BuiltMap(
            map=Map(scene=first),
            check=clustered.maps[0].check,
            left_out={name: refused.get(name, "no cluster that has a map holds it") for name in sorted(set(images) - mapped)},
            readings=readings_of(first, self._down()),
            further=tuple(Map(scene=scene) for scene in further),
            reasons=clustered.reasons,
        )

    def _down(self) -> dict[str, np.ndarray]:
        """Readings of gravity by image name, of those that have one."""
        return {name: view.lines.gravity for name, view in self._views().items() if view.lines.gravity is not None}

    def _views(self) -> dict[str, LineView]:
        return {name: image.view for name, image in self.images.items()}

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

    def _mapped(self, graph: MatchGraph) -> LineMap | NoMap:
        """The first map: the extended base, or a new map, resumed from its checkpoint."""
        views = self._views()
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

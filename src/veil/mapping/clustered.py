"""Maps of many images: the view graph is cut into clusters, these are mapped apart, joined, and adjusted together.

The answer is that of `veil.mapping.points.build_map`: one map, or several with the reason why they do not join, or none
(docs/theory/scale.md, "Clusters and their joining").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.mapping.agreement import Pair
from veil.mapping.colmap import Colmap
from veil.mapping.images import MapImage, impossible
from veil.mapping.joined_maps import ClusteredMap, ClusterMaps
from veil.mapping.options import MapOptions
from veil.mapping.points import NoMap, build_map
from veil.mapping.repeated import doubted_pairs
from veil.mapping.verification import Verification
from veil.mapping.view_graph import Cluster, ClusterOptions, overlapping_clusters, view_graph
from veil.matching.neighbors import Matches
from veil.progress import Progress
from veil.scene import Scene


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterTask:
    """Images of one cluster with their matches, to map by `map_cluster`; `workdir` is a folder that does not exist yet."""

    images: Mapping[str, MapImage]
    matches: Mapping[Pair, Matches]
    options: MapOptions
    workdir: Path


def map_cluster(task: ClusterTask) -> Scene | NoMap:
    """Map of one cluster by the mapper of points, or why there is none."""
    task.workdir.mkdir(parents=True)
    return build_map(task.images, task.matches, workdir=task.workdir, options=task.options)


RunAll = Callable[[Callable[[ClusterTask], "Scene | NoMap"], Sequence[ClusterTask]], "Iterable[tuple[int, Scene | NoMap]]"]


def one_after_another(
    task: Callable[[ClusterTask], Scene | NoMap], items: Sequence[ClusterTask]
) -> Iterable[tuple[int, Scene | NoMap]]:
    """Positions of items with their results, in this process, one after another."""
    for position, item in enumerate(items):
        yield position, task(item)


def map_in_clusters(
    images: Mapping[str, MapImage],
    matches: Mapping[Pair, Matches],
    *,
    workdir: Path,
    options: MapOptions | None = None,
    clusters: ClusterOptions | None = None,
    gravity: Mapping[str, Float64[np.ndarray, "3"]] | None = None,
    run_all: RunAll = one_after_another,
    progress: Progress | None = None,
) -> ClusteredMap | NoMap:
    """Maps of many images from their matches, by clusters, or the reason why there is none.

    Arguments are those of `veil.mapping.points.build_map`. `clusters` says how large clusters are and how they overlap.
    `run_all(task, items)` gives (position, result) of every item in any order, and may run them in other processes that see
    `workdir`: `map` of an engine fits. `progress` is called with the numbers of mapped clusters and of all. Images that fit
    into one cluster are mapped uncut, and those that are not in that map, or if it is refused, apart.
    Raises InputError for fewer than two images, VeilError if COLMAP fails.
    """
    options, clusters = options or MapOptions(), clusters or ClusterOptions()
    if len(images) < 2:
        raise InputError(f"a map needs at least two images, got {len(images)}")
    job = _Job(matches, options, clusters, gravity or {}, run_all, progress)
    if len(images) > clusters.size:
        return job.cut(images, workdir)
    whole = build_map(images, matches, workdir=workdir, options=options, gravity=gravity, progress=progress)
    if isinstance(whole, NoMap) and whole.check is None:
        return whole
    mapped = frozenset(whole.images) if isinstance(whole, Scene) else frozenset()
    rest = {name: image for name, image in images.items() if name not in mapped}
    folder = workdir / "rest"
    folder.mkdir()
    parts = job.cut(rest, folder, least_parts=1 if mapped else 2) if len(rest) >= options.min_model_images else NoMap("")
    return _with_rest(whole, parts)


def _with_rest(whole: Scene | NoMap, rest: ClusteredMap | NoMap) -> ClusteredMap | NoMap:
    """The map of all images, or why there was none, with the maps of images that are not in it."""
    if isinstance(rest, NoMap):
        return ClusteredMap(scene=whole) if isinstance(whole, Scene) else whole
    if isinstance(whole, Scene):
        found = ClusteredMap(scene=whole, further=(rest.scene, *rest.further), reasons=rest.reasons)
    else:
        found = replace(rest, reasons=(f"all images together gave no map: {whole.reason}", *rest.reasons))
    check = whole.check
    if check is None or found.scene.check is None:
        return found
    mapped = {name for scene in (found.scene, *found.further) for name in scene.images}
    left_out = {name: reason for name, reason in check.left_out.items() if name not in mapped}
    return replace(found, scene=replace(found.scene, check=replace(found.scene.check, left_out=left_out)))


@dataclass(frozen=True, eq=False)
class _Job:
    """What maps of any of the images are made from, as `map_in_clusters` takes it."""

    matches: Mapping[Pair, Matches]
    options: MapOptions
    clusters: ClusterOptions
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    run_all: RunAll
    progress: Progress | None

    def cut(self, images: Mapping[str, MapImage], workdir: Path, least_parts: int = 1) -> ClusteredMap | NoMap:
        """Maps of some images by clusters; those without a path of verified pairs are mapped apart, however few they are.

        Nothing is mapped if there are fewer than `least_parts` clusters and no pair is doubted.
        """
        left_out = impossible(images)
        images = {name: image for name, image in images.items() if name not in left_out}
        matches = {pair: found for pair, found in self.matches.items() if pair[0] in images and pair[1] in images}
        with Colmap(self.options.limits) as colmap:
            verification = Verification(images, self.options, workdir, colmap)
            stopped = verification.run(matches)
            if stopped is not None:
                return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out)
            doubted = doubted_pairs(images, verification.pairs)
            verification.forget(doubted)
            counts = {pair: len(found.inliers) for pair, found in verification.pairs.items()}
            verified = {name for pair in counts for name in pair}
            if not verified:
                return NoMap(f"none of {len(matches)} pairs of images is verified", left_out)
            found = overlapping_clusters(view_graph(verified, counts), self.clusters)
            parts = [part for part in found if len(part.names) >= min(self.options.min_model_images, len(images))]
            if len(parts) < least_parts and not doubted:
                return NoMap("all images hang together", left_out)
            tasks = [_task(k, part, images, matches, counts, self.options, workdir) for k, part in enumerate(parts)]
            answers: dict[int, Scene | NoMap] = {}
            for position, answer in self.run_all(map_cluster, tasks):
                answers[position] = answer
                if self.progress is not None:
                    self.progress(len(answers), len(tasks))
            work = ClusterMaps(images, self.options, workdir, colmap, verification, self.gravity, left_out, parts, answers)
            return work.joined()


def _task(
    number: int,
    part: Cluster,
    images: Mapping[str, MapImage],
    matches: Mapping[Pair, Matches],
    counts: Mapping[Pair, int],
    options: MapOptions,
    workdir: Path,
) -> ClusterTask:
    own: dict[Pair, Matches] = {}
    for pair, found in matches.items():
        if (pair in counts or pair[::-1] in counts) and {*pair} <= part.names:
            own[pair] = found
    return ClusterTask(
        images={name: images[name] for name in sorted(part.names)},
        matches=own,
        options=options,
        workdir=workdir / f"cluster-{number + 1}",
    )

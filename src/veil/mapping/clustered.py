"""Maps of many images: the view graph is cut into clusters, these are mapped apart, joined, and adjusted together.

The answer is that of `veil.mapping.points.build_map`: one map, or several with the reason why they do not join, or none
(docs/theory/scale.md, "Clusters and their joining").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
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

# How often what no map holds is cut and mapped again.
ROUNDS = 5


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
        return _several(images, None, job, workdir)
    whole = build_map(images, matches, workdir=workdir, options=options, gravity=gravity, progress=progress)
    if isinstance(whole, NoMap) and whole.check is None:
        return whole
    return _several(images, whole, job, workdir)


def _several(images: Mapping[str, MapImage], whole: Scene | NoMap | None, job: _Job, workdir: Path) -> ClusteredMap | NoMap:
    """Maps of all images: `whole`, if they were mapped together, and maps of what is left, as long as any come of it.

    A cluster gives one map even where its images show several places, so that what is left of it is tried again.
    """
    scenes = [whole] if isinstance(whole, Scene) else []
    reasons = [f"all images together gave no map: {whole.reason}"] if isinstance(whole, NoMap) else []
    least, rounds = min(job.options.min_model_images, len(images)), 0
    first: ClusteredMap | NoMap | None = None
    verified: set[Pair] = set()
    while rounds < ROUNDS:
        mapped = {name for scene in scenes for name in scene.images}
        rest = {name: image for name, image in images.items() if name not in mapped}
        if len(rest) < least:
            break
        folder = workdir if whole is None and not rounds else workdir / f"rest-{rounds + 1}"
        folder.mkdir(exist_ok=True)
        found, pairs = job.cut(rest, folder, least_parts=2 if isinstance(whole, NoMap) and not rounds else 1)
        first, rounds = first or found, rounds + 1
        verified |= pairs
        if isinstance(found, NoMap):
            break
        scenes += [found.scene, *found.further]
        reasons += found.reasons if rounds == 1 else [f"of the images that were left, {reason}" for reason in found.reasons]
    if not scenes:
        return whole if isinstance(whole, NoMap) else first if isinstance(first, NoMap) else NoMap("no cluster gave a map")
    scenes.sort(key=lambda scene: (-len(scene.images), min(scene.images)))
    scenes[0] = _told(scenes, whole)
    reasons += _apart(scenes, verified, None if whole is None else frozenset(_mapped_by(whole)))
    clusters = first.clusters if isinstance(first, ClusteredMap) and whole is None else ()
    return ClusteredMap(scene=scenes[0], further=tuple(scenes[1:]), reasons=tuple(reasons), clusters=clusters)


def _mapped_by(whole: Scene | NoMap) -> Iterable[str]:
    """Names of the images of a map, none where there is none."""
    return whole.images if isinstance(whole, Scene) else ()


def _told(scenes: Sequence[Scene], whole: Scene | NoMap | None) -> Scene:
    """The first map, whose check names the images that are in none, as far as it or the map of all knows why."""
    first = scenes[0]
    if first.check is None:
        return first
    mapped = {name for scene in scenes for name in scene.images}
    known = {**({} if whole is None or whole.check is None else whole.check.left_out), **first.check.left_out}
    left_out = {name: reason for name, reason in sorted(known.items()) if name not in mapped}
    return replace(first, check=replace(first.check, left_out=left_out))


def _apart(scenes: Sequence[Scene], verified: Set[Pair], whole: frozenset[str] | None) -> list[str]:
    """Sentences on why models do not join the largest one, of those of which it is known.

    The map of all images, `whole`, took in what it could; between others no pair may be verified.
    """
    largest, found = set(scenes[0].images), []
    for number, scene in enumerate(scenes[1:], 2):
        names = set(scene.images)
        if whole and whole in (largest, names):
            found.append(f"none of the images of model {number} ({len(names)}) could be added to the largest one")
        elif not any((a in largest and b in names) or (b in largest and a in names) for a, b in verified):
            found.append(f"no pair of images joins model {number} ({len(names)} images) to the largest one")
    return found


@dataclass(frozen=True, eq=False)
class _Job:
    """What maps of any of the images are made from, as `map_in_clusters` takes it."""

    matches: Mapping[Pair, Matches]
    options: MapOptions
    clusters: ClusterOptions
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    run_all: RunAll
    progress: Progress | None

    def cut(
        self, images: Mapping[str, MapImage], workdir: Path, least_parts: int = 1
    ) -> tuple[ClusteredMap | NoMap, Set[Pair]]:
        """Maps of some images by clusters, and the verified pairs; images without a path of these are mapped apart.

        Nothing is mapped if there are fewer than `least_parts` clusters and no pair is doubted.
        """
        left_out = impossible(images)
        images = {name: image for name, image in images.items() if name not in left_out}
        matches = {pair: found for pair, found in self.matches.items() if pair[0] in images and pair[1] in images}
        with Colmap(self.options.limits) as colmap:
            verification = Verification(images, self.options, workdir, colmap)
            stopped = verification.run(matches)
            if stopped is not None:
                return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out), frozenset()
            doubted = doubted_pairs(images, verification.pairs)
            verification.forget(doubted)
            counts = {pair: len(found.inliers) for pair, found in verification.pairs.items()}
            verified = {name for pair in counts for name in pair}
            if not verified:
                return NoMap(f"none of {len(matches)} pairs of images is verified", left_out), frozenset()
            found = overlapping_clusters(view_graph(verified, counts), self.clusters)
            parts = [part for part in found if len(part.names) >= min(self.options.min_model_images, len(images))]
            if len(parts) < least_parts and not doubted:
                return NoMap("all images hang together", left_out), counts.keys()
            tasks = [_task(k, part, images, matches, counts, self.options, workdir) for k, part in enumerate(parts)]
            answers: dict[int, Scene | NoMap] = {}
            for position, answer in self.run_all(map_cluster, tasks):
                answers[position] = answer
                if self.progress is not None:
                    self.progress(len(answers), len(tasks))
            work = ClusterMaps(images, self.options, workdir, colmap, verification, self.gravity, left_out, parts, answers)
            return work.joined(), counts.keys()


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

"""Maps of many images from lines: the graph of shared tracks is cut into clusters, these are mapped apart, and joined.

Cut, similarity of two parts, loops and merging are those of maps of positions (docs/theory/scale.md, "Clusters and their
joining"); lines verify no pair of images, so that images are tied by the tracks of three views that they share. A joined map is
adjusted and checked as one that images are added to; where its check speaks against it, its clusters stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from veil.errors import InputError
from veil.geometry.similarity import Similarity
from veil.mapping import NoMap
from veil.mapping.clusters.joining import join
from veil.mapping.clusters.pieces import Piece, homes, merged
from veil.mapping.clusters.view_graph import Cluster, ClusterOptions, overlapping_clusters, view_graph
from veil.mapping.lines.incremental import LineMap, extend_map, map_from_lines
from veil.mapping.lines.problem import LineView
from veil.mapping.lines.reconstruction import Reconstruction
from veil.mapping.lines.registration import LineMapOptions
from veil.mapping.lines.tracks import MatchGraph, Tracks, build_tracks, restricted
from veil.progress import Progress

# Images of a track that tie its images to each other, and tracks that two images must share to be tied.
TRACK_IMAGES, LEAST_TRACKS = 3, 10
# Images that a map of lines begins with.
LEAST_IMAGES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class LineClusterTask:
    """Images of one cluster and their matches, to map by `map_line_cluster`."""

    views: Mapping[str, LineView]
    graph: MatchGraph
    options: LineMapOptions


def map_line_cluster(task: LineClusterTask) -> LineMap | NoMap:
    """Map of one cluster from its lines, or why there is none."""
    try:
        return map_from_lines(task.views, task.graph, options=task.options)
    except InputError as error:  # too few of its images have gravity, say; other clusters may do
        return NoMap(str(error))


RunAll = Callable[
    [Callable[[LineClusterTask], "LineMap | NoMap"], Sequence[LineClusterTask]], "Iterable[tuple[int, LineMap | NoMap]]"
]


def one_after_another(
    task: Callable[[LineClusterTask], LineMap | NoMap], items: Sequence[LineClusterTask]
) -> Iterable[tuple[int, LineMap | NoMap]]:
    """Positions of items with their results, in this process, one after another."""
    for position, item in enumerate(items):
        yield position, task(item)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusteredLineMap:
    """Maps of the images, no image in two of them, that of most images first; `reasons` say why parts do not join.

    `clusters` are the images of each cluster, the numbers of which (from 1) the reasons name.
    """

    maps: tuple[LineMap, ...]
    reasons: tuple[str, ...]
    clusters: tuple[Cluster, ...]


def map_lines_in_clusters(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    *,
    options: LineMapOptions | None = None,
    clusters: ClusterOptions | None = None,
    run_all: RunAll = one_after_another,
    progress: Progress | None = None,
) -> ClusteredLineMap | NoMap:
    """Maps of many images from lines, by clusters, or the reason why there is none.

    `views` are the images by name, `graph` their matches, `clusters` says how large clusters are and how they overlap.
    `run_all(task, items)` gives (position, result) of every item in any order, and may run them in other processes.
    `progress` is called with the numbers of mapped clusters and of all. Raises InputError for fewer than four images.
    """
    options, clusters = options or LineMapOptions(), clusters or ClusterOptions()
    if len(views) < LEAST_IMAGES:
        raise InputError(f"mapping from lines needs at least four images, got {len(views)}")
    counts = shared_tracks(build_tracks(graph))
    tied = {name for pair in counts for name in pair}
    found = overlapping_clusters(view_graph(tied, counts), clusters) if tied else []
    parts = [part for part in found if len(part.names) >= LEAST_IMAGES]
    if not parts:
        return NoMap("no four images share enough tracks; take photographs with more overlap")
    tasks = [
        LineClusterTask(
            views={name: views[name] for name in sorted(part.names)},
            graph=restricted(graph, sorted(part.names)),
            options=options,
        )
        for part in parts
    ]
    answers: dict[int, LineMap | NoMap] = {}
    for position, answer in run_all(map_line_cluster, tasks):
        answers[position] = answer
        if progress is not None:
            progress(len(answers), len(tasks))
    return _joined(views, graph, options, parts, answers)


def shared_tracks(tracks: Tracks) -> dict[tuple[str, str], int]:
    """Numbers of tracks, of three images or more, that pairs of images share, of those that share `LEAST_TRACKS` at least."""
    from scipy.sparse import csr_array, triu

    long = np.bincount(tracks.track)[tracks.track] >= TRACK_IMAGES if len(tracks) else np.empty(0, dtype=bool)
    shape = (len(tracks.names), len(tracks))
    ones = np.ones(int(long.sum()), dtype=np.int64)
    sees = csr_array((ones, (tracks.image[long], tracks.track[long])), shape=shape)
    shared = triu(sees @ sees.T, k=1).tocoo()
    return {
        (tracks.names[a], tracks.names[b]): int(count)
        for a, b, count in zip(shared.row, shared.col, shared.data, strict=True)
        if count >= LEAST_TRACKS
    }


def _joined(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    options: LineMapOptions,
    parts: Sequence[Cluster],
    answers: Mapping[int, LineMap | NoMap],
) -> ClusteredLineMap | NoMap:
    """Maps of all clusters that join, and of those that do not."""
    maps = {k: found for k, found in sorted(answers.items()) if isinstance(found, LineMap)}
    reasons = [f"cluster {k + 1}: {found.reason}" for k, found in sorted(answers.items()) if isinstance(found, NoMap)]
    if not maps:
        return NoMap("; ".join(reasons))
    numbers = sorted(maps)
    pieces = {k: piece_of_lines(maps[k]) for k in numbers}
    result = join([pieces[k] for k in numbers], labels=[k + 1 for k in numbers])
    reasons += [result.reasons[edge] for edge in sorted(result.reasons)]
    cores = {name: k for k, part in enumerate(parts) for name in part.core}
    found: list[LineMap] = []
    for joint in result.joints:
        ways = {numbers[k]: way for k, way in joint.world_from_piece.items()}
        if len(ways) == 1:
            found.append(maps[next(iter(ways))])
            continue
        one = _one_map(views, graph, options, pieces, ways, cores)
        if one.check.doubts:
            reasons.append(f"a joined map of {len(one.cam_from_world)} images cannot be trusted: {'; '.join(one.check.doubts)}")
            found += [maps[k] for k in ways]
        else:
            found.append(one)
    return ClusteredLineMap(maps=tuple(_apart(found)), reasons=tuple(reasons), clusters=tuple(parts))


def piece_of_lines(found: LineMap) -> Piece:
    """Piece of a map from lines, by the numbers of its images' features in their messages."""
    tracks = found.tracks
    rows = np.flatnonzero(found.observed)
    used, point = np.unique(tracks.track[rows], return_inverse=True)
    own = {name: tracks.image[rows] == index for index, name in enumerate(tracks.names) if name in found.cam_from_world}
    return Piece(
        cam_from_world=dict(found.cam_from_world),
        points=found.points[used],
        features={name: tracks.feature[rows[mine]] for name, mine in own.items()},
        point_rows={name: point[mine].astype(np.int64) for name, mine in own.items()},
    )


def _one_map(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    options: LineMapOptions,
    pieces: Mapping[int, Piece],
    ways: Mapping[int, Similarity],
    cores: Mapping[str, int],
) -> LineMap:
    """Map of the images of several pieces, brought into one world, adjusted together and checked."""
    placed = {k: pieces[k].moved(way) for k, way in ways.items()}
    piece = merged(placed, homes(placed, cores))
    names = sorted(piece.cam_from_world)
    own = restricted(graph, names)
    tracks, reconstruction = _reconstruction_of(piece, own.names)
    return extend_map({name: views[name] for name in names}, own, tracks=tracks, reconstruction=reconstruction, options=options)


def _reconstruction_of(piece: Piece, names: tuple[str, ...]) -> tuple[Tracks, Reconstruction]:
    """Tracks and reconstruction of a piece, all images of which are registered and all observations of which agree."""
    poses = [piece.cam_from_world[name] for name in names]
    image = np.concatenate([np.full(len(piece.features[name]), k) for k, name in enumerate(names)])
    feature = np.concatenate([piece.features[name] for name in names])
    track = np.concatenate([piece.point_rows[name] for name in names])
    order = np.lexsort((image, track))
    tracks = Tracks(names=names, track=track[order], image=image[order], feature=feature[order], left_out=0)
    reconstruction = Reconstruction(
        registered=np.ones(len(names), dtype=bool),
        rotations=np.array([pose.rotation for pose in poses]),
        translations=np.array([pose.translation for pose in poses]),
        points=piece.points,
        observed=np.ones(len(order), dtype=bool),
    )
    return tracks, reconstruction


def _apart(found: list[LineMap]) -> list[LineMap]:
    """The maps, that of most images first, each without the images of those before it; with fewer than four left it goes."""
    kept: list[LineMap] = []
    held: set[str] = set()
    for item in sorted(found, key=lambda item: (-len(item.cam_from_world), min(item.cam_from_world))):
        own = item.cam_from_world.keys() - held
        if len(own) >= LEAST_IMAGES:
            kept.append(_of_images(item, own))
            held |= own
    return kept


def _of_images(found: LineMap, names: Set[str]) -> LineMap:
    """Map of some images of a map, with the points that keep four lines."""
    if names == found.cam_from_world.keys():
        return found
    tracks = found.tracks
    observed = found.observed & np.isin(tracks.image, [row for row, name in enumerate(tracks.names) if name in names])
    enough = np.bincount(tracks.track[observed], minlength=len(tracks)) >= LEAST_IMAGES
    return replace(
        found,
        cam_from_world={name: pose for name, pose in found.cam_from_world.items() if name in names},
        observed=observed & enough[tracks.track],
    )

"""Maps of many images from lines: the graph of shared tracks is cut into clusters, these are mapped apart, and joined.

Cut, similarity of two parts, loops and merging are those of maps of positions (docs/theory/scale.md, "Clusters and their
joining"); lines verify no pair of images, so that images are tied by the tracks of three views that they share. A joined map is
adjusted and checked as one that images are added to; where its check speaks against it, its clusters stay apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace

import numpy as np

from veil.errors import InputError
from veil.places.maps import NoMap
from veil.places.maps.clusters.joined_maps import ClusteredMap, Group, RunAll, answers_of, cut, joined, one_after_another
from veil.places.maps.clusters.pieces import Piece, homes, merged
from veil.places.maps.clusters.view_graph import ClusterOptions
from veil.places.maps.lines.incremental import LineMap, extend_map, map_from_lines
from veil.places.maps.lines.problem import LineView, more_tracks
from veil.places.maps.lines.reconstruction import Reconstruction
from veil.places.maps.lines.registration import LineMapOptions
from veil.places.maps.lines.tracks import MatchGraph, Tracks, build_tracks, restricted
from veil.progress import Progress

# Images of a track that tie its images to each other, and tracks that two images must share to be tied.
TRACK_IMAGES, LEAST_TRACKS = 3, 10
# Images that a map of lines begins with.
LEAST_IMAGES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class LineClusterTask:
    """Images of one cluster and their matches, to map by `map_line_cluster`."""

    images: Mapping[str, LineView]
    graph: MatchGraph
    options: LineMapOptions


def map_line_cluster(task: LineClusterTask) -> LineMap | NoMap:
    """Map of one cluster from its lines, or why there is none."""
    try:
        return map_from_lines(task.images, task.graph, options=task.options, hold_focals=True)
    except InputError as error:  # too few of its images have gravity, say; other clusters may do
        return NoMap(error.cause, remedy=error.remedy)


def map_lines_in_clusters(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    *,
    options: LineMapOptions | None = None,
    clusters: ClusterOptions | None = None,
    run_all: RunAll[LineClusterTask, LineMap | NoMap] = one_after_another,
    progress: Progress | None = None,
) -> ClusteredMap[LineMap] | NoMap:
    """Maps of many images from lines, by clusters, or the reason why there is none.

    `views` are the images by name, `graph` their matches, `clusters` says how large clusters are and how they overlap.
    `run_all(task, items)` gives (position, result) of every item in any order, and may run them in other processes.
    `progress` is called with the numbers of mapped clusters and of all. Raises InputError for fewer than four images.
    """
    options, clusters = options or LineMapOptions(), clusters or ClusterOptions()
    if len(views) < LEAST_IMAGES:
        raise InputError(f"mapping from lines needs at least four images, got {len(views)}")
    counts = shared_tracks(build_tracks(graph))
    parts = cut(counts, clusters, LEAST_IMAGES)
    if not parts:
        return NoMap("no four images share enough tracks", remedy=more_tracks(views))
    tasks = [
        LineClusterTask(
            images={name: views[name] for name in sorted(part.names)},
            graph=restricted(graph, sorted(part.names)),
            options=options,
        )
        for part in parts
    ]
    answers = answers_of(run_all, map_line_cluster, tasks, progress)
    return joined(_ClusterLineMaps(views, graph, options), parts, answers)


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


@dataclass(frozen=True, eq=False)
class _ClusterLineMaps:
    """Maps from lines of clusters, to be joined: what they were made from."""

    views: Mapping[str, LineView]
    graph: MatchGraph
    options: LineMapOptions
    left_out: Mapping[str, str] = field(default_factory=dict)

    def names(self, model: LineMap) -> Collection[str]:
        """Names of the images of a map."""
        return model.cam_from_world.keys()

    def piece(self, model: LineMap) -> Piece:
        """The map as a piece, by the numbers of its images' features in their messages."""
        return piece_of_lines(model)

    def together(self, group: Group[LineMap], reasons: list[str]) -> list[LineMap]:
        """One checked map of a group, or the maps of its clusters if the check speaks against it."""
        if len(group.placed) == 1:
            return [*group.maps.values()]
        one = self._adjusted(merged(group.placed, homes(group.placed, group.cores)))
        if not one.check.doubts:
            return [one]
        reasons.append(f"a joined map of {len(one.cam_from_world)} images cannot be trusted: {'; '.join(one.check.doubts)}")
        return [*group.maps.values()]

    def apart(self, maps: list[LineMap]) -> list[LineMap]:
        """The maps, each without the images of those before it; one with fewer than four left goes."""
        kept: list[LineMap] = []
        held: set[str] = set()
        for item in maps:
            own = item.cam_from_world.keys() - held
            if len(own) >= LEAST_IMAGES:
                kept.append(_of_images(item, own))
                held |= own
        return kept

    def _adjusted(self, piece: Piece) -> LineMap:
        """Map of the images of a merged piece, adjusted together and checked."""
        names = sorted(piece.cam_from_world)
        own = restricted(self.graph, names)
        tracks, reconstruction = _reconstruction_of(piece, own.names)
        views = {name: self.views[name] for name in names}
        return extend_map(views, own, tracks=tracks, reconstruction=reconstruction, options=self.options)


def piece_of_lines(line_map: LineMap) -> Piece:
    """Piece of a map from lines, by the numbers of its images' features in their messages."""
    tracks = line_map.tracks
    rows = np.flatnonzero(line_map.observed)
    used, point = np.unique(tracks.track[rows], return_inverse=True)
    own = {name: tracks.image[rows] == index for index, name in enumerate(tracks.names) if name in line_map.cam_from_world}
    return Piece(
        cam_from_world=dict(line_map.cam_from_world),
        points=line_map.points[used],
        features={name: tracks.feature[rows[mine]] for name, mine in own.items()},
        point_rows={name: point[mine].astype(np.int64) for name, mine in own.items()},
    )


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


def _of_images(line_map: LineMap, names: Set[str]) -> LineMap:
    """Map of some images of a map, with the points that keep four lines."""
    if names == line_map.cam_from_world.keys():
        return line_map
    tracks = line_map.tracks
    observed = line_map.observed & np.isin(tracks.image, [row for row, name in enumerate(tracks.names) if name in names])
    enough = np.bincount(tracks.track[observed], minlength=len(tracks)) >= LEAST_IMAGES
    return replace(
        line_map,
        cam_from_world={name: pose for name, pose in line_map.cam_from_world.items() if name in names},
        observed=observed & enough[tracks.track],
    )

"""Several maps from one set of images: where a scene falls apart, each part is mapped by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from veil.mapping.lines.incremental import LineMap, NoLineMap, map_from_lines
from veil.mapping.lines.problem import LineView
from veil.mapping.lines.registration import LineMapOptions
from veil.mapping.lines.tracks import MatchGraph
from veil.progress import Progress


def further_maps(
    views: Mapping[str, LineView],
    graph: MatchGraph,
    found: LineMap,
    *,
    options: LineMapOptions | None = None,
    progress: Progress | None = None,
) -> Iterator[LineMap]:
    """Maps of the images that the map `found` left out, one after another, until no map comes of the images that are left.

    `views` and `graph` are those that `found` was made from; options and progress as in `map_from_lines`.
    """
    while True:
        left = sorted(set(graph.names) - set(found.cam_from_world))
        rest = {name: views[name] for name in left}
        if len(rest) < 4 or all(view.lines.gravity is None for view in rest.values()):
            return
        graph = restricted(graph, left)
        another = map_from_lines(rest, graph, options=options, progress=progress)
        if isinstance(another, NoLineMap):
            return
        yield another
        found = another


def restricted(graph: MatchGraph, names: list[str]) -> MatchGraph:
    """Match graph of the images `names` alone, renumbered."""
    kept = np.isin(graph.names, names)
    counts = np.diff(graph.starts)[kept]
    starts = np.concatenate([[0], np.cumsum(counts)])
    image_of = graph.image_of
    both = kept[image_of[graph.first]] & kept[image_of[graph.second]]
    position = np.cumsum(kept) - 1

    def renumbered(nodes: np.ndarray) -> np.ndarray:
        image = image_of[nodes]
        return nodes - graph.starts[image] + starts[position[image]]

    return replace(
        graph,
        names=tuple(name for name, keep in zip(graph.names, kept, strict=True) if keep),
        starts=starts,
        first=renumbered(graph.first[both]),
        second=renumbered(graph.second[both]),
        ratios=graph.ratios[both],
        strong=graph.strong[both],
    )

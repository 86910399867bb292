"""Clusters of a map that are mapped once, however often the run is killed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from veil.files.maps.checkpoints import CLUSTERS
from veil.files.maps.cluster_results import ClusterResults, KeptAs
from veil.one_line import in_full
from veil.places.maps.clusters.joined_maps import RunAll, one_after_another
from veil.places.maps.clusters.of_lines import LineClusterTask
from veil.places.maps.clusters.of_positions import ClusterTask
from veil.places.pairs.images import form_digest
from veil.places.pairs.matching import MatchingWork
from veil.version import __version__

Answer = TypeVar("Answer")


@runtime_checkable
class WithImages(Protocol):
    """A cluster to map: its images by name."""

    @property
    def images(self) -> Mapping[str, Any]:
        """The images, as the kind of its map takes them."""


Item = TypeVar("Item", bound=WithImages)


def running(work: MatchingWork | None, kept_as: KeptAs[Any, Answer], key: Callable[[Item], str]) -> RunAll[Item, Answer]:
    """Where clusters are mapped: by the engine of the work, if it has one, and each once if it has a folder to keep them in."""
    run_all: RunAll[Item, Answer] = one_after_another if work is None or work.engine is None else work.engine.map
    if work is None or work.unfinished is None:
        return run_all
    return keeping(ClusterResults(work.unfinished / CLUSTERS, kept_as), run_all, key)


def keeping(
    results: ClusterResults[Any, Answer], run_all: RunAll[Item, Answer], key: Callable[[Item], str]
) -> RunAll[Item, Answer]:
    """The same as `run_all`, but for clusters whose answers are kept: these are read, and the answers of others are kept.

    `key` names a cluster by all that its map depends on (`cluster_key`, `line_cluster_key`).
    """

    def run(task: Callable[[Item], Answer], items: Sequence[Item]) -> Iterable[tuple[int, Answer]]:
        keys = [key(item) for item in items]
        missing = []
        for position, item in enumerate(items):
            answer = results.get(keys[position], item.images)
            if answer is None:
                missing.append(position)
            else:
                yield position, answer
        for index, answer in run_all(task, [items[position] for position in missing]):
            position = missing[index]
            results.put(keys[position], answer, items[position].images)
            yield position, answer

    return run


def cluster_key(task: ClusterTask) -> str:
    """SHA-256 (hex) of all that the map of a cluster depends on: images, matches, options, and veil's version."""
    hasher = _Hasher(f"cluster 1 {__version__} {task.options!r}")
    for name, image in task.images.items():
        hasher.add(f"{name!r} {in_full(image.camera)} {form_digest(image.form)}", image.keypoints)
    for pair, matches in task.matches.items():
        hasher.add(repr(pair), matches.indices, matches.distances, matches.ratios)
    return hasher.hex()


def line_cluster_key(task: LineClusterTask) -> str:
    """SHA-256 (hex) of all that the map of a cluster of lines depends on."""
    hasher = _Hasher(f"line cluster 1 {__version__} {task.options!r}")
    for name, view in task.images.items():
        lines = view.lines
        down = np.zeros(0) if lines.gravity is None else lines.gravity
        hasher.add(f"{name!r} {in_full(view.camera)}", lines.coefficients, lines.aligned, down)
    graph = task.graph
    hasher.add(repr(graph.names), graph.starts, graph.first, graph.second, graph.ratios, graph.strong)
    return hasher.hex()


class _Hasher:
    """SHA-256 of texts and arrays, the types and shapes of which count."""

    def __init__(self, text: str) -> None:
        self._hasher = hashlib.sha256(text.encode())

    def add(self, text: str, *arrays: np.ndarray) -> None:
        self._hasher.update(f"[{text}]".encode())
        for array in arrays:
            self._hasher.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())

    def hex(self) -> str:
        return self._hasher.hexdigest()

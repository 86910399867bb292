"""Clusters of a map that are mapped once, however often the run is killed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from veil.files.cluster_results import ClusterResults
from veil.files.line_cluster_results import LineClusterResults
from veil.mapping.clustered import ClusterTask, RunAll
from veil.mapping.lines import LineMap, NoLineMap
from veil.mapping.lines.clustered import LineClusterTask
from veil.mapping.lines.clustered import RunAll as RunAllLines
from veil.mapping.points import NoMap
from veil.pairs.images import form_digest
from veil.scene import Scene
from veil.version import __version__

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def keeping(results: ClusterResults, run_all: RunAll) -> RunAll:
    """The same as `run_all`, but for clusters whose answers are kept: these are read, and the answers of others are kept."""

    def run(task: Callable[[ClusterTask], Scene | NoMap], items: Sequence[ClusterTask]) -> Iterable[tuple[int, Scene | NoMap]]:
        keys = [cluster_key(item) for item in items]
        kept = [results.get(key, item.images) for key, item in zip(keys, items, strict=True)]
        found: Iterable[tuple[int, Scene | NoMap, bool]] = _kept_or_run(kept, items, task, run_all)
        for position, answer, new in found:
            if new:
                results.put(keys[position], answer, items[position].images)
            yield position, answer

    return run


def keeping_lines(results: LineClusterResults, run_all: RunAllLines) -> RunAllLines:
    """`keeping` for clusters that are mapped from lines."""

    def run(
        task: Callable[[LineClusterTask], LineMap | NoLineMap], items: Sequence[LineClusterTask]
    ) -> Iterable[tuple[int, LineMap | NoLineMap]]:
        keys = [line_cluster_key(item) for item in items]
        kept = [results.get(key) for key in keys]
        found: Iterable[tuple[int, LineMap | NoLineMap, bool]] = _kept_or_run(kept, items, task, run_all)
        for position, answer, new in found:
            if new:
                results.put(keys[position], answer)
            yield position, answer

    return run


def _kept_or_run(
    kept: Sequence[Answer | None],
    items: Sequence[Item],
    task: Callable[[Item], Answer],
    run_all: Callable[[Callable[[Item], Answer], Sequence[Item]], Iterable[tuple[int, Answer]]],
) -> Iterable[tuple[int, Answer, bool]]:
    """Positions of items with their answers, and whether these are new: first those that are kept."""
    missing = []
    for position, answer in enumerate(kept):
        if answer is None:
            missing.append(position)
        else:
            yield position, answer, False
    for index, answer in run_all(task, [items[position] for position in missing]):
        yield missing[index], answer, True


def cluster_key(task: ClusterTask) -> str:
    """SHA-256 (hex) of all that the map of a cluster depends on: images, matches, options, and veil's version."""
    hasher = _Hasher(f"cluster 1 {__version__} {task.options!r}")
    for name, image in task.images.items():
        hasher.add(f"{name!r} {image.camera!r} {form_digest(image.form)}", image.keypoints)
    for pair, found in task.matches.items():
        hasher.add(repr(pair), found.indices, found.distances, found.ratios)
    return hasher.hex()


def line_cluster_key(task: LineClusterTask) -> str:
    """SHA-256 (hex) of all that the map of a cluster of lines depends on."""
    hasher = _Hasher(f"line cluster 1 {__version__} {task.options!r}")
    for name, view in task.views.items():
        lines = view.lines
        down = np.zeros(0) if lines.gravity is None else lines.gravity
        hasher.add(f"{name!r} {view.camera!r}", lines.coefficients, lines.aligned, down)
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

"""Clusters of a map that are mapped once, however often the run is killed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from veil import __version__
from veil.files.cluster_results import ClusterResults
from veil.mapping.clustered import ClusterTask, RunAll
from veil.mapping.points import NoMap
from veil.matching.blocks import form_digest
from veil.scene import Scene


def keeping(results: ClusterResults, run_all: RunAll) -> RunAll:
    """The same as `run_all`, but for clusters whose answers are kept: these are read, and the answers of others are kept."""

    def run(task: Callable[[ClusterTask], Scene | NoMap], items: Sequence[ClusterTask]) -> Iterable[tuple[int, Scene | NoMap]]:
        keys = [cluster_key(item) for item in items]
        missing: list[int] = []
        for position, (key, item) in enumerate(zip(keys, items, strict=True)):
            kept = results.get(key, item.images)
            if kept is None:
                missing.append(position)
            else:
                yield position, kept
        for index, answer in run_all(task, [items[position] for position in missing]):
            position = missing[index]
            results.put(keys[position], answer, items[position].images)
            yield position, answer

    return run


def cluster_key(task: ClusterTask) -> str:
    """SHA-256 (hex) of all that the map of a cluster depends on: images, matches, options, and veil's version."""
    hasher = hashlib.sha256(f"cluster 1 {__version__} {task.options!r}".encode())

    def add(text: str, *arrays: np.ndarray) -> None:
        hasher.update(f"[{text}]".encode())
        for array in arrays:
            hasher.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())

    for name, image in task.images.items():
        add(f"{name!r} {image.camera!r} {form_digest(image.form)}", image.keypoints)
    for pair, found in task.matches.items():
        add(repr(pair), found.indices, found.distances, found.ratios)
    return hasher.hexdigest()

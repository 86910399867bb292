"""Maps of clusters, run anywhere and joined to one map or to several, whatever the images were mapped from.

Maps of positions (`veil.places.maps.clusters.of_positions`) and of lines (`of_lines`) say what their parts are and how a group
of parts becomes one map (`ClusterMaps`); the cut, the runs and the joining stand here alone (docs/theory/scale.md, "One map").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from veil.places.maps.clusters.joining import join
from veil.places.maps.clusters.pieces import Piece, homes
from veil.places.maps.clusters.view_graph import Cluster, ClusterOptions, overlapping_clusters, view_graph
from veil.places.maps.images import NoMap, Pair
from veil.progress import Progress

Task = TypeVar("Task")
Answer = TypeVar("Answer")
OneMap = TypeVar("OneMap")
# Gives (position, result) of every item in any order, and may run the task in other processes: `map` of an engine fits.
RunAll = Callable[[Callable[[Task], Answer], Sequence[Task]], Iterable[tuple[int, Answer]]]


def one_after_another(task: Callable[[Task], Answer], items: Sequence[Task]) -> Iterable[tuple[int, Answer]]:
    """Positions of items with their results, in this process, one after another."""
    for position, item in enumerate(items):
        yield position, task(item)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusteredMap(Generic[OneMap]):
    """Maps of many images, no image in two of them, that of most images first.

    - `maps`: one or more.
    - `reasons`: sentences that say why parts do not join, and why clusters have no map.
    - `clusters`: the images of each cluster, the numbers of which (from 1) the reasons name; none if nothing was cut.
    """

    maps: tuple[OneMap, ...]
    reasons: tuple[str, ...] = ()
    clusters: tuple[Cluster, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Group(Generic[OneMap]):
    """Clusters whose maps join, by their numbers from 0.

    - `number`: of the group, the largest first, from 0.
    - `maps`: maps of the clusters.
    - `placed`: their pieces in one world.
    - `cores`: by image, the cluster that it is in the core of.
    - `home`: by image of any group, the cluster whose pose of it is kept.
    """

    number: int
    maps: Mapping[int, OneMap]
    placed: Mapping[int, Piece]
    cores: Mapping[str, int]
    home: Mapping[str, int]


@runtime_checkable
class ClusterMaps(Protocol[OneMap]):
    """Particulars of one kind of maps when maps of clusters are joined."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Reasons of images that no cluster was given, by name."""

    def names(self, model: OneMap) -> Collection[str]:
        """Names of the images of a map."""

    def piece(self, model: OneMap) -> Piece:
        """The map as a piece, by the numbers of all features of its images."""

    def together(self, group: Group[OneMap], reasons: list[str]) -> list[OneMap]:
        """Adjusted and checked maps of a group; what speaks against them is added to `reasons`."""

    def apart(self, maps: list[OneMap]) -> list[OneMap]:
        """The maps, that of most images first, without images that one before them has."""


def cut(counts: Mapping[Pair, int], options: ClusterOptions | None, least: int) -> list[Cluster]:
    """Clusters of the images that the pairs of `counts` tie, of those that have `least` images or more."""
    tied = {name for pair in counts for name in pair}
    clusters = overlapping_clusters(view_graph(tied, counts), options) if tied else []
    return [part for part in clusters if len(part.names) >= least]


def answers_of(
    run_all: RunAll[Task, Answer], task: Callable[[Task], Answer], items: Sequence[Task], progress: Progress | None
) -> dict[int, Answer]:
    """Results of all items by their positions; `progress` is called with the numbers of results and of items."""
    answers: dict[int, Answer] = {}
    for position, answer in run_all(task, items):
        answers[position] = answer
        if progress is not None:
            progress(len(answers), len(items))
    return answers


def joined(
    work: ClusterMaps[OneMap], parts: Sequence[Cluster], answers: Mapping[int, OneMap | NoMap]
) -> ClusteredMap[OneMap] | NoMap:
    """Map of all clusters that join, further ones, and reasons; `answers` are those of the clusters, by their positions."""
    maps: dict[int, OneMap] = {}
    reasons: list[str] = []
    for number, answer in sorted(answers.items(), key=lambda item: item[0]):
        if isinstance(answer, NoMap):
            reasons.append(f"cluster {number + 1}: {answer.reason}")
        else:
            maps[number] = answer
    remedy = tuple(dict.fromkeys(item for a in answers.values() if isinstance(a, NoMap) for item in a.remedy))
    if not maps:
        return NoMap("; ".join(reasons) or "no cluster gave a map", work.left_out, remedy=remedy)
    numbers = list(maps)
    pieces = {k: work.piece(model) for k, model in maps.items()}
    result = join([pieces[k] for k in numbers], labels=[k + 1 for k in numbers])
    reasons += [result.reasons[edge] for edge in sorted(result.reasons)]
    cores = {name: k for k, part in enumerate(parts) for name in part.core}
    home = homes(pieces, cores)
    models: list[OneMap] = []
    for number, joint in enumerate(result.joints):
        placed = {numbers[k]: pieces[numbers[k]].moved(way) for k, way in joint.world_from_piece.items()}
        group = Group(number=number, maps={k: maps[k] for k in placed}, placed=placed, cores=cores, home=home)
        models += work.together(group, reasons)
    models = work.apart(sorted(models, key=lambda model: (-len(work.names(model)), min(work.names(model)))))
    if not models:
        return NoMap("; ".join(reasons) or "no model is left", work.left_out, remedy=remedy)
    return ClusteredMap(maps=tuple(models), reasons=tuple(reasons), clusters=tuple(parts))

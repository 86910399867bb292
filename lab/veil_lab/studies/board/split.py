"""Choice of a scene's map images and queries by the hash of their names, with the raw map, and errors of any map."""

from __future__ import annotations

import hashlib
import resource
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from veil.device.doors import LEAST_FOR_MAP, MOST_FOR_MAP, map_images, selected_by_map
from veil.errors import InputError
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import align_centers, align_poses
from veil.mechanisms.selection import ChosenFeatures
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.maps import NoMap
from veil_lab.studies.board.rows import MapCounts
from veil_lab.studies.localization.answer_counts import extent_of
from veil_lab.studies.localization.false_acceptance import Fold, ReferencePlace

Made = TypeVar("Made")


def ranked(names: Iterable[str], most: int | None = None) -> list[str]:
    """At most `most` image names in the order of the SHA-256 of each (UTF-8), which nobody chooses."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:most]


def split(names: Iterable[str], every: int) -> tuple[list[str], list[str]]:
    """Image names of the map and of the queries: of the `ranked` ones every `every`-th is a query."""
    order = ranked(names)
    queries = order[every - 1 :: every]
    return [name for name in order if name not in queries], queries


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitScene:
    """A scene that is split, with its raw map.

    `mapped` are names of map images, `raw` is their raw map, and `seconds` are the processor seconds of it. `fold` holds it
    with the queries that have a reference pose.
    """

    mapped: Sequence[str]
    raw: BuiltMap
    fold: Fold
    seconds: float

    @staticmethod
    def of(place: ReferencePlace, every: int) -> SplitScene:
        """The scene of a place. Raises InputError where raw features give no map, or one that contradicts the reference."""
        mapped, queries = split(place.features, every)
        with tempfile.TemporaryDirectory(prefix="veil-board-") as matches:  # the second map matches the pairs that are new
            raw, seconds = timed(lambda: raw_map(place.features, mapped, matches))
            if not place.cam_from_world:
                place = replace(place, cam_from_world=poses_of(raw_map(place.features, list(place.features), matches)))
        asked = tuple(name for name in queries if name in place.cam_from_world)
        if not asked:
            raise InputError(f"no reference pose of any of the {len(queries)} queries among {len(place.features)} photographs")
        own = {name: pose for name, pose in poses_of(raw).items() if name in place.cam_from_world}
        aligned = align_poses(list(own.values()), [place.cam_from_world[name] for name in own])
        fold = Fold(place=place, held_out=asked, scene=raw.map.scene, reference_from_map=aligned)
        return SplitScene(mapped=mapped, raw=raw, fold=fold, seconds=seconds)

    @property
    def reference(self) -> Mapping[str, Rigid]:
        """Reference poses by image name."""
        return self.fold.place.cam_from_world

    @cached_property
    def poses(self) -> dict[str, Rigid]:
        """Poses of the raw map by image name."""
        return {name: image.cam_from_world for name, image in self.fold.scene.images.items()}

    @cached_property
    def chosen(self) -> dict[str, ChosenFeatures]:
        """The features that leave of mapped photographs, by name: as from `veil privatize`, of a folder with nothing else."""
        if not LEAST_FOR_MAP <= len(self.mapped) <= MOST_FOR_MAP:
            return {}
        return selected_by_map(self.raw, self.fold.place.features)

    def counts(self, poses: Mapping[str, Rigid], seconds: float) -> MapCounts:
        """Counts of a map with these poses by image name."""
        distances = map_errors(poses, self.reference)
        extent = extent_of(self.reference.values())
        return MapCounts(
            registered=len(poses),
            by_raw=len(self.poses),
            median_error=float(np.median(distances)) / extent if distances else None,
            largest_error=max(distances) / extent if distances else None,
            seconds=seconds,
        )


def raw_map(features: Mapping[str, Features], names: Sequence[str], matches: str) -> BuiltMap:
    """The map of raw features of some photographs; the folder `matches` keeps their matches. Raises InputError without one."""
    built = map_images({name: features[name] for name in names}, options=MappingOptions(workers=1), matches=matches)
    if isinstance(built, NoMap):
        raise InputError(f"no raw map of {len(names)} photographs: {built.reason}")
    return built


def map_errors(own: Mapping[str, Rigid], reference: Mapping[str, Rigid]) -> list[float]:
    """Distances of a map's camera centers from the reference's after similarity alignment, in the reference's unit.

    None at all for fewer than three images in both, or where the centers coincide.
    """
    names = sorted(own.keys() & reference.keys())
    try:
        aligned = align_centers([own[name] for name in names], [reference[name] for name in names])
    except InputError:
        return []
    return [float(np.linalg.norm(aligned.apply(own[name].center) - reference[name].center)) for name in names]


def poses_of(built: BuiltMap) -> dict[str, Rigid]:
    """Poses of the images of a map by name, cam_from_world."""
    return {name: image.cam_from_world for name, image in built.map.scene.images.items()}


def timed(make: Callable[[], Made]) -> tuple[Made, float]:
    """The value of `make` and the processor seconds that it took."""
    begun = processor_seconds()
    made = make()
    return made, processor_seconds() - begun


def processor_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)

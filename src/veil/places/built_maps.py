"""Options of a new map, and the map with the record of how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from veil.one_line import one_line
from veil.places.held_map import Map
from veil.places.maps.check import ReadingsCheck, checked_readings
from veil.places.pairs.choice import PairChoice
from veil.scene import LineMapCheck, MapCheck, Scene


@dataclass(frozen=True, kw_only=True)
class MappingOptions:
    """Options of building a map.

    - `seed`: of RANSAC and mapping.
    - `workers`: number of image pairs that are matched at a time.
    - `pairs`: which pairs of images are matched; by default all up to some hundred images, else those that look alike.
    - `cluster_size`: more images than this are mapped in clusters of this size, which are joined.
    - `max_ratio`: largest ratio of nearest to second nearest distance, in (0, 1]. None: for maps of positions learned from the
      images, for maps of lines the calibrated one.
    - `max_seconds`: stops the mapper of positions after so long; None: only where it hangs.
    - `global_mapper`: COLMAP's global mapper in place of the incremental one; positions only.
    - `gravity_sigma_deg`: standard deviation of the gravity that lines come with, in degrees.
    - `locate`: add images that no pair brings in by their poses; positions only, and only of places where nothing is built
      twice (docs/theory/mapping.md#images-added-by-their-poses).
    """

    seed: int = 0
    workers: int = 2
    pairs: PairChoice | None = None
    cluster_size: int = 500
    max_ratio: float | None = None
    max_seconds: float | None = None
    global_mapper: bool = False
    gravity_sigma_deg: float = 0.5
    locate: bool = False

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class BuiltMap:
    """A map with the record of how sure it is.

    - `map`: the map.
    - `check`: numbers for and against it (docs/theory/mapping.md#the-check; for lines #how-sure-a-map-is).
    - `left_out`: why images are not in the map, by name.
    - `readings`: readings of gravity compared with the map; None if a map of positions was given none.
    - `further`: maps of images that share too little with the first.
    - `reasons`: sentences on why parts of a map do not join, and why clusters of images have no map.
    """

    map: Map
    check: MapCheck | LineMapCheck | None
    left_out: Mapping[str, str] = field(default_factory=dict)
    readings: ReadingsCheck | None = None
    further: tuple[Map, ...] = ()
    reasons: tuple[str, ...] = ()

    __repr__ = one_line


def readings_of(scene: Scene, gravity: Mapping[str, np.ndarray]) -> ReadingsCheck:
    """The images' readings of gravity (down in the camera frame, by image name) compared with the scene's poses."""
    return checked_readings({name: image.cam_from_world for name, image in scene.images.items()}, gravity)

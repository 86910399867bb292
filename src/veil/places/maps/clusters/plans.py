"""Cost of a map of many images: pairs, core-hours, memory, disk and network from unit costs (docs/theory/scale.md#plans)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from veil.errors import RangeError
from veil.one_line import one_line

# Bytes of a float32 and of a match in a store of matches.
_NUMBER, _MATCH = 4, 24
# Share of an image's features that find a mutual nearest neighbor in another image, whatever it shows.
MUTUAL = 0.25
# Pairs by tracks, as in the simulated city: share of features that vote at first, words that these and tracks are listed under,
# tracks and their views as shares of the features, and how many times as long two tracks take as two features.
_SEED_SHARE, _SEED_LISTED, _TRACKS, _VIEWS, _LONGER = 0.25, 6, 0.05, 0.2, 10.0
# All of it over what is listed and compared: images without tracks are looked up one by one.
_LOOKED_UP = 1.6


@dataclass(frozen=True, kw_only=True)
class UnitCosts:
    """Seconds of one core, measured on one machine at a number of features, and what they were measured at.

    - `features`: of an image in the measurement.
    - `match_s`: of matching one pair of images with this number of features each.
    - `list_s`: of finding the words and the reach of one image's features.
    - `vote_s`: of one pair of features that share a word.
    - `map_s`: of verifying, mapping and adjusting, for each image of the map.
    """

    features: int
    match_s: float
    list_s: float
    vote_s: float
    map_s: float


@dataclass(frozen=True, kw_only=True)
class MapSize:
    """How large a map is planned, and from what.

    - `images`, `features`: number of images, and of features of each.
    - `paired`: images that retrieval pairs each image with; None: all pairs.
    - `tracks`: whether tracks name the pairs, or the features of single images.
    - `words`, `listed`: of the dictionary that retrieval uses, and how many of them each feature is listed under.
    - `crowding`: how much more often two features share a word than if all words were as common.
    - `dim`, `m`: dimensions of the space and of each subspace (0 for points).
    - `message_bytes`: of one feature in an upload.

    Raises RangeError for less than two images or one feature, or for other numbers that are not positive.
    """

    images: int
    features: int = 1000
    paired: int | None = 40
    tracks: bool = False
    words: int = 16_384
    listed: int = 10
    crowding: float = 4.0
    dim: int = 48
    m: int = 4
    message_bytes: float = 488.0

    def __post_init__(self) -> None:
        if self.images < 2 or self.features < 1:
            raise RangeError(f"a map needs two images or more with a feature each, got {self.images!r} and {self.features!r}")
        for name in ("words", "listed", "crowding", "dim", "message_bytes"):
            if not getattr(self, name) > 0:
                raise RangeError(f"{name} must be positive, got {getattr(self, name)!r}")
        if self.paired is not None and self.paired < 1:
            raise RangeError(f"paired must be at least 1, got {self.paired!r}")


class MapPlanJson(TypedDict):
    """The plan of a map."""

    pairs: int
    retrieval_s: float
    matching_s: float
    mapping_s: float
    core_hours: float
    memory_bytes: int
    worker_bytes: int
    disk_bytes: int
    network_bytes: int
    days: float


@dataclass(frozen=True, kw_only=True)
class MapPlan:
    """Plan of a map: `pairs` of images, seconds of one core of each step, bytes, and `days` on the given machines.

    The steps are `retrieval_s`, `matching_s` and `mapping_s`. `memory_bytes` is of the process that runs the command,
    `worker_bytes` of each worker. `disk_bytes` hold uploads and matches. `network_bytes` go from where the uploads lie to
    workers that are elsewhere.
    """

    pairs: int
    retrieval_s: float
    matching_s: float
    mapping_s: float
    memory_bytes: int
    worker_bytes: int
    disk_bytes: int
    network_bytes: int
    days: float

    __repr__ = one_line

    @property
    def core_hours(self) -> float:
        """Hours of one core, all steps together."""
        return (self.retrieval_s + self.matching_s + self.mapping_s) / 3600

    def as_json(self) -> MapPlanJson:
        """The stable record of docs/reference/json.md."""
        return {
            "pairs": self.pairs,
            "retrieval_s": self.retrieval_s,
            "matching_s": self.matching_s,
            "mapping_s": self.mapping_s,
            "core_hours": self.core_hours,
            "memory_bytes": self.memory_bytes,
            "worker_bytes": self.worker_bytes,
            "disk_bytes": self.disk_bytes,
            "network_bytes": self.network_bytes,
            "days": self.days,
        }


def planned_map(size: MapSize, costs: UnitCosts, *, machines: int = 1, cores: int = 2) -> MapPlan:
    """Plan a map (docs/theory/scale.md, Eq. 5-8) on `machines` machines of `cores` cores each.

    Retrieval and the joining of maps run on one machine, matching on all. Raises RangeError without machines or cores.
    """
    if machines < 1 or cores < 1:
        raise RangeError(f"machines and cores must be at least 1, got {machines!r} and {cores!r}")
    n, features = size.images, size.features
    every = n * (n - 1) // 2
    pairs = every if size.paired is None else min(every, n * size.paired)
    scale = features / costs.features
    matching = pairs * costs.match_s * scale**2
    retrieval = 0.0
    if size.paired is not None:
        listing, comparing = 1.0, float(n * features * size.listed) ** 2
        if size.tracks:
            listing = _SEED_SHARE + _VIEWS
            comparing = (n * features * _SEED_LISTED) ** 2 * (_SEED_SHARE**2 + _LONGER * _TRACKS**2)
        retrieval = n * costs.list_s * scale * listing + size.crowding * comparing / (2 * size.words) * costs.vote_s
        if size.tracks:
            retrieval *= _LOOKED_UP
    mapping = n * costs.map_s * scale
    form = features * (size.m + 1) * size.dim * _NUMBER
    upload = math.ceil(features * size.message_bytes)
    match_bytes = math.ceil(pairs * features * MUTUAL * _MATCH)
    # Uploads are held once, and once more by retrieval, with its matrix of votes in three copies.
    memory = n * form * (1 if size.paired is None else 2) + match_bytes + (0 if size.paired is None else 3 * 8 * n * n)
    blocks = math.ceil(pairs / 1024)
    seconds = (retrieval + mapping) / cores + matching / (machines * cores)
    return MapPlan(
        pairs=pairs,
        retrieval_s=retrieval,
        matching_s=matching,
        mapping_s=mapping,
        memory_bytes=memory,
        worker_bytes=64 * form,
        disk_bytes=n * upload + match_bytes,
        network_bytes=blocks * 64 * upload,
        days=seconds / 86_400,
    )

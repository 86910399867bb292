"""Held-out photographs localized from tiles, beside the whole raw map: the protocol of `veil evaluate tiles`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veil.features import Features
from veil.geometry.similarity import pose_error
from veil.localization.by_distance import Localization, LocalizeOptions, localize_matches
from veil.statistics import clopper_pearson
from veil.studies.localization.false_acceptance import Fold, QueryProtocol, random_features, shuffled_features, true_queries
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import TileOptions, localize_in_tiles, wanted_tiles
from veil.tiles.fetching import proved_tile

# A pose that is turned by more than this is astray, whatever its position.
ASTRAY_DEG = 5.0


@dataclass(frozen=True, kw_only=True)
class TileSetting:
    """How maps are cut and asked: bytes of a tile, axes and bits of a descriptor, tiles that a localization asks for."""

    tile_bytes: int
    axes: int
    bits: int
    asked: int

    @property
    def cut(self) -> CutOptions:
        """The options with which maps are cut."""
        return CutOptions(tile_bytes=self.tile_bytes, axes=self.axes, bits=self.bits, asked=self.asked)


@dataclass(frozen=True, kw_only=True)
class TileTrial:
    """One photograph asked of one map: from tiles, or of the whole raw map (`setting` None).

    Errors are in units of the reference and in degrees; None without a pose or a reference. `fetched_bytes` is the size of the
    records that were asked for, `tiles` their number in the map.
    """

    scene: str
    query: str
    true: bool
    setting: TileSetting | None
    accepted: bool
    position_error: float | None
    rotation_error_deg: float | None
    tiles: int
    fetched_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TileRow:
    """A setting in one scene, or in all of them (`scene` "all").

    - `tiles`: of a map, on average over the maps. `fetched_bytes`: of a localization, at the median.
    - `raw_localized`: true queries that the whole raw map localizes; `localized`: those of them that tiles localize, too, whose
      share lies in `low`..`high` with 95 % confidence.
    - `gained`: true queries that tiles localize and the raw map does not.
    - `error_ratio`: median error of position from tiles over that of the raw map, of the queries that both localize. Of several
      scenes, errors count in units of the scene's raw median.
    - `median_error`, `raw_median_error`: of position in units of the reference; None for several scenes.
    - `astray`: poses of true queries that are turned by more than 5 degrees, beside `raw_astray`.
    - `false_queries`, `false_poses`: photographs of other places and noise, and how many of them got a pose.
    - `seconds`: median time of a localization on this machine.
    """

    scene: str
    setting: TileSetting
    tiles: float
    fetched_bytes: float
    queries: int
    raw_localized: int
    localized: int
    low: float
    high: float
    gained: int
    error_ratio: float | None
    median_error: float | None
    raw_median_error: float | None
    astray: int
    raw_astray: int
    false_queries: int
    false_poses: int
    seconds: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "scene": self.scene,
            "tile_bytes": self.setting.tile_bytes,
            "axes": self.setting.axes,
            "bits": self.setting.bits,
            "asked": self.setting.asked,
            "tiles": self.tiles,
            "fetched_bytes": self.fetched_bytes,
            "queries": self.queries,
            "raw_localized": self.raw_localized,
            "localized": self.localized,
            "low": self.low,
            "high": self.high,
            "gained": self.gained,
            "error_ratio": self.error_ratio,
            "median_error": self.median_error,
            "raw_median_error": self.raw_median_error,
            "astray": self.astray,
            "raw_astray": self.raw_astray,
            "false_queries": self.false_queries,
            "false_poses": self.false_poses,
            "seconds": self.seconds,
        }


def raw_trials(fold: Fold, options: LocalizeOptions | None = None) -> Iterator[TileTrial]:
    """The held-out photographs of a fold, localized on its whole map from raw features."""
    protocol = QueryProtocol(workers=1, localize=options or LocalizeOptions(workers=1))
    for query in true_queries(fold, protocol):
        start = time.perf_counter()
        found = localize_matches(
            query.features.camera,
            query.features.keypoints,
            query.keypoint_rows,
            query.point_rows,
            query.points,
            views=query.views,
            options=protocol.localize,
        )
        yield _trial(fold, query.name, True, None, None, found, query.errors(found), time.perf_counter() - start)


def tile_trials(
    fold: Fold, setting: TileSetting, false: Mapping[str, Features], options: LocalizeOptions | None = None
) -> Iterator[TileTrial]:
    """The held-out photographs of a fold and false queries, localized in tiles of its map that sketches choose."""
    made = cut(fold.scene, setting.cut)
    tile_options = TileOptions(localize=options or LocalizeOptions())
    queries = [(name, True, fold.place.features[name]) for name in fold.held_out]
    for name, true, features in [*queries, *((name, False, item) for name, item in false.items())]:
        start = time.perf_counter()
        wanted = wanted_tiles(made.manifest, features, options=tile_options)
        tiles = [proved_tile(made.manifest, index, made.records[index].tobytes()) for index in wanted]
        found = localize_in_tiles(features, made.manifest, tiles, tile_options)
        seconds = time.perf_counter() - start
        errors = None
        if true and isinstance(found, Localization):
            errors = _errors(fold, name, found)
        yield _trial(fold, name, true, setting, made, found, errors, seconds)


def false_queries(folds: Sequence[Fold], others: Mapping[str, Features], *, most: int, noise: int) -> list[dict[str, Features]]:
    """False queries for each fold of a place: at most `most` photographs `others` of other places, and noise.

    The photographs are taken evenly, each for one fold. `noise` queries for each fold are random, and as many are a held-out
    photograph's features at each other's positions.
    """
    found: list[dict[str, Features]] = [{} for _ in folds]
    names = sorted(others)
    asked = min(most * len(folds), len(names))
    for number in range(asked):
        name = names[number * len(names) // asked]
        found[number % len(folds)][name] = others[name]
    for fold, false in zip(folds, found, strict=True):
        for number in range(noise):
            name = fold.held_out[number % len(fold.held_out)]
            random = np.random.default_rng([number, *fold.place.name.encode()])
            false[f"random {name} #{number}"] = random_features(random, fold.place.features[name])
            false[f"shuffled {name} #{number}"] = shuffled_features(random, fold.place.features[name])
    return found


def tile_rows(trials: Sequence[TileTrial]) -> list[TileRow]:
    """A row for each setting and scene, and one for all scenes together where there are several."""
    scenes = list(dict.fromkeys(trial.scene for trial in trials))
    settings = list(dict.fromkeys(trial.setting for trial in trials if trial.setting is not None))
    groups = [[name] for name in scenes] + ([scenes] if len(scenes) > 1 else [])
    return [tile_row(trials, setting, names) for names in groups for setting in settings]


def tile_row(trials: Sequence[TileTrial], setting: TileSetting, scenes: Sequence[str]) -> TileRow:
    """The row of a setting in some scenes."""
    raw = {(item.scene, item.query): item for item in trials if item.setting is None and item.scene in scenes}
    own = [item for item in trials if item.setting == setting and item.scene in scenes]
    true = {(item.scene, item.query): item for item in own if item.true}
    false = [item for item in own if not item.true]
    by_raw = [key for key, item in raw.items() if item.accepted]
    both = [key for key in by_raw if true[key].accepted]
    low, high = clopper_pearson(len(both), len(by_raw), confidence=0.95) if by_raw else (0.0, 1.0)
    unit = {name: _median([item.position_error for item in raw.values() if item.scene == name]) or 1.0 for name in scenes}
    errors, raw_errors = (
        [(item.position_error or 0.0) / unit[key[0]] for key in both for item in [answers[key]]] for answers in (true, raw)
    )
    error, raw_error = _median(errors), _median(raw_errors)
    scale = unit[scenes[0]] if len(scenes) == 1 else None
    return TileRow(
        scene=scenes[0] if len(scenes) == 1 else "all",
        setting=setting,
        tiles=float(np.mean([item.tiles for item in own])),
        fetched_bytes=float(np.median([item.fetched_bytes for item in own])),
        queries=len(true),
        raw_localized=len(by_raw),
        localized=len(both),
        low=low,
        high=high,
        gained=sum(item.accepted and not raw[key].accepted for key, item in true.items()),
        error_ratio=error / raw_error if error is not None and raw_error else None,
        median_error=error * scale if error is not None and scale else None,
        raw_median_error=raw_error * scale if raw_error is not None and scale else None,
        astray=sum((item.rotation_error_deg or 0) > ASTRAY_DEG for item in true.values()),
        raw_astray=sum((item.rotation_error_deg or 0) > ASTRAY_DEG for item in raw.values()),
        false_queries=len(false),
        false_poses=sum(item.accepted for item in false),
        seconds=float(np.median([item.seconds for item in own])),
    )


def _median(values: Sequence[float | None]) -> float | None:
    """The median of the numbers among some values; None without any."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _errors(fold: Fold, name: str, found: Localization) -> tuple[float, float]:
    return pose_error(found.cam_from_world, fold.place.cam_from_world[name], fold.reference_from_map)


def _trial(
    fold: Fold,
    name: str,
    true: bool,
    setting: TileSetting | None,
    made: CutMap | None,
    found: object,
    errors: tuple[float, float] | None,
    seconds: float,
) -> TileTrial:
    position, rotation = errors or (None, None)
    return TileTrial(
        scene=fold.place.name,
        query=name,
        true=true,
        setting=setting,
        accepted=isinstance(found, Localization),
        position_error=None if position is None or not math.isfinite(position) else position,
        rotation_error_deg=rotation,
        tiles=0 if made is None else len(made.manifest),
        fetched_bytes=0 if made is None else made.manifest.asked * made.manifest.record_bytes,
        seconds=seconds,
    )

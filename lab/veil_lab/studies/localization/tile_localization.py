"""Held-out photographs localized from tiles, beside the whole raw map, and sent to a server in other forms.

The protocol of `veil evaluate tiles`; the other forms are raw, subspaces, lines and words.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from veil.features import Features
from veil.geometry.similarity import pose_error
from veil.matching.inverted_index import index_map
from veil.mechanisms.profile import Profile
from veil.pir import two_servers
from veil.places.poses.answer import Localization
from veil.places.poses.by_distance import localize_matches
from veil.places.poses.options import LocalizeOptions
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles, wanted_tiles
from veil.tiles.fetching import proved_tile
from veil.tiles.manifest import encode_manifest
from veil.trials.form_answers import FormSetup, Variant, answered, in_words
from veil_lab.studies.localization.against_raw import AgainstRaw, against_raw
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, random_features, shuffled_features, true_queries


@dataclass(frozen=True, kw_only=True)
class TileSetting:
    """How maps are cut and asked: bytes of a tile, axes and bits of a descriptor, tiles that a localization asks for, words.

    `words` of the sketches are None for as many as `veil tiles cut` gives them, `download` is None for tiles of all points.
    """

    tile_bytes: int
    axes: int
    bits: int
    asked: int
    words: int | None = None
    download: int | None = None

    @property
    def cut(self) -> CutOptions:
        """The options with which maps are cut."""
        return CutOptions(**vars(self))


@dataclass(frozen=True, kw_only=True)
class TileTrial:
    """One photograph asked of one map: from tiles, or of the whole raw map (`setting` None).

    Errors are in units of the reference and in degrees; None without a pose or a reference. `fetched_bytes` is the size of the
    records that were asked for, `up_bytes` that of the queries for them to two servers, `tiles` the number in the map.
    """

    scene: str
    query: str
    true: bool
    setting: TileSetting | None
    accepted: bool
    position_error: float | None
    rotation_error_deg: float | None
    tiles: int
    manifest_bytes: int
    all_bytes: int
    fetched_bytes: int
    up_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TileRow:
    """A setting in one scene, or in all of them (`scene` "all").

    - `tiles`, `manifest_bytes`, `all_bytes`: of a map, its manifest, and that with all tiles, on average over the maps.
    - `fetched_bytes`: of the records that a localization asks for, at the median. `up_bytes`, `down_bytes`: what travels for
      them with the two-server exit, to and from both.
    - `beside`: the true queries, beside the whole raw map.
    - `false_queries`, `false_poses`: photographs of other places and noise, and how many of them got a pose.
    - `seconds`: median time of a localization on this machine, fetching left out.
    """

    scene: str
    setting: TileSetting
    tiles: float
    manifest_bytes: float
    all_bytes: float
    fetched_bytes: float
    up_bytes: float
    down_bytes: float
    beside: AgainstRaw
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
            "words": self.setting.words,
            "download": self.setting.download,
            "tiles": self.tiles,
            "manifest_bytes": self.manifest_bytes,
            "all_bytes": self.all_bytes,
            "fetched_bytes": self.fetched_bytes,
            "up_bytes": self.up_bytes,
            "down_bytes": self.down_bytes,
            **self.beside.as_json(),
            "false_queries": self.false_queries,
            "false_poses": self.false_poses,
            "seconds": self.seconds,
        }


def raw_trials(fold: Fold, options: LocalizeOptions | None = None) -> Iterator[TileTrial]:
    """The held-out photographs of a fold, localized on its whole map from raw features."""
    protocol = QueryProtocol(workers=1, localize=options or LocalizeOptions(workers=1))
    for query in true_queries(fold, protocol):
        start = time.perf_counter()
        pose = localize_matches(
            query.features.camera,
            query.features.keypoints,
            query.keypoint_rows,
            query.point_rows,
            query.points,
            views=query.views,
            options=protocol.localize,
        )
        yield _trial(fold, query.name, True, None, None, pose, query.errors(pose), time.perf_counter() - start)


def tile_trials(
    fold: Fold, setting: TileSetting, false: Mapping[str, Features], options: LocalizeOptions | None = None
) -> Iterator[TileTrial]:
    """The held-out photographs of a fold and false queries, localized in tiles of its map that sketches choose."""
    made = cut(fold.scene, setting.cut)
    queries = [(name, True, fold.place.features[name]) for name in fold.held_out]
    for name, true, features in [*queries, *((name, False, item) for name, item in false.items())]:
        start = time.perf_counter()
        wanted = wanted_tiles(made.manifest, features)
        tiles = [proved_tile(made.manifest, index, made.records[index].tobytes()) for index in wanted]
        pose = localize_in_tiles(features, made.manifest, tiles, options)
        seconds = time.perf_counter() - start
        errors = None
        if true and isinstance(pose, Localization):
            errors = _errors(fold, name, pose)
        yield _trial(fold, name, true, setting, made, pose, errors, seconds)


def false_queries(folds: Sequence[Fold], others: Mapping[str, Features], *, most: int, noise: int) -> list[dict[str, Features]]:
    """False queries for each fold of a place: at most `most` photographs `others` of other places, and noise.

    The photographs are taken evenly, each for one fold. `noise` queries for each fold are random, and as many are a held-out
    photograph's features at each other's positions.
    """
    queries: list[dict[str, Features]] = [{} for _ in folds]
    names = sorted(others)
    asked = min(most * len(folds), len(names))
    for number in range(asked):
        name = names[number * len(names) // asked]
        queries[number % len(folds)][name] = others[name]
    for fold, false in zip(folds, queries, strict=True):
        for number in range(noise):
            name = fold.held_out[number % len(fold.held_out)]
            random = np.random.default_rng([number, *fold.place.name.encode()])
            false[f"random {name} #{number}"] = random_features(random, fold.place.features[name])
            false[f"shuffled {name} #{number}"] = shuffled_features(random, fold.place.features[name])
    return queries


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
    false = [item for item in own if not item.true]
    return TileRow(
        scene=scenes[0] if len(scenes) == 1 else "all",
        setting=setting,
        tiles=float(np.mean([item.tiles for item in own])),
        manifest_bytes=float(np.mean([item.manifest_bytes for item in own])),
        all_bytes=float(np.mean([item.all_bytes for item in own])),
        fetched_bytes=float(np.median([item.fetched_bytes for item in own])),
        up_bytes=float(np.median([item.up_bytes for item in own])),
        down_bytes=float(np.median([2 * item.fetched_bytes for item in own])),
        beside=against_raw({(item.scene, item.query): item for item in own if item.true}, raw, scenes),
        false_queries=len(false),
        false_poses=sum(item.accepted for item in false),
        seconds=float(np.median([item.seconds for item in own])),
    )


def _errors(fold: Fold, name: str, pose: Localization) -> tuple[float, float]:
    return pose_error(pose.cam_from_world, fold.place.cam_from_world[name], fold.reference_from_map)


def _trial(
    fold: Fold,
    name: str,
    true: bool,
    setting: TileSetting | None,
    made: CutMap | None,
    pose: object,
    errors: tuple[float, float] | None,
    seconds: float,
) -> TileTrial:
    position, rotation = errors or (None, None)
    return TileTrial(
        scene=fold.place.name,
        query=name,
        true=true,
        setting=setting,
        accepted=isinstance(pose, Localization),
        position_error=None if position is None or not math.isfinite(position) else position,
        rotation_error_deg=rotation,
        tiles=0 if made is None else len(made.manifest),
        manifest_bytes=0 if made is None else _manifest_bytes(made),
        all_bytes=0 if made is None else _manifest_bytes(made) + made.records.size,
        fetched_bytes=0 if made is None else made.manifest.asked * made.manifest.record_bytes,
        up_bytes=0 if made is None else 2 * made.manifest.asked * two_servers.query_bytes(len(made.manifest)),
        seconds=seconds,
    )


def _manifest_bytes(made: CutMap) -> int:
    text, binary, _ = encode_manifest(made.manifest)
    return len(text) + len(binary)


FormName = Literal["raw", "subspaces", "lines", "words"]
FORMS: tuple[FormName, ...] = get_args(FormName)


@dataclass(frozen=True, kw_only=True)
class FormTrial:
    """One held-out photograph, sent in one form to a server with the whole public map.

    Errors are in units of the reference and in degrees; None without a pose.
    """

    scene: str
    query: str
    form: FormName
    accepted: bool
    position_error: float | None
    rotation_error_deg: float | None
    upload_bytes: int
    device_seconds: float
    server_seconds: float


@dataclass(frozen=True, kw_only=True)
class TileFormRow:
    """A form in one scene, or in all of them (`scene` "all"): its answers beside the raw map's, and medians of its cost."""

    scene: str
    form: FormName
    beside: AgainstRaw
    upload_bytes: float
    device_seconds: float
    server_seconds: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "scene": self.scene,
            "form": self.form,
            **self.beside.as_json(),
            "upload_bytes": self.upload_bytes,
            "device_seconds": self.device_seconds,
            "server_seconds": self.server_seconds,
        }


def form_variant(form: FormName, words: int) -> Variant:
    """How a query of this form is sent: veil's default subspaces, the same with lines, or two words a feature of `words`."""
    default = Profile.hardened(quantized=True)
    return {
        "raw": Variant(profile=None, distance="point"),
        "subspaces": Variant(profile=default, distance="p2s"),
        "lines": Variant(profile=default, distance="p2s", lines=True),
        "words": in_words(words),
    }[form]


def form_trials(fold: Fold, forms: Sequence[FormName], setup: FormSetup) -> Iterator[FormTrial]:
    """The held-out photographs of a fold, sent in each of some forms to a server with its map.

    Lines follow the place's gravity. The setup's codebook is the dictionary of words.
    """
    vocabulary = index_map(fold.scene, setup.codebook) if "words" in forms else None
    for form in forms:
        variant = form_variant(form, len(setup.codebook))
        for name in fold.held_out:
            gravity = fold.place.down.get(name)
            answer = answered(setup, fold.place.features[name], variant, fold.scene, gravity=gravity, vocabulary=vocabulary)
            position = rotation = None
            if isinstance(answer.pose, Localization):
                reference = fold.place.cam_from_world[name]
                position, rotation = pose_error(answer.pose.cam_from_world, reference, fold.reference_from_map)
            yield FormTrial(
                scene=fold.place.name,
                query=name,
                form=form,
                accepted=isinstance(answer.pose, Localization),
                position_error=None if position is None or not math.isfinite(position) else position,
                rotation_error_deg=rotation,
                upload_bytes=answer.upload_bytes,
                device_seconds=answer.device_s,
                server_seconds=answer.server_s,
            )


def form_rows(trials: Sequence[FormTrial], raw: Sequence[TileTrial]) -> list[TileFormRow]:
    """A row for each form and scene, and one for all scenes together where there are several.

    `raw` are the same photographs on the whole raw map, as `raw_trials` gives them.
    """
    scenes = list(dict.fromkeys(trial.scene for trial in trials))
    groups = [[name] for name in scenes] + ([scenes] if len(scenes) > 1 else [])
    forms = list(dict.fromkeys(trial.form for trial in trials))
    return [_form_row(trials, raw, form, names) for names in groups for form in forms]


def _form_row(trials: Sequence[FormTrial], raw: Sequence[TileTrial], form: FormName, scenes: Sequence[str]) -> TileFormRow:
    own = [item for item in trials if item.form == form and item.scene in scenes]
    by_raw = {(item.scene, item.query): item for item in raw if item.setting is None and item.scene in scenes}
    return TileFormRow(
        scene=scenes[0] if len(scenes) == 1 else "all",
        form=form,
        beside=against_raw({(item.scene, item.query): item for item in own}, by_raw, scenes),
        upload_bytes=float(np.median([item.upload_bytes for item in own])),
        device_seconds=float(np.median([item.device_seconds for item in own])),
        server_seconds=float(np.median([item.server_seconds for item in own])),
    )

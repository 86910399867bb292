"""Doors of places to raw features: what an owner makes public becomes a form here, and goes on as messages do.

`localize`, `map_images` and `match` take messages and raw features alike, and `load_uploads` and `load_on_demand`
read them from files. Behind the doors stands `veil.places`, which knows forms alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, Remedy, VeilError
from veil.features import Features
from veil.files.features import holds_features, read_features, read_one
from veil.files.photographs.posed_models import PosedModel
from veil.forms import Form, Points
from veil.matching.lightglue import LightGlue, learned_matches
from veil.matching.neighbors import Matches, MatchOptions
from veil.matching.neighbors import match as match_forms
from veil.matching.placed_points import placed
from veil.matching.ratio import calibrated
from veil.mechanisms.public import publish
from veil.mechanisms.selection import ChosenFeatures
from veil.mechanisms.tracks import features_on_tracks
from veil.places.building import map_loaded, map_posed
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.growth import grow_loaded
from veil.places.held_map import Map
from veil.places.images_on_demand import FormCache, ImageOnDemand, uploads_on_demand
from veil.places.localization import localize_loaded
from veil.places.maps import NoMap
from veil.places.pairs.blocks import KIND
from veil.places.pairs.images import LoadedImage
from veil.places.pairs.matching import MatchingWork
from veil.places.pairs.store import MatchStore, require_folder
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions, PositionOptions, WordOptions
from veil.places.poses.sequences.answer import SequenceLocalization
from veil.places.sequences import localize_loaded_sequence
from veil.places.uploads import Uploads, decoded, loaded
from veil.progress import Progress, Steps, silent
from veil.scene import MappedImage
from veil.wire.message import Message
from veil.wire.sequence import Sequence as FrameSequence

# Fewer photographs have no map of which anything could be learned. More than these take hours and gigabytes on a device.
LEAST_FOR_MAP, MOST_FOR_MAP = 3, 1000


def published(image: Message | Features) -> LoadedImage:
    """The image of a message, or of raw features that their owner makes public."""
    if isinstance(image, Features):
        return LoadedImage(camera=image.camera, positions=image.keypoints, form=publish(image))
    return loaded(image)


def localize(
    query: Message | Features,
    where: Map,
    *,
    options: LocalizeOptions | None = None,
    word_options: WordOptions | None = None,
    position_options: PositionOptions | None = None,
    codebook: Codebook | None = None,
    dictionary: Codebook | None = None,
    near: Sequence[str] | None = None,
    search: Literal["index", "all"] = "index",
    network: LightGlue | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query on a map, or say why no pose is better than chance (docs/theory/localization.md).

    A query in words is answered through the map's index (Pittaluga and Zhuang 2023, Sec. 6.2; docs/theory/words.md), others by
    distances of descriptors (Dusmanu et al. 2021; docs/theory/distances.md). Positions may be hidden in lines.

    - `query`: a message, or raw features (positions in pixels of the query's image).
    - `where`: the map.
    - `options`: of queries that are matched by distance.
    - `word_options`: of queries in words; by default the search takes at most ten seconds of processor time.
    - `position_options`: of queries whose words say nothing (epsilon 0): positions alone, which need `near` and gravity
      (docs/theory/words_upright.md#positions-alone); by default the search takes at most a minute of processor time.
    - `codebook`: the one that a hardened query was compressed with; by default the bundled one, if the query names it.
    - `dictionary`: the one of a query's words, where the map has no index for it; by default the bundled one.
    - `near`: names of the map's images that a query in words is known to be near (`veil.scene.Scene.nearest`), in place of
      those that look like it.
    - `search`: a query by distance is matched with the images that it looks like where the map has an index ("index";
      docs/theory/scale.md#queries), and its pose compared with places that look the same, or with "all".
    - `network`: matches in place of nearest neighbors (`veil.LightGlue`), for raw features on a public map alone
      (docs/theory/learned_matching.md).
    - `progress`: called with the number of steps done and of all.

    Raises SpaceError or InputError if query and map cannot be compared, words with lines lack gravity, positions alone lack
    gravity or `near`, or a network is to match what is protected.
    """
    return localize_loaded(
        published(query),
        where,
        options=options,
        word_options=word_options,
        position_options=position_options,
        codebook=codebook,
        dictionary=dictionary,
        near=near,
        search=search,
        network=network,
        progress=progress,
    )


def localize_sequence(
    sequence: FrameSequence[Message] | FrameSequence[Features],
    where: Map,
    *,
    scale: float = 1.0,
    options: LocalizeOptions | None = None,
    word_options: WordOptions | None = None,
    position_options: PositionOptions | None = None,
    codebook: Codebook | None = None,
    dictionary: Codebook | None = None,
    near: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> SequenceLocalization | NoPose:
    """Estimate the pose of several frames on a map with one evidence for all, or say why no pose is better than chance.

    Frames in words need gravity in each and in the map (docs/theory/sequences.md). Their positions are not hidden in lines.

    - `sequence`: messages, or raw features, with the motions of the frames.
    - `where`: the map.
    - `scale`: number of units of the map in one unit of the motions; 1 where both are in meters.
    - `options`, `word_options`, `position_options`, `codebook`, `dictionary`, `near`: as for one query (`localize`); all frames
      share them.
    - `progress`: called with the number of steps done and of all.

    Raises SpaceError or InputError if frames and map cannot be compared, frames have several forms or guessed focal lengths,
    gravity is unknown, or the frames stand so far apart that the scale must be wrong; RangeError for an impossible scale.
    """
    return localize_loaded_sequence(
        [published(frame) for frame in sequence.frames],
        sequence.cam_from_rig,
        where,
        scale=scale,
        options=options,
        word_options=word_options,
        position_options=position_options,
        codebook=codebook,
        dictionary=dictionary,
        near=near,
        progress=progress,
    )


def map_images(
    images: Mapping[str, Message | Features],
    *,
    add_to: Map | None = None,
    known_poses: PosedModel | None = None,
    options: MappingOptions | None = None,
    gravity: Mapping[str, np.ndarray] | None = None,
    codebook: Codebook | None = None,
    matches: Path | str | None = None,
    network: LightGlue | None = None,
    steps: Steps[Progress] = silent,
) -> BuiltMap | NoMap:
    """Build a map from images, or add them to one; or say why there is none (docs/theory/mapping.md).

    - `images`: by name, messages, or raw features that their owner makes public. All hide their positions in lines (then four
      images or more with gravity are needed), or none does.
    - `add_to`: a map that the images are added to, by names and in the form of its own. It stays as it is; the poses of its
      images and its gravity are those of the new map too.
    - `known_poses`: a model (`veil.read_model`), joined by image name, whose cameras and poses are kept: matches are only
      triangulated. Images that it does not have, or has of another size, are left out. Not with `add_to`.
    - `options`: seed, workers, pairs, ratio test and time limit.
    - `gravity`: by image name, float (3,) vectors that point down in the camera frames (x right, y down, z forward). They check
      a map of positions, and such a map needs them to serve queries of words with lines.
    - `codebook`: the public one whose words tell which pairs of images look alike; None: the bundled one.
    - `matches`: a folder that keeps matches, so that the next map of these images costs only the pairs that are new; None keeps
      nothing.
    - `network`: matches in place of nearest neighbors (`veil.LightGlue`), raw features alone (docs/theory/learned_matching.md).
    - `steps`: shows progress, see `Steps`.

    Raises InputError for fewer than two images of a new map, images of both kinds, a name or form that does not fit `add_to`, a
    folder of other things than matches, `known_poses` beside `add_to`, or if a network is to match what is protected; VeilError
    if COLMAP fails.
    """
    known = {name: published(image) for name, image in images.items()}
    work = _work(codebook, matches, network)
    if known_poses is not None:
        if add_to is not None:
            raise InputError(
                "a map that images are added to has poses of its own", remedy=Remedy("leave out", "map_images.add_to")
            )
        cameras, poses = known_poses.cameras, known_poses.poses
        return map_posed(known, cameras, poses, options=options, gravity=gravity, work=work, network=network, steps=steps)
    if add_to is not None:
        return grow_loaded(add_to, known, options=options, gravity=gravity, work=work, network=network, steps=steps)
    return map_loaded(known, options=options, gravity=gravity, work=work, network=network, steps=steps)


def select_for_map(
    features: Mapping[str, Features],
    *,
    sent: Mapping[str, ChosenFeatures] | None = None,
    options: MappingOptions | None = None,
    steps: Steps[Progress] = silent,
) -> Mapping[str, ChosenFeatures] | NoMap:
    """Choose the features that a map of these photographs uses (docs/theory/release.md#features-for-a-map).

    They are for `HideInSubspaces.selection`. The device maps its raw features for itself and takes those on tracks: fewer than
    the usual selection, and hardly any that match nothing. A photograph that this map does not hold is missing from the answer,
    and leaves by the usual selection.

    - `features`: raw features of the photographs, by name.
    - `sent`: features that left before, by name (`Device.sent`). Of these photographs the same leave again, and others are
      chosen to match them.
    - `options`: of that map.
    - `steps`: shows progress, see `Steps`.

    Raises what `map_images` raises.
    """
    built = map_images(features, options=options, steps=steps)
    return built if isinstance(built, NoMap) else selected_by_map(built, features, sent)


def selected_by_map(
    built: BuiltMap, features: Mapping[str, Features], sent: Mapping[str, ChosenFeatures] | None = None
) -> dict[str, ChosenFeatures]:
    """The features that a map of photographs uses, by name, where `built` is the map of their raw `features`."""
    chosen = dict(sent or {})
    for where in (built.map, *built.further):
        tracks: dict[int, list[tuple[str, int]]] = {}
        for name, image in where.scene.images.items():
            for row, point in zip(_rows_of(image, features[name]), image.point_rows, strict=True):
                tracks.setdefault(int(point), []).append((name, int(row)))
        own = {name: features[name] for name in where.scene.images}
        chosen |= features_on_tracks(own, tracks.values(), sent=sent)
    return chosen


def _rows_of(image: MappedImage, features: Features) -> Int64[np.ndarray, "observations"]:
    """Rows of the features that the observations of a mapped image are, by position and descriptor."""
    published_rows = np.concatenate([features.keypoints, publish(features).vectors], axis=1)
    row_of = {row.tobytes(): number for number, row in enumerate(published_rows)}
    form = image.form
    assert isinstance(form, Points)
    observed = np.concatenate([image.keypoints, form.vectors], axis=1)
    return np.array([row_of[row.tobytes()] for row in observed], dtype=np.int64)


def _work(codebook: Codebook | None, matches: Path | str | None, network: LightGlue | None) -> MatchingWork:
    """Where pairs are matched, in this process, and what keeps their matches. What a network matched is kept apart."""
    if matches is None:
        return MatchingWork(codebook=codebook)
    require_folder(Path(matches))
    return MatchingWork(codebook=codebook, store=MatchStore(Path(matches), KIND if network is None else network.kind))


def match(
    left: Message | Features,
    right: Message | Features,
    *,
    max_ratio: float | Literal["auto"] | None = None,
    network: LightGlue | None = None,
) -> Matches:
    """Match the features of two images by the distance of their forms (Dusmanu et al. 2021; docs/theory/distances.md).

    Points and subspaces are matched by mutual nearest neighbors, words by mutually heaviest shared words
    (docs/theory/words.md, Eq. 14).

    - `left`, `right`: messages, or raw features that their owner makes public.
    - `max_ratio`: a match is kept if nearest / second nearest distance is at most this in both directions. "auto": the ratio
      that is calibrated for these forms; None: every mutual match is kept.
    - `network`: matches in place of nearest neighbors (`veil.LightGlue`), for raw features on both sides alone
      (docs/theory/learned_matching.md).

    Raises SpaceError for forms of different spaces or dictionaries, or words against others; InputError where no ratio is
    calibrated, a ratio goes with a network, or a network is to match what is protected; RangeError for a ratio outside (0, 1].
    """
    one, other = published(left), published(right)
    if network is not None:
        if max_ratio is not None:
            raise InputError("a ratio is of nearest neighbors; a network tells probabilities")
        network.require_readable(one.form.space)
        sides = [placed(side.form, side.positions, side.camera, what="an image") for side in (one, other)]
        return learned_matches(network, sides[0], sides[1])
    ratio = calibrated(one.form, other.form) if max_ratio == "auto" else max_ratio
    return match_forms(one.form, other.form, MatchOptions(max_ratio=ratio))


def load_uploads(path: Path, *, strict: bool = False) -> Uploads:
    """All images of a folder of messages, of one message, or of a file of raw features.

    Raises VeilError for a message that cannot be used if `strict` or if it is the only one, and if nothing is left.
    """
    if holds_features(path) and not path.is_dir():
        images = {name: published(raw) for name, raw in read_features(path)}
        return Uploads(images=images)
    messages, skipped = decoded(path, strict=strict)
    return Uploads(images={name: loaded(message) for name, message in messages.items()}, skipped=skipped)


def load_on_demand(path: Path, *, budget_bytes: int, strict: bool = False) -> Uploads:
    """The images of `load_uploads`, each checked once, of which the descriptors are read again when they are needed.

    At most `budget_bytes` of descriptors are kept for the next use. Raises as `load_uploads` does.
    """
    if not holds_features(path) or path.is_dir():
        return uploads_on_demand(path, budget_bytes=budget_bytes, strict=strict)
    cache = FormCache(budget_bytes)
    images = ((name, published(item)) for name, item in read_features(path))
    return Uploads(images={name: ImageOnDemand(image, path, partial(_one, path, name), cache) for name, image in images})


def _one(path: Path, name: str) -> LoadedImage:
    return published(read_one(path, name))


def forms_in(path: Path, names: Collection[str]) -> Iterator[tuple[str, Form]]:
    """The descriptors of the images `names` of one file, one image after the other."""
    if holds_features(path):
        yield from ((name, published(raw).form) for name, raw in read_features(path) if name in names)
    else:
        yield from ((name, image.form) for name, image in load_images(path).items() if name in names)


def load_images(path: Path) -> Mapping[str, LoadedImage]:
    """All images of `load_uploads` by name; raises VeilError if one of them cannot be used."""
    return load_uploads(path, strict=True).images


def queries(paths: list[Path], *, strict: bool, skipped: dict[str, str]) -> Iterator[tuple[str, LoadedImage]]:
    """Names and images of all `paths`, each read when its turn comes; what cannot be read is added to `skipped`.

    Raises VeilError instead if `strict`, or for a single path, which then is all that was asked for.
    """
    for path in paths:
        try:
            uploads = load_uploads(path, strict=strict)
        except VeilError as error:
            if strict or len(paths) == 1:
                raise
            skipped[str(path)] = str(error)
            continue
        skipped.update(uploads.skipped)
        yield from uploads.images.items()

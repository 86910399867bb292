"""Forged queries, made to deceive localization, and hard true ones: the queries of `veil evaluate queries --forged`.

Forged queries are photographs of other places and of the place itself on walls, screens and in collages, repeated textures,
text, foliage, buildings under an empty sky, and the place's own features at positions where they were not seen; no answer but
a refusal is right. True queries are held-out photographs as they are, cropped, enlarged, small, blurred, dark, or with few
features.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.geometry.camera import Camera
from veil_lab.studies.localization.forged_pictures import (
    LAYOUTS,
    Gray,
    blurred,
    collage,
    cropped,
    dark,
    foliage,
    hidden_sides,
    poster,
    rearranged,
    repeated,
    resized,
    scaled,
    screen,
    text,
    under_sky,
)


@dataclass(frozen=True, kw_only=True)
class ForgedOptions:
    """Options of the study of forged queries.

    Each kind of forgery is made `draws` times. A query has at most `max_features` features, a search by words at most
    `iterations` samples. Every `hold_out`-th photograph is kept out of the maps.
    """

    draws: int = 3
    max_features: int = 800
    iterations: int = 20_000
    hold_out: int = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class ForgedQuery:
    """Features of one forged query or of its true counterpart, with the kind of forgery or of change that made them.

    `shows` names the photograph of the place that a true query was made from; it is None for a forgery. `name` tells queries
    of one kind apart.
    """

    place: str
    kind: str
    name: str
    features: Features
    shows: str | None = None


def forged_queries(
    place: str,
    photographs: Mapping[str, Picture],
    strangers: Sequence[Picture],
    options: ForgedOptions,
) -> Iterator[ForgedQuery]:
    """Forged queries of every kind in every draw, as the camera of the place's first photograph would see them.

    `photographs` are those of the place, by name; `strangers` show other places. Pictures without features are left out.
    """
    camera = photographs[min(photographs)].camera
    own = [photographs[name].gray for name in sorted(photographs)]
    others = [item.gray for item in strangers]
    for draw in range(options.draws):
        for kind, gray, seen_by in _forged_pictures(place, camera, own, others, draw):
            features = extracted(gray, seen_by, options.max_features)
            if features is not None:
                yield ForgedQuery(place=place, kind=kind, name=f"#{draw}", features=features)
        for kind, layout in LAYOUTS.items():
            random = _random(place, kind, draw)
            name = sorted(photographs)[int(random.integers(len(photographs)))]
            features = extracted(photographs[name].gray, photographs[name].camera, options.max_features)
            if features is not None:
                moved = rearranged(random, features, layout)
                yield ForgedQuery(place=place, kind=kind, name=f"{name} #{draw}", features=moved)


def _forged_pictures(
    place: str, camera: Camera, own: Sequence[Gray], others: Sequence[Gray], draw: int
) -> Iterator[tuple[str, Gray, Camera]]:
    """Kind, pixels and camera of each forged picture of one draw; `own` show the place, `others` do not."""
    width, height = camera.width_px, camera.height_px

    def one(of: Sequence[Gray], random: np.random.Generator) -> Gray:
        """One picture drawn from `of`."""
        return of[int(random.integers(len(of)))]

    for share in (0.15, 0.25, 0.4, 0.6):
        random = _random(place, kind := f"poster {share}", draw)
        yield kind, poster(random, one(others, random), width, height, share), camera
    for share in (0.3, 0.5, 0.7):
        random = _random(place, kind := f"poster of the place {share}", draw)
        yield kind, poster(random, one(own, random), width, height, share), camera
    for kind, of in (("screen", others), ("screen of the place", own)):
        random = _random(place, kind, draw)
        yield kind, screen(random, one(of, random), width, height, float(random.uniform(0.3, 0.6))), camera
    for kind, of in (("collage", others), ("collage of the place", own)):
        random = _random(place, kind, draw)
        chosen = [one(of, random) for _ in range(9)]
        yield kind, collage(random, chosen, width, height, int(random.integers(2, 4))), camera
    random = _random(place, "tiles", draw)
    yield "tiles", repeated(random, one(others, random), width, height, 64), camera
    random = _random(place, "windows", draw)
    yield "windows", repeated(random, one(own, random), width, height, int(random.choice([100, 160, 240]))), camera
    yield "text", text(_random(place, "text", draw), width, height), camera
    yield "foliage", foliage(_random(place, "foliage", draw), width, height), camera
    random = _random(place, "under sky", draw)
    yield "building under sky", under_sky(random, one(others, random), width, height, 0.35), camera
    random = _random(place, "other place", draw)
    whole = resized(one(others, random), width, height)
    yield "other place", whole, camera
    yield "other place, cropped", *cropped(random, whole, camera, 0.5)
    yield "other place, blurred", blurred(whole, 2.0), camera
    yield "other place, dark", dark(random, whole, 0.2), camera


def true_counterparts(
    place: str, photographs: Mapping[str, Picture], held_out: Sequence[str], options: ForgedOptions
) -> Iterator[ForgedQuery]:
    """True queries made from the photographs `held_out` of a place: as they are, and changed in every way that keeps them true.

    A photograph that shows no features after a change is left out.
    """
    for name in held_out:
        for kind, gray, camera, most in _true_pictures(_random(place, name, 0), photographs[name], options.max_features):
            features = extracted(gray, camera, most)
            if features is not None:
                yield ForgedQuery(place=place, kind=kind, name=name, features=features, shows=name)


def _true_pictures(random: np.random.Generator, item: Picture, most: int) -> Iterator[tuple[str, Gray, Camera, int]]:
    """Kind, pixels, camera and most features of each true picture made from one photograph."""
    gray, camera = item.gray, item.camera
    yield "true", gray, camera, most
    for count in (100, 200, 400):
        yield f"true, {count} features", gray, camera, min(count, most)
    for share in (0.4, 0.6):
        yield f"true crop {share}", *cropped(random, gray, camera, share), most
    part, seen_by = cropped(random, gray, camera, 0.5)
    yield "true zoom", *scaled(part, seen_by, 2.0), most
    for factor in (0.35, 0.6):
        yield f"true, {factor} times the size", *scaled(gray, camera, factor), most
    yield "true, blurred", blurred(gray, 2.0), camera, most
    yield "true, dark", dark(random, gray, 0.2), camera, most
    yield "true, under sky", hidden_sides(gray, 0.6), camera, most


def _random(place: str, kind: str, draw: int) -> np.random.Generator:
    """Generator of one kind of picture at one place in one draw."""
    return np.random.default_rng([draw, *f"{place} {kind}".encode()])


def extracted(gray: Gray, camera: Camera, most: int) -> Features | None:
    """SIFT features of gray pixels, at most `most`; None where there are none."""
    gray = np.ascontiguousarray(gray)
    digest = zlib.crc32(gray.tobytes()).to_bytes(32, "big")
    try:
        return extract_sift(Picture(gray=gray, camera=camera, digest=digest), SiftOptions(max_features=most))
    except InputError:
        return None

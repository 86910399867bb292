"""Material of a simulated city: tiles of real photographs, and statistics of real tracks, measured once and kept in a file.

Photographs are those of `VEIL_DATA/photos/bsds500`, three of four for cities and one of four for foreign ones. Tracks are those
of Strecha's four scenes and of `fox` (docs/theory/city.md). Measuring takes three minutes of one core; the file has 35 MB.
It holds descriptors of these photographs, so it is not for publication.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.errors import FileFormatError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.photographs.pictures import find_pictures, read_picture, read_rgb
from veil_lab.city.looks import Looks, looks_of
from veil_lab.city.tracks import PosedImage, TrackPairs, joined, track_pairs
from veil_lab.city.views import ViewStatistics, statistics_of
from veil_lab.files.scenes import read_scene

FORMAT = 4
SCENES = ("strecha/fountain-P11", "strecha/Herz-Jesus-P8", "strecha/entry-P10", "strecha/castle-P19", "fox")
PHOTOGRAPHS = "photos/bsds500"
DEFAULT = user_cache_path("veil") / f"city-material-{FORMAT}.npz"
FEATURES, KEPT_APART = 3000, 4
# Share of features that are of no landmark. With it, as large a share of the 1,000 largest features of a simulated image as of
# a real one belongs to no track (`city.py --compare` prints both).
CLUTTER = 0.4


@dataclass(frozen=True, kw_only=True, eq=False)
class Material:
    """Looks of cities and of foreign cities, statistics of views, and the real pairs that they were measured on."""

    looks: Looks
    foreign: Looks
    statistics: ViewStatistics
    real: TrackPairs


def material(path: Path = DEFAULT, *, data: Path | None = None) -> Material:
    """The material in the file `path`, measured on `data` (default: VEIL_DATA) and written first if there is none."""
    if path.exists():
        return _read(path)
    folder = data or Path(os.environ.get("VEIL_DATA", ""))
    if not (folder / PHOTOGRAPHS).is_dir():
        raise SystemExit(f"there is no {path}, and VEIL_DATA names no folder with {PHOTOGRAPHS} to make it from")
    made = _measured(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"format": FORMAT}
    for part in fields(Material):
        record = getattr(made, part.name)
        arrays |= {f"{part.name}.{column.name}": getattr(record, column.name) for column in fields(record)}
    unfinished = path.with_suffix(f".{os.getpid()}.npz")
    np.savez(unfinished, **arrays)
    unfinished.replace(path)
    return made


def posed_images(folder: Path, features: int) -> list[PosedImage]:
    """The photographs of a scene with reference cameras, and SIFT of the largest scales of each."""
    scene = read_scene(folder)
    options = SiftOptions(max_features=features)
    return [
        PosedImage(
            features=extract_sift(read_picture(scene.pictures[name], camera=scene.cameras[name]), options),
            cam_from_world=scene.cam_from_world[name],
        )
        for name in tqdm(sorted(scene.pictures), desc=scene.name, leave=False)
    ]


def real_pairs(folder: Path, features: int) -> TrackPairs:
    """Pairs of views of all `SCENES`, with a number of features an image."""
    return joined([track_pairs(posed_images(folder / name, features)) for name in SCENES])


def _measured(folder: Path) -> Material:
    photographs = find_pictures(folder / PHOTOGRAPHS)
    kept = [number % KEPT_APART == 0 for number in range(len(photographs))]
    parts = tuple([path for path, apart in zip(photographs, kept, strict=True) if apart is wanted] for wanted in (False, True))
    looks, foreign = (looks_of([read_rgb(path) for path in tqdm(own, desc="photographs", leave=False)]) for own in parts)
    real = real_pairs(folder, FEATURES)
    return Material(looks=looks, foreign=foreign, statistics=statistics_of(real, looks.descriptors, clutter=CLUTTER), real=real)


def _read(path: Path) -> Material:
    with np.load(path, allow_pickle=False) as file:
        if "format" not in file or int(file["format"]) != FORMAT:
            raise FileFormatError(f"{path} is no material of format {FORMAT}; delete it, and it is measured again")
        kinds: dict[str, Callable[..., Any]] = {
            "looks": Looks,
            "foreign": Looks,
            "statistics": ViewStatistics,
            "real": TrackPairs,
        }
        records = {}
        for name, kind in kinds.items():
            values = {column.name: file[f"{name}.{column.name}"] for column in fields(kind)}  # type: ignore[arg-type]
            records[name] = kind(**{key: value.item() if value.ndim == 0 else value for key, value in values.items()})
    return Material(**records)

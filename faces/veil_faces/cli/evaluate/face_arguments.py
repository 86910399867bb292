"""Options that the protocols of faces share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import at_least, picture
from veil.cli.records import Record, option, positional
from veil.mechanisms.profile import Strategy
from veil_faces.cli.calibrate import PAIRS_HELP
from veil_faces.studies.face_study import DIMENSIONS, LIFTINGS


@dataclass(frozen=True, kw_only=True)
class AskedFaces(Record):
    """Faces, decoys and their lifting."""

    faces: Path = positional("descriptors: .npz or HDF5 (veil faces describe)")
    decoys: Path = option("descriptors of other people", required=True, metavar="FILE")
    center: bool = option("lift descriptors less the decoys' mean, of unit length again", default=False)
    seed: int = option("seed of all random draws (default %(default)s)", default=0, parse=at_least(0))


@dataclass(frozen=True, kw_only=True)
class AskedPairs(AskedFaces):
    """Pairs of faces, with the liftings of them that are compared."""

    face_pairs: Path = option(PAIRS_HELP, required=True, metavar="FILE")
    m: tuple[int, ...] = option(
        f"dimensions of the templates (default {' '.join(map(str, DIMENSIONS))})", default=DIMENSIONS, parse=at_least(2)
    )
    lifting: tuple[Strategy, ...] = option("ways of lifting (default all)", default=LIFTINGS, choices=LIFTINGS)
    figure: Path | None = option("draw the result (.png or .svg)", parse=picture, metavar="FILE")

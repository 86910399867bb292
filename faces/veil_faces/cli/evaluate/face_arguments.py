"""Arguments that the commands of `veil evaluate` about faces have in common."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from veil.cli.common import at_least
from veil.mechanisms.profile import Strategy
from veil_faces.cli.calibrate import PAIRS_HELP
from veil_faces.studies.face_study import DIMENSIONS, LIFTINGS


def add_files(parser: argparse.ArgumentParser, *, pairs: bool = False) -> None:
    """Add the files of faces and of decoys, and with `pairs` that of pairs of faces."""
    parser.add_argument("faces", type=Path, help="descriptors: .npz or HDF5 (veil faces describe)")
    if pairs:
        parser.add_argument("--face-pairs", type=Path, required=True, metavar="FILE", help=PAIRS_HELP)
    parser.add_argument("--decoys", type=Path, required=True, metavar="FILE", help="descriptors of other people")


def add_liftings(
    parser: argparse.ArgumentParser, *, dimensions: Sequence[int] = DIMENSIONS, liftings: Sequence[Strategy] = LIFTINGS
) -> None:
    """Add the dimensions and the liftings to compare, with these as defaults."""
    text = f"dimensions of the templates (default {' '.join(map(str, dimensions))})"
    parser.add_argument("--m", type=at_least(2), nargs="+", default=list(dimensions), help=text)
    text = f"ways of lifting (default {'all' if tuple(liftings) == LIFTINGS else ' '.join(liftings)})"
    parser.add_argument("--lifting", nargs="+", choices=LIFTINGS, default=list(liftings), help=text)


def add_center(parser: argparse.ArgumentParser) -> None:
    """Add the switch for centered descriptors."""
    parser.add_argument("--center", action="store_true", help="lift descriptors less the decoys' mean, of unit length again")

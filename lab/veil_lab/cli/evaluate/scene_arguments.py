"""Arguments that the commands of `veil evaluate` about scenes have in common."""

from __future__ import annotations

import argparse

from veil.cli.common import at_least


def add_same_place(parser: argparse.ArgumentParser) -> None:
    """Add the option that names scenes of one place."""
    parser.add_argument(
        "--same-place",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME",
        help="scenes that show one place, which are not asked about each other (may be repeated)",
    )


def add_extraction(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how many features SIFT finds."""
    parser.add_argument(
        "--max-features", type=at_least(100), default=4096, help="features per image at most (default %(default)s)"
    )
    parser.add_argument(
        "--first-octave",
        type=int,
        default=0,
        help="octave at which SIFT begins: -1 doubles the image first (default %(default)s)",
    )

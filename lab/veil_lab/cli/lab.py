"""`veil lab`: trainings of networks that attacks and audits use, constants of attacks, codebooks, matches, and the board."""

from __future__ import annotations

from typing import Any

from veil.cli.common import add_command
from veil_lab.cli import board, match, quality, results, tune
from veil_lab.cli.train import attacks, inversion


def register(commands: Any) -> None:
    """Add `veil lab` with its actions to the subparsers `commands`."""
    parser = add_command(
        commands,
        "lab",
        "train networks that attacks and audits use",
        "The laboratory: train and tune what attacks and audits use, measure codebooks, match uploads, and compare forms.",
        attacks.EXAMPLES
        + inversion.EXAMPLES
        + tune.EXAMPLES
        + quality.EXAMPLES
        + match.EXAMPLES
        + board.EXAMPLES
        + results.EXAMPLES,
    )
    groups = parser.add_subparsers(metavar="ACTION", required=True)
    train = add_command(
        groups,
        "train",
        "networks of attacks and of inversion",
        "Train the networks of attacks on hardened subspaces, or one that turns features into pictures.",
        attacks.EXAMPLES + inversion.EXAMPLES,
    )
    networks = train.add_subparsers(metavar="NETWORK", required=True)
    attacks.register(networks)
    inversion.register(networks)
    tune.register(groups)
    quality.register(groups)
    match.register(groups)
    board.register(groups)
    results.register(groups)

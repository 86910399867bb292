"""`veil evaluate`: the command with a subcommand for each protocol, of the laboratory and of other packages."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from veil.cli.common import add_command
from veil_lab.cli.evaluate import homographies, reconstruction
from veil_lab.cli.evaluate.attacks import (
    answers,
    attacks,
    defenses,
    forms,
    inversion,
    learned,
    neighborhoods,
    repeats,
    word_inversion,
)
from veil_lab.cli.evaluate.poses import localization, plans, queries, retrieval, sequences, tiles, upright

# Packages bring protocols of their own by entry points of this group: each is a function like `register` of a protocol here.
PROTOCOLS = "veil.protocols"


def register(commands: Any) -> None:
    """Add `veil evaluate` with all its protocols to the subparsers `commands`."""
    parser = add_command(commands, "evaluate", "run a public protocol", "Run a public protocol.", homographies.EXAMPLES)
    protocols = parser.add_subparsers(metavar="PROTOCOL", required=True)
    homographies.register(protocols)
    reconstruction.register(protocols)
    queries.register(protocols)
    localization.register(protocols)
    retrieval.register(protocols)
    upright.register(protocols)
    sequences.register(protocols)
    plans.register(protocols)
    tiles.register(protocols)
    answers.register(protocols)
    attacks.register(protocols)
    defenses.register(protocols)
    forms.register(protocols)
    learned.register(protocols)
    neighborhoods.register(protocols)
    repeats.register(protocols)
    inversion.register(protocols)
    word_inversion.register(protocols)
    for brought in sorted(entry_points(group=PROTOCOLS), key=lambda point: point.name):
        brought.load()(protocols)

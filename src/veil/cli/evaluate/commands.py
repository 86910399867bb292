"""`veil evaluate`: the command with a subcommand for each protocol."""

from __future__ import annotations

from veil.cli.common import add_command
from veil.cli.evaluate import (
    attacks,
    attributes,
    defenses,
    faces,
    forms,
    homographies,
    inversion,
    learned,
    localization,
    neighborhoods,
    queries,
    reconstruction,
    retrieval,
    tiles,
    upright,
)


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil evaluate` with all its protocols to the subparsers `commands`."""
    parser = add_command(commands, "evaluate", "run a public protocol", "Run a public protocol.", homographies.EXAMPLES)
    protocols = parser.add_subparsers(metavar="PROTOCOL", required=True)
    homographies.register(protocols)
    reconstruction.register(protocols)
    queries.register(protocols)
    localization.register(protocols)
    retrieval.register(protocols)
    upright.register(protocols)
    tiles.register(protocols)
    attacks.register(protocols)
    defenses.register(protocols)
    forms.register(protocols)
    learned.register(protocols)
    neighborhoods.register(protocols)
    inversion.register(protocols)
    attributes.register(protocols)
    faces.register(protocols)

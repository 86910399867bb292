"""The report of `veil map` on its images' readings of gravity, of which the map shows the wrong ones."""

from __future__ import annotations

import argparse

from veil.cli.common import say
from veil.places.maps.check import ReadingsCheck


def gravity_facts(check: ReadingsCheck) -> dict[str, object]:
    """The record of docs/reference/json.md."""
    return {
        "readings": check.readings,
        "agreeing": check.agreeing,
        "sigma_deg": check.sigma_deg,
        "wrong": dict(check.wrong_deg),
        "reason": check.reason,
    }


def say_gravity(arguments: argparse.Namespace, check: ReadingsCheck) -> None:
    """Print the wrong readings, or that the readings do not agree."""
    for name, degrees in sorted(check.wrong_deg.items()):
        say(arguments, f"the gravity of {name} is wrong by {degrees:.0f} degrees, by the map and {check.agreeing} others")
    if check.readings > 1 and check.down is None:
        say(arguments, f"warning: {check.reason}, so the map or the readings are wrong")

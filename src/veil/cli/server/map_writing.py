"""How `veil map` writes and reports a map.

It is written whole or not at all, by a run that may be killed at any moment and started again. Of gravity it reports
the readings that the map shows to be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from veil.cli.common import Arguments, NamedJson, say
from veil.cli.server.index import index_large
from veil.cli.server.map_options import MakeMap
from veil.files.maps.checkpoints import clear_removed, is_own_output, note_written, run_key
from veil.files.maps.folders import clear_staging, model_folders, replace_models, write_models
from veil.json_records.values import Reasons
from veil.places.held_map import Map, point_index_of
from veil.places.maps.check import ReadingsCheck
from veil.scene import Scene

# Options that do not change the map.
_WITHOUT_EFFECT = ("json", "run", "output", "workers", "engine", "quiet", "names")


@dataclass(frozen=True, kw_only=True)
class MapOutput:
    """Folder that a run is to write its map to, and `key`, which stands for the run's command.

    `is_own`: the same command was killed after it had written the map, which takes the place of that one.
    """

    folder: Path
    key: str
    is_own: bool

    def write(self, arguments: MakeMap, scenes: Sequence[Scene], base: Map | None = None) -> None:
        """Write a map of one or more models with its index, at once; it grew from `base`.

        Raises InputError if it cannot be written.
        """
        known = None if base is None else point_index_of(base)

        def complete(new: Path) -> None:
            index_large(arguments, new, scenes[0], threads=arguments.workers, shown=self.folder, known=known)
            note_written(self.folder, new, self.key)

        (replace_models if self.is_own else write_models)(self.folder, scenes, complete)


def further_models(folder: Path | None) -> list[Map]:
    """The models of a map behind its first, which stay as they are when images are added; none without a map."""
    return [] if folder is None else [Map.read(path) for path in model_folders(folder)[1:]]


def map_output(arguments: MakeMap) -> MapOutput:
    """The output of `veil map`; what a killed run left beside it is removed. Raises InputError if it holds something else."""
    clear_staging(arguments.output)
    clear_removed(arguments.output)
    plain = {name: value for name, value in vars(arguments).items() if isinstance(value, str | int | float | Path)}
    key = run_key([f"{name}={value}".encode() for name, value in sorted(plain.items()) if name not in _WITHOUT_EFFECT])
    return MapOutput(folder=arguments.output, key=key, is_own=is_own_output(arguments.output, key))


class MadeMapJson(NamedJson):
    """A map that was made, and what it was made of."""

    images: int
    skipped: Reasons
    registered: int
    points: int
    observations: int
    mean_reprojection_error_px: float
    public: bool
    reasons: list[str]


class GravityReadingsJson(TypedDict):
    """Readings of gravity against a map."""

    readings: int
    agreeing: int
    sigma_deg: float | None
    wrong: Mapping[str, float]
    reason: str


def gravity_facts(check: ReadingsCheck) -> GravityReadingsJson:
    """The record of docs/reference/json.md."""
    return {
        "readings": check.readings,
        "agreeing": check.agreeing,
        "sigma_deg": check.sigma_deg,
        "wrong": dict(check.wrong_deg),
        "reason": check.reason,
    }


def say_gravity(arguments: Arguments, check: ReadingsCheck) -> None:
    """Print the wrong readings, or that the readings do not agree."""
    for name, degrees in sorted(check.wrong_deg.items()):
        say(arguments, f"the gravity of {name} is wrong by {degrees:.0f} degrees, by the map and {check.agreeing} others")
    if check.readings > 1 and check.down is None:
        say(arguments, f"warning: {check.reason}, so the map or the readings are wrong")

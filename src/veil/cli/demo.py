"""`veil demo`: the whole path on bundled photographs, with a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import Bar, at_least, explain, quiet_colmap, report, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option
from veil.demo import VIEW, DemoOptions, run_demo
from veil.places.poses.answer import Localization
from veil.report.tables import Name, Table, numbers
from veil.trials.held_out import TrialOutcome
from veil.trials.reconstruction_run import Run
from veil.trials.tile_exits import ExitOutcome, ExitStudy

EXAMPLES = """\
  veil demo
  veil demo -o my-report --json demo.json
  veil demo --strangers other-photos/         also try photographs of another place: all should be refused
"""


@dataclass(frozen=True, kw_only=True)
class Demo(Record):
    """Map nine photographs of a portal, hold three out, localize these raw and through private forms, and write a
    page with the errors, the uploads, pictures of the matches and a plain statement of what is not protected.
    """

    output: Path = option(
        "where to write the report (default veil-demo)", default=Path("veil-demo"), short="-o", metavar="FOLDER"
    )
    strangers: Path | None = option("photographs of another place, to be refused", metavar="FOLDER")
    workers: int = option("image pairs at a time that are matched (default 2)", default=2, parse=at_least(1))
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil demo` to the parser's commands."""
    add_record_command(commands, "demo", "the whole path on bundled photographs", EXAMPLES, Demo, _demo)


def _demo(arguments: Demo) -> int:
    quiet_colmap()
    options = DemoOptions(strangers=arguments.strangers, workers=arguments.workers)
    result = run_demo(arguments.output, options=options, steps=Bar)
    write_json(arguments.json, result.as_json())
    if str(arguments.json) != "-":
        say_table(arguments, sent_table(result.outcomes, result.strangers, result.tiles, result.extent))
        say(arguments, "")
        say_table(arguments, exits_table(result.tiles))
        explain(
            arguments,
            "Lifting is an obfuscation without proof; the report says what it does not protect.",
            lines_sentence(result.lines, result.extent),
        )
    report(arguments, arguments.output / "report.html", "the report")
    if (arguments.output / VIEW).is_file():
        report(arguments, arguments.output / VIEW, "the map in three dimensions, which the report links to,")
    uploads = arguments.output / "uploads"
    say(arguments, f"what can the server see? veil audit {uploads / 'hardened-m4'} --images {arguments.output / 'features.h5'}")
    return 0


def sent_table(outcomes: Sequence[TrialOutcome], strangers: Sequence[TrialOutcome], tiles: ExitStudy, extent: float) -> Table:
    """The table of the demo: each form that was sent, and tiles by each exit; errors are in percent of the place's extent."""
    variants = dict.fromkeys(outcome.variant for outcome in outcomes)
    rows = [
        _sent_row([o for o in outcomes if o.variant == variant], [o for o in strangers if o.variant == variant], extent)
        for variant in variants
    ]
    for name in dict.fromkeys(outcome.answer.exit for outcome in tiles.queries):
        mine, others = ([o for o in some if o.answer.exit == name] for some in (tiles.queries, tiles.strangers))
        rows.append(_tiles_row(name, mine, others, extent))
    heads = "localized", "position, % of extent", "turn, deg", "upload, kB", "strangers refused"
    return Table(columns=[Name("what was sent, and to which map", least=24), *numbers(*heads)], rows=rows)


def _sent_row(mine: Sequence[TrialOutcome], others: Sequence[TrialOutcome], extent: float) -> tuple[str, ...]:
    """The row of one form."""
    localized = [o for o in mine if isinstance(o.pose, Localization)]
    errors = [o.position_error for o in localized if o.position_error is not None]
    turns = [o.rotation_error_deg for o in localized if o.rotation_error_deg is not None]
    refused = sum(not isinstance(o.pose, Localization) for o in others)
    upload = float(np.median([o.upload_bytes for o in mine])) / 1e3
    asked = f"{len(localized)} of {len(mine)}"
    return (mine[0].variant.label, asked, *_medians(errors, turns, extent), f"{upload:,.0f}", f"{refused} of {len(others)}")


def _tiles_row(name: str, mine: Sequence[ExitOutcome], others: Sequence[ExitOutcome], extent: float) -> tuple[str, ...]:
    """The row of one exit of tiles."""
    errors = [o.position_error for o in mine if o.position_error is not None]
    turns = [o.rotation_error_deg for o in mine if o.rotation_error_deg is not None]
    refused = sum(not isinstance(o.answer.pose, Localization) for o in others)
    upload = mine[0].answer.up_bytes / 1e3
    asked = f"{len(errors)} of {len(mine)}"
    return (f"tiles, {name}", asked, *_medians(errors, turns, extent), f"{upload:,.3f}", f"{refused} of {len(others)}")


def exits_table(tiles: ExitStudy) -> Table:
    """Traffic of each exit of tiles: bytes that a device downloads once, and those of a localization with all servers."""
    answers = {outcome.answer.exit: outcome.answer for outcome in tiles.queries}
    sizes = {name: (answer.once_bytes, answer.up_bytes, answer.down_bytes) for name, answer in answers.items()}
    rows = [(name, *(f"{size / 1e3:,.3f}" for size in some)) for name, some in sizes.items()]
    return Table(columns=[Name("tiles, by exit", least=14), *numbers("once, kB", "up, kB", "down, kB")], rows=rows)


def _medians(errors: Sequence[float], turns: Sequence[float], extent: float) -> tuple[str, str]:
    """The median position error in percent of the extent, and the median rotation error in degrees."""
    position = f"{100 * np.median(errors) / extent:.2f}" if errors else "none"
    return position, f"{np.median(turns):.2f}" if turns else "none"


def lines_sentence(run: Run, extent: float) -> str:
    """Sentences on a map from lines alone."""
    if run.position is None or run.leakage is None:
        return f"mapped from lines alone: {run.reason}"
    return (
        f"mapped from lines alone: {run.registered} of {run.total} photographs, {len(run.points)} points, median position "
        f"error {100 * run.position.median / extent:.2f} %; the server can now name {run.leakage.share:.0%} of the hidden "
        f"positions to {run.leakage.median_px:.1f} px"
    )

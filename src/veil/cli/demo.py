"""`veil demo`: the whole path on bundled photographs, with a report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from veil.cli.common import Bar, add_command, add_json, at_least, quiet_colmap, report, say, write_json
from veil.localization.by_distance import Localization
from veil.pipelines.demo import VIEW, DemoOptions, run_demo
from veil.studies.localization.held_out import Outcome
from veil.studies.localization.tile_exits import ExitStudy
from veil.studies.mapping.reconstruction import Run

EXAMPLES = """\
  veil demo
  veil demo -o my-report --json demo.json
  veil demo --strangers other-photos/         also try photographs of another place: all should be refused
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil demo` to the parser's commands."""
    parser = add_command(
        commands,
        "demo",
        "the whole path on bundled photographs",
        "Map nine photographs of a portal, hold three out, localize these raw and through private forms, and write a\n"
        "page with the errors, the uploads, pictures of the matches and a plain statement of what is not protected.",
        EXAMPLES,
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("veil-demo"), metavar="FOLDER", help="default veil-demo")
    parser.add_argument("--strangers", type=Path, metavar="FOLDER", help="photographs of another place, to be refused")
    parser.add_argument("--max-features", type=int, default=1536, help="per image (default %(default)s)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="image pairs at a time (default 2)")
    add_json(parser)
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    options = DemoOptions(max_features=arguments.max_features, strangers=arguments.strangers, workers=arguments.workers)
    result = run_demo(arguments.output, options=options, steps=Bar)
    write_json(arguments.json, result.as_json())
    if str(arguments.json) != "-":
        _print(result.outcomes, result.strangers, result.extent)
        _print_tiles(result.tiles, result.extent)
        _print_lines(result.lines, result.extent)
    report(arguments, arguments.output / "report.html", "the report")
    if (arguments.output / VIEW).is_file():
        report(arguments, arguments.output / VIEW, "the map in three dimensions, which the report links to,")
    uploads = arguments.output / "uploads"
    say(arguments, f"what can the server see? veil audit {uploads / 'hardened-m4'} --images {arguments.output / 'features.h5'}")
    return 0


def _print_tiles(tiles: ExitStudy, extent: float) -> None:
    for name in dict.fromkeys(outcome.answer.exit for outcome in tiles.queries):
        mine, others = ([o for o in some if o.answer.exit == name] for some in (tiles.queries, tiles.strangers))
        errors = [o.position_error for o in mine if o.position_error is not None]
        turns = [o.rotation_error_deg for o in mine if o.rotation_error_deg is not None]
        position = f"{100 * np.median(errors) / extent:.2f} %" if errors else "none"
        turn = f"{np.median(turns):.2f} deg" if turns else "none"
        upload = f"{mine[0].answer.up_bytes} B"
        refused = f"{sum(not isinstance(o.answer.found, Localization) for o in others)} of {len(others)}"
        print(f"{f'tiles, {name}':32} {f'{len(errors)} of {len(mine)}':>9} {position:>10} {turn:>10} {upload:>7} {refused}")


def _print_lines(run: Run, extent: float) -> None:
    if run.position is None or run.leakage is None:
        print(f"mapped from lines alone: {run.reason}")
        return
    print(
        f"mapped from lines alone: {run.registered} of {run.total} photographs, {len(run.points)} points, median position "
        f"error {100 * run.position.median / extent:.2f} %; the server can now name {run.leakage.share:.0%} of the hidden "
        f"positions to {run.leakage.median_px:.1f} px"
    )


def _print(outcomes: Sequence[Outcome], strangers: Sequence[Outcome], extent: float) -> None:
    print(
        f"{'what was sent, and to which map':32} {'localized':>9} {'pos. error':>10} {'rot. error':>10} {'upload':>7} refused"
    )
    variants = list(dict.fromkeys(outcome.variant for outcome in outcomes))
    for variant in variants:
        mine = [o for o in outcomes if o.variant == variant]
        others = [o for o in strangers if o.variant == variant]
        found = [o for o in mine if isinstance(o.found, Localization)]
        errors = [o.position_error for o in found if o.position_error is not None]
        turns = [o.rotation_error_deg for o in found if o.rotation_error_deg is not None]
        position = f"{100 * np.median(errors) / extent:.2f} %" if errors else "none"
        turn = f"{np.median(turns):.2f} deg" if turns else "none"
        upload = f"{np.median([o.upload_bytes for o in mine]) / 1e3:.0f} kB"
        refused = f"{sum(not isinstance(o.found, Localization) for o in others)} of {len(others)}"
        print(f"{variant.label:32} {f'{len(found)} of {len(mine)}':>9} {position:>10} {turn:>10} {upload:>7} {refused}")
    print("Lifting is an obfuscation without proof; the report says what it does not protect.")

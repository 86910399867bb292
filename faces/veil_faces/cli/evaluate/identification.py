"""`veil evaluate identification`: strangers accepted by galleries of all sizes, with thresholds calibrated on others."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from veil.cli.common import Bar, add_command, add_json, at_least, explain, picture, report, say_table, write_json
from veil.report.tables import Table, fixed, interval, numbers, percent
from veil_faces.cli.evaluate.face_arguments import add_center, add_files
from veil_faces.files.faces import identities, read_faces
from veil_faces.report.identification import draw_identification
from veil_faces.studies.face_study import LIFTINGS
from veil_faces.studies.identification import IdentificationRow, identification_study

EXAMPLES = """\
  veil evaluate identification lfw.npz --decoys fairface.npz --figure identification.png
  veil evaluate identification lfw.npz --decoys fairface.npz --fpir 0.05 --lifting random --m 2 --json identification.json
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate identification` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "identification",
        "strangers accepted by galleries of all sizes (FPIR and FNIR of ISO/IEC 19795-1)",
        "Half of the people calibrate thresholds, one for each size of a gallery, so that by the upper end of a 95 % interval\n"
        "no more than --fpir of strangers are accepted; the other half are enrolled, or come as strangers, in all galleries\n"
        "of a size. Repeated over random splits, by p2s. Beside it the threshold that accepts --fpir of single comparisons.",
        EXAMPLES,
    )
    add_files(parser)
    parser.add_argument("--m", type=at_least(2), default=4, help="dimension of the templates (default %(default)s)")
    parser.add_argument("--lifting", choices=LIFTINGS, default="hybrid", help="way of lifting (default %(default)s)")
    add_center(parser)
    parser.add_argument(
        "--fpir", type=float, default=0.01, metavar="SHARE", help="share of strangers who may be accepted (default %(default)s)"
    )
    parser.add_argument("--splits", type=at_least(1), default=20, help="random splits of the people (default %(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of splits and lifting (default %(default)s)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw both rates (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_identification)


def _identification(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    faces, decoys = identities(read_faces(arguments.faces)), read_faces(arguments.decoys)
    with Bar("identifying") as bar:
        rows = identification_study(
            faces,
            decoys,
            lifting=arguments.lifting,
            m=arguments.m,
            centered=arguments.center,
            fpir=arguments.fpir,
            splits=arguments.splits,
            seed=arguments.seed,
            progress=bar,
        )
    write_json(arguments.json, {"fpir": arguments.fpir, "splits": arguments.splits, "rows": [row.as_json() for row in rows]})
    if str(arguments.json) != "-":
        say_table(arguments, identification_table(rows))
        explain(
            arguments,
            f"{rows[0].strangers} held-out people; an FPIR of {arguments.fpir:.2%} was asked. FPIR: strangers that a gallery "
            "takes for one of its people; FNIR: people of the gallery that it misses; exceeded: share of the splits in which "
            "held-out strangers were accepted more often; one: with the threshold of a single comparison. Rows without a "
            "threshold of their own have too few people",
        )
    if arguments.figure:
        draw_identification(arguments.figure, rows, arguments.fpir)
        report(arguments, arguments.figure, "the figure")
    return 0


def identification_table(rows: Sequence[IdentificationRow]) -> Table:
    """The table of the command: with thresholds for the size of the gallery, and with that of a single comparison."""
    own = ["threshold", "FPIR, %", "95 % interval", "exceeded, % of splits", "FNIR, %"]
    single = ["one: threshold", "one: FPIR, %", "one: 95 % interval", "one: FNIR, %"]
    return Table(
        columns=numbers("templates", *own, *single),
        rows=[
            (
                f"{row.templates:,}",
                fixed(row.threshold, 3),
                percent(row.fpir, 2),
                interval(row.fpir_low, row.fpir_high),
                percent(row.exceeded, 0),
                percent(row.fnir),
                fixed(row.single_threshold, 3),
                percent(row.single_fpir, 2),
                interval(row.single_fpir_low, row.single_fpir_high),
                percent(row.single_fnir),
            )
            for row in rows
        ],
    )

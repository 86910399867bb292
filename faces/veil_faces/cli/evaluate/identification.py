"""`veil evaluate identification`: strangers accepted by galleries of all sizes, with thresholds calibrated on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import Bar, Commands, at_least, explain, picture, report, say_table, write_json
from veil.cli.records import add_record_command, json_file, option
from veil.mechanisms.profile import Strategy
from veil.report.tables import Table, fixed, interval, numbers, percent
from veil_faces.cli.evaluate.face_arguments import AskedFaces
from veil_faces.files.faces import identities, read_faces
from veil_faces.report.protocols import draw_identification
from veil_faces.studies.face_study import LIFTINGS
from veil_faces.studies.identification import IdentificationRow, identification_study

# Random splits of the people.
SPLITS = 20
EXAMPLES = """\
  veil evaluate identification lfw.npz --decoys fairface.npz --figure identification.png
  veil evaluate identification lfw.npz --decoys fairface.npz --fpir 0.05 --lifting random --m 2 --json identification.json
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateIdentification(AskedFaces):
    """Half of the people calibrate thresholds, one for each size of a gallery, so that by the upper end of a 95 % interval
    no more than --fpir of strangers are accepted; the other half are enrolled, or come as strangers, in all galleries
    of a size. Repeated over 20 random splits, by p2s. Beside it the threshold that accepts --fpir of single comparisons.
    """

    m: int = option("dimension of the templates (default %(default)s)", default=4, parse=at_least(2))
    lifting: Strategy = option("way of lifting (default %(default)s)", default="hybrid", choices=LIFTINGS)
    fpir: float = option("share of strangers who may be accepted (default %(default)s)", default=0.01, metavar="SHARE")
    figure: Path | None = option("draw both rates (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate identification` to the subparsers `protocols`."""
    summary = "strangers accepted by galleries of all sizes (FPIR and FNIR of ISO/IEC 19795-1)"
    add_record_command(protocols, "identification", summary, EXAMPLES, EvaluateIdentification, _identification)


def _identification(arguments: EvaluateIdentification) -> int:
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
            splits=SPLITS,
            seed=arguments.seed,
            progress=bar,
        )
    write_json(arguments.json, {"fpir": arguments.fpir, "splits": SPLITS, "rows": [row.as_json() for row in rows]})
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

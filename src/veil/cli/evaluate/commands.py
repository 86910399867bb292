"""`veil evaluate`: the command with a subcommand for each protocol, and `veil evaluate homographies`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from veil.cli.common import (
    Bar,
    add_command,
    add_json,
    at_least,
    explain,
    picture,
    progress,
    quiet_colmap,
    report,
    say_table,
    write_json,
)
from veil.cli.evaluate import (
    attacks,
    attributes,
    faces,
    forms,
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
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.atomic import write_text
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.homographies import SequenceFiles, find_sequences
from veil.files.pictures import read_picture
from veil.randomness import seeded
from veil.report.curves import draw_accuracy
from veil.report.tables import Name, Number, Table, fixed, names, numbers, percent
from veil.studies.matching.homographies import ImageSequence, MatchingRow, default_cases, evaluate

EXAMPLES = """\
  veil evaluate homographies hpatches/ --json mma.json --figure mma.png
  veil evaluate homographies hpatches/ --dims 2 4 --s2s-dims 2 --max-features 1000
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil evaluate` with all its protocols to the subparsers `commands`."""
    parser = add_command(commands, "evaluate", "run a public protocol", "Run a public protocol.", EXAMPLES)
    protocols = parser.add_subparsers(metavar="PROTOCOL", required=True)
    homographies = add_command(
        protocols,
        "homographies",
        "mean matching accuracy on HPatches-like sequences",
        "Mean matching accuracy of mutual nearest neighbors at 1..10 px, every lifting and dimension, raw beside it.",
        EXAMPLES,
    )
    homographies.add_argument("folder", type=Path, help="sequences NAME/1.jpg ... and NAME/H_1_2 ...")
    homographies.add_argument("--dims", type=int, nargs="+", default=[2, 4, 8, 16], help="m for p2s (default 2 4 8 16)")
    homographies.add_argument("--s2s-dims", type=int, nargs="+", default=[2, 4, 8], help="m for s2s (default 2 4 8)")
    homographies.add_argument("--max-features", type=int, default=2048, help="per image (default %(default)s)")
    homographies.add_argument("--codebook", type=Path, metavar="FILE", help="centroids and PCA; default: the bundled one")
    homographies.add_argument("--decoys", type=Path, metavar="FILE", help="real descriptors; default: the bundled pool")
    homographies.add_argument("--study", default="homographies", help="name that seeds the study (default %(default)s)")
    homographies.add_argument("--workers", type=at_least(1), default=2, help="image pairs at a time (default 2)")
    homographies.add_argument("--figure", type=picture, metavar="FILE", help="draw the curves (.png or .svg)")
    homographies.add_argument("--calibrate", type=Path, metavar="FILE", help="write the best ratio of each case (JSON)")
    add_json(homographies)
    homographies.set_defaults(run=_homographies)
    reconstruction.register(protocols)
    queries.register(protocols)
    localization.register(protocols)
    retrieval.register(protocols)
    upright.register(protocols)
    tiles.register(protocols)
    attacks.register(protocols)
    forms.register(protocols)
    learned.register(protocols)
    neighborhoods.register(protocols)
    inversion.register(protocols)
    attributes.register(protocols)
    faces.register(protocols)


def _homographies(arguments: argparse.Namespace) -> int:
    """Run `veil evaluate homographies`; exit code 0."""
    quiet_colmap()
    codebook = read_codebook(arguments.codebook) if arguments.codebook else bundled_codebook()
    decoys = read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys()
    options = SiftOptions(max_features=arguments.max_features)
    files = find_sequences(arguments.folder)
    sequences = [_load(item, options) for item in progress(files, "extracting")]
    with Bar("matching") as bar:
        rows = evaluate(
            sequences,
            default_cases(arguments.dims, arguments.s2s_dims),
            codebook=codebook,
            decoys=decoys,
            randomness=seeded(arguments.study),
            workers=arguments.workers,
            progress=bar,
        )
    records = [row.as_json() for row in rows]
    write_json(arguments.json, {"rows": records})
    if str(arguments.json) != "-":
        say_table(arguments, matching_table(records))
        explain(arguments, "MMA: mean share of matches that are right within so many pixels, over image pairs")
    if arguments.figure:
        pairs = records[0]["pairs"]
        draw_accuracy(arguments.figure, records, title=f"SIFT, {len(sequences)} sequences, {pairs} pairs")
        report(arguments, arguments.figure, "the figure")
    if arguments.calibrate:
        _write_ratios(arguments.calibrate, rows)
        report(arguments, arguments.calibrate, "calibrated ratios")
    return 0


def _load(item: SequenceFiles, options: SiftOptions) -> ImageSequence:
    """Features and homographies of one sequence."""
    features = tuple(extract_sift(read_picture(path), options) for path in item.pictures)
    return ImageSequence(name=item.name, features=features, homographies=item.homographies)


def matching_table(records: list[dict]) -> Table:
    """The table of `veil evaluate homographies`."""
    limits = ("1", "3", "5", "10")
    return Table(
        columns=[
            *names("profile", "lifting"),
            Number("m"),
            Name("distance"),
            *numbers("matches", *(f"MMA {limit} px, %" for limit in limits)),
        ],
        rows=[
            (
                row["profile"],
                row["lifting"],
                str(row["m"]),
                row["distance"],
                fixed(row["matches"], 1),
                *(percent(row["mma"][limit]) for limit in limits),
            )
            for row in records
        ],
        labels=4,
    )


def _write_ratios(path: Path, rows: list[MatchingRow]) -> None:
    """Write the table of ratios that `--ratio auto` reads; of the paper's liftings it holds the recommended sub-hybrid one."""
    table = {}
    for row in rows:
        profile = row.case.profile
        ratio = row.ratio()
        if ratio is None or (profile is not None and profile.name == "paper" and profile.strategy != "sub-hybrid"):
            continue
        name, m = (profile.name, profile.m) if profile else ("raw", 0)
        table[f"sift-L2/{name}/{m}/{row.case.distance}"] = round(ratio, 3)
    write_text(path, json.dumps({"right_within_px": 3, "max_ratio": table}, indent=2) + "\n")

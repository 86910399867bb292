"""`veil evaluate defenses`: how much accuracy defenses cost, and what is recovered from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import (
    Commands,
    at_least,
    explain,
    picture,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.photographs.pictures import read_picture
from veil_lab.cli.evaluate.attacks.attack_tables import accuracy_table, far_table, near_table
from veil_lab.cli.evaluate.attacks.photographs import extracted
from veil_lab.files.homographies import find_sequences
from veil_lab.report.attacks import draw_defenses
from veil_lab.studies.attacks.defenses import DefenseEffort, DefenseRow, DescriptorPools, default_defenses, defense_study
from veil_lab.studies.matching.homographies import ImageSequence

EXAMPLES = """\
  veil evaluate defenses homography/ --victims strecha/fountain-P11/images --figure defenses.png
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateDefenses(Record):
    """For dither, compression, real decoys, precision and their combinations: mean matching accuracy at 3 px, and what the
    lattice, vertex, nearest-neighbor, intersection and database attacks recover from photographs.
    """

    folder: Path = positional("sequences NAME/1.jpg ... and NAME/H_1_2 ...")
    victims: tuple[Path, ...] = option("photographs that are attacked", required=True, metavar="PHOTOS")
    photographs: int = option(
        "photographs of --victims that are used at most (default %(default)s)", default=8, parse=at_least(1)
    )
    per_image: int = option("features of each photograph that are lifted (default %(default)s)", default=60, parse=at_least(10))
    structural: int = option(
        "of these features, those for structural attacks behind a PCA (default %(default)s)", default=200, parse=at_least(1)
    )
    m: int = option("dimension of the subspaces (default %(default)s)", default=4, parse=at_least(2))
    only: tuple[str, ...] | None = option("defenses to measure (default: all)", metavar="NAME")
    max_features: int = option("features per image for matching (default %(default)s)", default=600, parse=at_least(100))
    codebook: Path | None = option("codebook whose words are the centroids (default: the bundled one)", metavar="FILE")
    decoys: Path | None = option("pool of real descriptors (default: the bundled one)", metavar="FILE")
    threads: int = option("threads of matching and attacks (default 2)", default=2, parse=at_least(1))
    figure: Path | None = option("draw recovery against matching (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate defenses` to the subparsers `protocols`."""
    summary = "what each defense costs in matching, and what is recovered from it"
    add_record_command(protocols, "defenses", summary, EXAMPLES, EvaluateDefenses, _defenses)


def _defenses(arguments: EvaluateDefenses) -> int:
    """Run `veil evaluate defenses`; exit code 0."""
    quiet_colmap()
    known = default_defenses(arguments.m)
    if arguments.only:
        unknown = set(arguments.only) - {defense.name for defense in known}
        if unknown:
            names = ", ".join(defense.name for defense in known)
            raise InputError(f"there is no defense {', '.join(sorted(unknown))}; there are {names}")
        known = [defense for defense in known if defense.name in arguments.only]
    options = SiftOptions(max_features=arguments.max_features)
    sequences = [
        ImageSequence(
            name=item.name,
            features=tuple(extract_sift(read_picture(path), options) for path in item.pictures),
            homographies=item.homographies,
        )
        for item in progress(find_sequences(arguments.folder), "extracting")
    ]
    victims = _few(extracted(arguments.victims, most=arguments.photographs, least=arguments.per_image), arguments.per_image)
    if not victims:
        raise InputError(f"no photograph of --victims has {arguments.per_image} features; ask for fewer with --per-image")
    pools = DescriptorPools.split(
        read_codebook(arguments.codebook) if arguments.codebook else bundled_codebook(),
        read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys(),
    )
    effort = DefenseEffort(structural=arguments.structural, threads=arguments.threads)
    results = defense_study(sequences, victims, pools, known, effort=effort, workers=arguments.threads)
    rows: list[DefenseRow] = []
    for row in progress(results, "attacking defenses", len(known)):
        rows.append(row)
        if str(arguments.json) != "-":  # hours may go into a table: what is done is kept
            write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    if str(arguments.json) == "-":
        write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    else:
        for table in (accuracy_table(rows), near_table(rows), far_table(rows)):
            say_table(arguments, table)
            say(arguments, "")
        explain(arguments, "shares of descriptors that attacks recover; <: the upper end of the 95 % interval")
    if arguments.figure:
        draw_defenses(arguments.figure, rows)
        report(arguments, arguments.figure, "the figure")
    return 0


def _few(images: Sequence[Features], count: int) -> list[Features]:
    """Random features of each photograph, `count` of each."""
    return [item.drawn(count, np.random.default_rng(k)) for k, item in enumerate(images)]

"""`veil evaluate repeats`: what several frames of a static video, or handheld shots, give away of one photograph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np

from veil.cli.common import Commands, StepBar, at_least, explain, progress, quiet_colmap, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.attack_networks import bundled_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.mechanisms.release import made_from
from veil.report.tables import Name, Table, Words, interval, numbers, percent
from veil_lab.studies.attacks.form_releases import WORDS_SENT, FormPools
from veil_lab.studies.attacks.repeats import UPLOADS, RepeatRow, RepeatSet, repeats_study
from veil_lab.training.altered import RepeatKind, near_repeats

EXAMPLES = """\
  veil evaluate repeats strecha/fountain-P11/images --photographs 4
  veil evaluate repeats strecha/fountain-P11/images --photographs 4 --learned --attacked-features 60
  veil evaluate repeats fox/images sacre_coeur --decoys pool.npz --photographs 20 --json repeats.json
  veil evaluate repeats fox/images --earlier          near repeats as queries of a client are answered
"""
WITHIN = {"descriptor": "0.1 / 0.2 / 0.4", "px": "5 / 20 px", "word": "right word"}


@dataclass(frozen=True, kw_only=True)
class EvaluateRepeats(Record):
    """Make near repeats of each photograph, release them in several forms as one device does, and attack the first of two
    and of five by comparing these uploads, some attacks with the alignment of the pictures. Frames of a static video
    differ by noise of 2 gray levels and JPEG of quality 90; handheld shots are also turned by at most 1 degree, moved by
    at most 6 px and scaled within 2 %. The client's decoys are one half of a pool, and the attacker has the other half.
    """

    photos: tuple[Path, ...] = positional("photos of which near repeats are made", metavar="PHOTOS")
    decoys: Path | None = option("pool for decoys and the attacker's database (default: the bundled one)", metavar="FILE")
    learned: bool = option(
        "attack subspaces with the bundled networks, too: 40 s of a core for each release and number of uploads, or less with "
        "--attacked-features",
        default=False,
    )
    earlier: bool = option(
        "give features that left before their earlier draws, as queries of a client do (default: draw anew)", default=False
    )
    photographs: int = option("photographs attacked at most, evenly taken (default %(default)s)", default=8, parse=at_least(1))
    attacked_features: int | None = option(
        "features of each photograph whose descriptors are attacked (default all)", parse=at_least(1), metavar="N"
    )
    max_features: int = option("features per image at most (default %(default)s)", default=8192, parse=at_least(10))
    seed: int = option("seed of noise, motion and releases (default %(default)s)", default=0, parse=at_least(0))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate repeats` to the subparsers `protocols`."""
    summary = "frames of a static video and handheld shots, together"
    add_record_command(protocols, "repeats", summary, EXAMPLES, EvaluateRepeats, _repeats)


def _repeats(arguments: EvaluateRepeats) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    pool = read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys()
    pictures = named_pictures(arguments.photos)
    if len(pictures) > arguments.photographs:
        pictures = [pictures[k] for k in np.linspace(0, len(pictures) - 1, arguments.photographs).round().astype(int)]
    options = SiftOptions(max_features=arguments.max_features)
    sets: list[RepeatSet] = []
    for name, path in progress(pictures, "extracting"):
        picture = read_picture(path)
        if made_from(pool, picture.digest):
            raise InputError(f"{name} is one of the photographs that --decoys was made from; give another, or attack others")
        kinds: tuple[RepeatKind, ...] = get_args(RepeatKind)
        for kind in kinds:
            made = near_repeats(picture, kind, max(UPLOADS), seed=arguments.seed)
            features = [extract_sift(item.picture, options) for item in made]
            to_photograph = [item.to_photograph for item in made]
            sets.append(RepeatSet(photograph=name, kind=kind, features=features, to_photograph=to_photograph))
    pools = FormPools.split(bundled_codebook(), pool)
    if arguments.learned:
        pools = replace(pools, learned=bundled_learned_model())
    with StepBar("attacking") as bar:
        most = arguments.attacked_features or WORDS_SENT
        rows = repeats_study(sets, pools, most=most, seed=arguments.seed, earlier=arguments.earlier, progress=bar)
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    say(arguments, f"{rows[0].photographs} photographs")
    say_table(arguments, repeats_table(rows))
    explain(
        arguments,
        "Percent of the attacked features: descriptors within parts of their length, positions, or words.",
        "95 % intervals are over photographs. Of each form the best attack is shown.",
    )
    return 0


def repeats_table(rows: Sequence[RepeatRow]) -> Table:
    """The table of the command: a row for each form, kind, number of uploads and unit."""
    return Table(
        columns=[
            Words("form"),
            Name("uploads", least=8),
            Words("attack", least=13),
            Words("within", least=15),
            *numbers("recovered, %", "95 % intervals"),
        ],
        rows=[
            (
                row.form,
                f"{row.uploads} {row.kind}s",
                row.attack,
                WITHIN[row.unit],
                " / ".join(percent(share) for share in row.shares),
                " / ".join(interval(low, high) for low, high in zip(row.low, row.high, strict=True)),
            )
            for row in rows
        ],
        labels=2,
    )

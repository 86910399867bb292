"""`veil evaluate learned`: what modes of a learned density and context recover from one upload of subspaces."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.cli.common import (
    StepBar,
    add_command,
    add_json,
    at_least,
    progress,
    quiet_colmap,
    say,
    say_table,
    write_json,
)
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.attack_networks import bundled_learned_model, read_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.mechanisms.release import made_from
from veil.mechanisms.selection import EVERYTHING, Selection
from veil.report.tables import Table, Words, interval, numbers, percent
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.studies.attacks.learned import WITHIN, LearnedRow, LearnedSetup, learned_study

EXAMPLES = """\
  veil evaluate learned bsds500/ --every 20 --skip 1 --decoys pool.npz --runs 16 --database own.npz --json learned.json
  veil evaluate learned strecha/fountain-P11/images --as-privatize --photographs 4
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate learned` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "learned",
        "modes of a learned density and context, on one upload",
        "Release photographs in the hardened profile with decoys from a pool that the attacker does not have, and attack each\n"
        "upload alone with what networks of `veil lab train attacks` learned. As a control, the subspaces of all photographs\n"
        "are exchanged among them. Neither the networks nor the pool may come from the photographs.",
        EXAMPLES,
    )
    parser.add_argument("photos", type=Path, nargs="+", metavar="PHOTOS", help="photos that are attacked")
    parser.add_argument(
        "--attack-model", type=Path, metavar="FILE", help="networks of `veil lab train attacks` (default: the bundled ones)"
    )
    parser.add_argument("--decoys", type=Path, metavar="FILE", help="the client's pool (default: one half of the bundled one)")
    parser.add_argument("--database", type=Path, metavar="FILE", help="the attacker's descriptors (default: the other half)")
    parser.add_argument(
        "--as-privatize", action="store_true", help="send the features that `veil privatize` sends (default: all)"
    )
    parser.add_argument(
        "--runs", type=at_least(1), metavar="S", help="use the pool in S runs (default: as `veil privatize` does)"
    )
    parser.add_argument(
        "--max-features", type=at_least(10), default=8192, help="features per image at most (default %(default)s)"
    )
    parser.add_argument(
        "--largest",
        type=at_least(10),
        metavar="N",
        help="keep the N features of largest scale of each photograph, before anything else",
    )
    parser.add_argument(
        "--attacked-features", type=at_least(1), metavar="N", help="features of each photograph that are attacked (default all)"
    )
    parser.add_argument("--photographs", type=at_least(1), default=8, help="photographs attacked at most (default %(default)s)")
    parser.add_argument("--every", type=at_least(1), default=1, metavar="N", help="take each N-th photograph (default all)")
    parser.add_argument("--skip", type=at_least(0), default=0, metavar="K", help="begin after the first K photographs")
    parser.add_argument(
        "--seed", type=at_least(0), default=0, help="seed by which attacked features are chosen (default %(default)s)"
    )
    add_json(parser)
    parser.set_defaults(run=_learned)


def _learned(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    chosen = list(named_pictures(arguments.photos))[arguments.skip :: arguments.every][: arguments.photographs]
    pools = FormPools.split(bundled_codebook(), bundled_decoys())
    pool = read_codebook(arguments.decoys) if arguments.decoys else pools.decoys
    database = read_codebook(arguments.database) if arguments.database else pools.database
    model = read_learned_model(arguments.attack_model) if arguments.attack_model else bundled_learned_model()
    victims = {}
    for name, path in progress(chosen, "extracting"):
        features = extract_sift(read_picture(path), SiftOptions(max_features=arguments.max_features))
        for what, book in (("--decoys", pool), ("--database", database)):
            if made_from(book, features.image_digest):
                raise InputError(f"{name} is one of the photographs that {what} was made from; give another, or attack others")
        if model.training.has_seen(features.image_digest):
            raise InputError(f"the networks were trained on {name}; attack photographs that they have not seen")
        if arguments.largest and features.scales is not None:
            kept = np.argsort(-features.scales, kind="stable")[: arguments.largest]
            features = features.take(np.sort(kept))
        victims[name] = features
    setup = LearnedSetup(
        codebook=pools.codebook,
        pool=pool,
        database=database,
        model=model,
        selection=Selection() if arguments.as_privatize else EVERYTHING,
        runs=arguments.runs,
        features=arguments.attacked_features,
        seed=arguments.seed,
    )
    with StepBar("attacking") as bar:
        rows = list(learned_study(victims, setup, progress=bar))
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    say(arguments, f"{rows[0].photographs} photographs, {rows[0].features} features")
    say_table(arguments, learned_table(rows))
    return 0


def learned_table(rows: Sequence[LearnedRow]) -> Table:
    """The table of the command: shares within three distances of the descriptor, each with its interval."""
    heads = [head for limit in WITHIN for head in (f"within {limit:g}, %", "95 % interval")]
    return Table(
        columns=[Words("attack", least=24), *numbers(*heads)],
        rows=[
            (
                row.attack,
                *(
                    cell
                    for share, low, high in zip(row.shares, row.low, row.high, strict=True)
                    for cell in (percent(share), interval(low, high))
                ),
            )
            for row in rows
        ],
    )

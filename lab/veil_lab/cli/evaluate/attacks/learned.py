"""`veil evaluate learned`: what modes of a learned density and context recover from one upload of subspaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import (
    Commands,
    StepBar,
    at_least,
    progress,
    quiet_colmap,
    say,
    say_table,
    write_json,
)
from veil.cli.records import Record, add_record_command, json_file, option, positional
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


@dataclass(frozen=True, kw_only=True)
class EvaluateLearned(Record):
    """Release photographs in the hardened profile with decoys from a pool that the attacker does not have, and attack each
    upload alone with what networks of `veil lab train attacks` learned. As a control, the subspaces of all photographs
    are exchanged among them. Neither the networks nor the pool may come from the photographs.
    """

    photos: tuple[Path, ...] = positional("photos that are attacked", metavar="PHOTOS")
    attack_model: Path | None = option(
        "networks of `veil lab train attacks` or `veil lab tune` (default: the bundled ones)", metavar="FILE"
    )
    decoys: Path | None = option("the client's pool (default: one half of the bundled one)", metavar="FILE")
    database: Path | None = option("the attacker's descriptors (default: the other half)", metavar="FILE")
    as_privatize: bool = option("send the features that `veil privatize` sends (default: all)", default=False)
    runs: int | None = option("use the pool in S runs (default: as `veil privatize` does)", parse=at_least(1), metavar="S")
    max_features: int = option("features per image at most (default %(default)s)", default=8192, parse=at_least(10))
    largest: int | None = option(
        "keep the N features of largest scale of each photograph, before anything else", parse=at_least(10), metavar="N"
    )
    attacked_features: int | None = option(
        "features of each photograph that are attacked (default all)", parse=at_least(1), metavar="N"
    )
    photographs: int = option("photographs attacked at most (default %(default)s)", default=8, parse=at_least(1))
    every: int = option("take each N-th photograph (default all)", default=1, parse=at_least(1), metavar="N")
    skip: int = option("begin after the first K photographs", default=0, parse=at_least(0), metavar="K")
    seed: int = option("seed by which attacked features are chosen (default %(default)s)", default=0, parse=at_least(0))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate learned` to the subparsers `protocols`."""
    summary = "modes of a learned density and context, on one upload"
    add_record_command(protocols, "learned", summary, EXAMPLES, EvaluateLearned, _learned)


def _learned(arguments: EvaluateLearned) -> int:
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

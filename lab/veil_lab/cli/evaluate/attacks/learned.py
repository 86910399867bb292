"""`veil evaluate learned`: what modes of a learned density and context recover from one upload of subspaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

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
from veil.device.doors import select_for_map
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.attack_networks import bundled_learned_model, read_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.mechanisms.release import made_from
from veil.mechanisms.selection import EVERYTHING, ChosenFeatures, Selection
from veil.places.maps import NoMap
from veil.report.tables import Table, Words, interval, numbers, percent
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.studies.attacks.learned import MIXED, WITHIN, LearnedRow, LearnedSetup, learned_study
from veil_lab.studies.attacks.pooled_shares import paired_gain

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
    for_map: bool = option(
        "send what a map of the photographs of each folder uses; of those that it does not hold, as with --as-privatize",
        default=False,
    )
    runs: int | None = option("use the pool in S runs (default: as `veil privatize` does)", parse=at_least(1), metavar="S")
    max_features: int = option("features per image at most (default %(default)s)", default=8192, parse=at_least(10))
    largest: int | None = option(
        "keep the N features of largest scale of each photograph, before anything else", parse=at_least(10), metavar="N"
    )
    attacked_features: int | None = option(
        "features of each photograph that are attacked (default all)", parse=at_least(1), metavar="N"
    )
    others: int = option(
        "further uploads that the attacker has beside the attacked one (default %(default)s)", default=0, parse=at_least(0)
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
    selected = _selected_for_map(arguments) if arguments.for_map else {}
    victims = {}
    for name, path in progress(chosen, "extracting"):
        features = _extracted(path, arguments)
        for what, book in (("--decoys", pool), ("--database", database)):
            if made_from(book, features.image_digest):
                raise InputError(f"{name} is one of the photographs that {what} was made from; give another, or attack others")
        if model.training.has_seen(features.image_digest):
            raise InputError(f"the networks were trained on {name}; attack photographs that they have not seen")
        victims[name] = features
    setup = LearnedSetup(
        codebook=pools.codebook,
        pool=pool,
        database=database,
        model=model,
        selection=Selection() if arguments.as_privatize or arguments.for_map else EVERYTHING,
        chosen=selected,
        runs=arguments.runs,
        features=arguments.attacked_features,
        others=arguments.others,
        seed=arguments.seed,
    )
    with StepBar("attacking") as bar:
        rows = list(learned_study(victims, setup, progress=bar))
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    say(arguments, f"{rows[0].photographs} photographs, {rows[0].features} features of {rows[0].sent:.0f} sent a photograph")
    say_table(arguments, learned_table(rows))
    say(arguments, "points that an attack recovers beyond the modes of the same releases:")
    say_table(arguments, gain_table(rows, seed=arguments.seed))
    return 0


def _extracted(path: Path, arguments: EvaluateLearned) -> Features:
    features = extract_sift(read_picture(path), SiftOptions(max_features=arguments.max_features))
    if arguments.largest and features.scales is not None:
        kept = np.argsort(-features.scales, kind="stable")[: arguments.largest]
        features = features.take(np.sort(kept))
    return features


def _selected_for_map(arguments: EvaluateLearned) -> Mapping[str, ChosenFeatures]:
    """The features that a map of all photographs of a folder uses, by photograph; none of a folder that gives no map."""
    folders: dict[PurePosixPath, dict[str, Features]] = {}
    for name, path in progress(list(named_pictures(arguments.photos)), "extracting for maps"):
        folders.setdefault(PurePosixPath(name).parent, {})[name] = _extracted(path, arguments)
    selected: dict[str, ChosenFeatures] = {}
    for photographs in progress(list(folders.values()), "mapping"):
        made = select_for_map(photographs)
        selected |= {} if isinstance(made, NoMap) else made
    return selected


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


def gain_table(rows: Sequence[LearnedRow], *, seed: int) -> Table:
    """What attacks that use the modes gain over them, paired by photograph: points of a hundred, each with its interval."""
    base = next(row for row in rows if row.attack == "modes")
    heads = [head for limit in WITHIN for head in (f"within {limit:g}", "95 % interval")]
    table = []
    for row in rows:
        if row.attack not in ("nearest, projected", base.attack, MIXED):
            gain = paired_gain(np.array(row.by_photograph), np.array(base.by_photograph), seed=seed)
            parts = zip(gain.shares, gain.low, gain.high, strict=True)
            points = [cell for share, low, high in parts for cell in (signed(share), f"{signed(low)} to {signed(high)}")]
            table.append((row.attack, *points))
    return Table(columns=[Words("attack", least=24), *numbers(*heads)], rows=table)


def signed(share: float) -> str:
    """A difference of shares in points of a hundred, with its sign."""
    return f"{100 * share:+.1f}"

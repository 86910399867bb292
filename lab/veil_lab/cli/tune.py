"""`veil lab tune`: constants of `matched candidates` and `same photograph`, fitted on the attacker's own photographs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from veil.attacks.distribution.learned_model import AttackTraining
from veil.cli.common import Bar, Commands, at_least, picture, progress, quiet_colmap, report, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.engine import open_engine
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.attack_networks import bundled_learned_model, read_learned_model, write_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.report.tables import Name, Table, numbers, percent
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.training.view_tuning import (
    TunedPlace,
    TuningAttacker,
    TuningOptions,
    TuningPlace,
    asked_features,
    attacked_photographs,
    tuned,
    with_constants,
)

EXAMPLES = """\
  veil lab tune lund_door/images fox/images -o tuned.npz
  veil lab tune place1/ place2/ place3/ -o tuned.npz --decoys pool.npz --figure tuned.png --json tuned.json
  veil audit uploads/ --images photos/ --attack-model tuned.npz -o audit.html
"""


@dataclass(frozen=True, kw_only=True)
class Tune(Record):
    """Fit constants of attacks on photographs that the attacker has: those by which `matched candidates` reads other
    uploads, and the sharpness of `same photograph`. Each folder is a place, whose next photographs in the order of names
    show the same; a folder whose photographs do not serves `same photograph` alone. They are released as a device would,
    with decoys of one half of a pool; the other half is the attacker's database. The networks must not have seen the
    photographs, and should not have seen those of the pool. Each place is attacked with the constants of all others,
    beside those that the networks came with. The networks are written with the constants, for `--attack-model`.
    """

    places: tuple[Path, ...] = positional("a folder of photographs for each place, two or more")
    output: Path = option("where to write networks and constants (.npz)", required=True, short="-o", metavar="FILE")
    attack_model: Path | None = option(
        "networks of `veil lab train attacks` or `veil lab tune` (default: the bundled ones)", metavar="FILE"
    )
    codebook: Path | None = option("codebook that releases name (default: the bundled one)", metavar="FILE")
    decoys: Path | None = option("pool for decoys and the attacker's database (default: the bundled one)", metavar="FILE")
    photographs: int = option(
        "photographs attacked of each place, evenly taken (default %(default)s)",
        default=TuningOptions().photographs,
        parse=at_least(1),
    )
    others: int = option(
        "further uploads that the attacker has beside the attacked one (default %(default)s)",
        default=TuningOptions().others,
        parse=at_least(1),
    )
    attacked_features: int = option(
        "features of each photograph that are attacked (default %(default)s)",
        default=TuningOptions().features,
        parse=at_least(10),
    )
    max_features: int = option("features per image at most (default %(default)s)", default=8192, parse=at_least(10))
    workers: int = option("photographs at a time that are attacked (default %(default)s)", default=2, parse=at_least(1))
    seed: int = option("seed of releases and attacked features (default %(default)s)", default=0, parse=at_least(0))
    figure: Path | None = option("draw the distances and the fitted ratios (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(actions: Commands) -> None:
    """Add `veil lab tune` to the subparsers `actions`."""
    summary = "photographs of places -> constants of attacks"
    add_record_command(actions, "tune", summary, EXAMPLES, Tune, _tune)


def _tune(arguments: Tune) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    options = TuningOptions(
        photographs=arguments.photographs,
        others=arguments.others,
        features=arguments.attacked_features,
        seed=arguments.seed,
    )
    model = read_learned_model(arguments.attack_model) if arguments.attack_model else bundled_learned_model()
    book = read_codebook(arguments.codebook) if arguments.codebook else bundled_codebook()
    if model.space != book.compression.hardened_space:
        raise InputError(f"the networks are for [{model.space}], and releases are in [{book.compression.hardened_space}]")
    pool = read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys()
    pools = FormPools.split(book, pool)
    attacker = TuningAttacker(model=model, codebook=book, decoys=pools.decoys, database=pools.database)
    places = [_place(folder, arguments.max_features, options, model.training) for folder in arguments.places]
    with open_engine(workers=arguments.workers) as engine, Bar("attacking") as bar:
        asked = asked_features(places, attacker, engine, options=options, progress=bar)
    tuning = tuned(asked, model)
    write_learned_model(arguments.output, with_constants(model, tuning.fitted, tuning.sharpness))
    record = tuning.as_json()
    write_json(arguments.json, record)
    vector = [
        *zip(record["constants"], tuning.fitted.values, tuning.fitted.errors, strict=True),
        ("same photograph", tuning.sharpness.sharpness, tuning.sharpness.error),
    ]
    say_table(
        arguments,
        Table(
            columns=[Name("constant"), *numbers("value", "standard error")],
            rows=[(name, f"{value:.3g}", "-" if error != error else f"{error:.2g}") for name, value, error in vector],
            labels=1,
        ),
    )
    say(arguments, "")
    say_table(arguments, places_table(tuning.places))
    say(arguments, "percent of the descriptors within 0.1 / 0.2 / 0.4 of their length, by constants of the other places")
    say(arguments, "")
    say(arguments, "`same photograph` on the same releases behind lines, by the sharpness of the other places:")
    say_table(arguments, sharpness_table(tuning.places))
    if arguments.figure:
        from veil_lab.report.view_ratios import draw_view_ratios  # loads Matplotlib

        draw_view_ratios(arguments.figure, [item.rated for item in asked], tuning.fitted.weights)
        report(arguments, arguments.figure, "the figure")
    report(arguments, arguments.output, "the networks with their constants")
    return 0


def places_table(places: Sequence[TunedPlace]) -> Table:
    """The table of `matched candidates`: shares that are recovered of each place, before and after."""
    return Table(
        columns=[
            Name("place"),
            *numbers("photographs", "positions, before", "positions, tuned", "lines, before", "lines, tuned"),
        ],
        rows=[
            (
                _place_name(row),
                str(row.photographs),
                *map(_shares, (row.positions_before, row.positions, row.lines_before, row.lines)),
            )
            for row in places
        ],
        labels=1,
    )


def sharpness_table(places: Sequence[TunedPlace]) -> Table:
    """The table of `same photograph`: cross entropies and shares that are recovered of each place, before and after."""
    return Table(
        columns=[Name("place"), *numbers("sharpness", "nats, before", "nats, tuned", "lines, before", "lines, tuned")],
        rows=[
            (
                _place_name(row),
                f"{row.alone.sharpness:.3g}",
                *("-" if nats != nats else f"{nats:.3f}" for nats in (row.alone.cross_entropy_before, row.alone.cross_entropy)),
                *map(_shares, (row.alone.recovered_before, row.alone.recovered)),
            )
            for row in places
        ],
        labels=1,
    )


def _place_name(row: TunedPlace) -> str:
    folder = Path(row.place)
    return folder.parent.name if folder.name == "images" else folder.name


def _shares(shares: Sequence[float]) -> str:
    return " / ".join(percent(share) for share in shares)


def _place(folder: Path, most: int, options: TuningOptions, training: AttackTraining) -> TuningPlace:
    """Raw features of the photographs of a place that are attacked, or uploaded beside these.

    Raises InputError for a photograph that the networks were trained on.
    """
    paths = dict(named_pictures([folder]))
    others = attacked_photographs(list(paths), options)
    wanted = dict.fromkeys(name for own, near in others.items() for name in (own, *near))
    kept: dict[str, Features] = {}
    for name in progress(list(wanted), "extracting"):
        with suppress(InputError):  # a blank one shows nothing
            kept[name] = extract_sift(read_picture(paths[name]), SiftOptions(max_features=most))
        if name in kept and training.has_seen(kept[name].image_digest):
            raise InputError(f"the networks were trained on {name}; give photographs that they have not seen")
    seen = {own: [name for name in near if name in kept] for own, near in others.items() if own in kept}
    return TuningPlace(name=str(folder), photographs=kept, others={own: near for own, near in seen.items() if near})

"""`veil evaluate inversion`: pictures from raw descriptors, from attacked subspaces, and by direct inversion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.attacks.distribution.nearest import entries
from veil.cli.common import (
    OCTAVE,
    Arguments,
    Bar,
    Commands,
    at_least,
    octave,
    picture,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.codebooks.codebook import Codebook
from veil.device.inverting import network_of
from veil.errors import InputError
from veil.extraction.sift import MAX_FEATURES, SiftOptions, extract_sift
from veil.files.attack_networks import bundled_inverter, read_weights
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.photographs.pictures import named_pictures, read_picture, read_rgb
from veil.inversion.weights import Weights
from veil.mechanisms.profile import STRATEGIES, Strategy
from veil.report.tables import Table, fixed, names, numbers, percent
from veil_lab.report.attacks import draw_inversions, draw_similarity
from veil_lab.studies.pictures.inversion import (
    ATTACKS,
    DIMS,
    SUB_HYBRID,
    Gap,
    InversionRow,
    Inverted,
    UntrainedPhotograph,
    gaps,
    inversion_study,
    known_attacks,
    rows,
)

EXAMPLES = """\
  veil evaluate inversion bsds500/ --codebook words.npz --database public.npz --photographs 20 --json inversion.json
  veil evaluate inversion bsds500/ --codebook words.npz --database public.npz --direct direct.npz --reconstructions pictures.png
  veil evaluate inversion bsds500/ --codebook words.npz --database public.npz --lifting random sub-hybrid --attacks nearest
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateInversion(Record):
    """Lift every descriptor of photographs, attack the subspaces, and reconstruct pictures from what is recovered, raw
    descriptors, after the database, clustering and nearest-neighbor attacks, and by direct inversion of subspaces.
    The photographs must be others than those that networks, decoys and database were made of. Random lifting has no decoys,
    and no attack is run that looks for any. Direct inversion is that of the ways of lifting on which networks were trained.
    """

    photos: tuple[Path, ...] = positional("photographs or folders of them")
    inverter: Path | None = option("network for raw descriptors (default: the bundled one)", metavar="FILE")
    direct: tuple[Path, ...] = option("networks for subspaces, one a lifting (default: none)", default=(), metavar="FILE")
    codebook: Path | None = option("codebook whose words are the decoys (default: the bundled one)", metavar="FILE")
    database: Path | None = option("the attacker's descriptors (default: the bundled pool)", metavar="FILE")
    lifting: tuple[Strategy, ...] = option("ways of lifting (default sub-hybrid)", default=(SUB_HYBRID,), choices=STRATEGIES)
    attacks: tuple[str, ...] = option("attacks on subspaces (default: all)", default=ATTACKS, choices=ATTACKS)
    m: tuple[int, ...] = option("dimensions of the subspaces (default 2 4 8 16)", default=DIMS, parse=at_least(2))
    photographs: int | None = option("photographs to invert, evenly taken (default: all)", parse=at_least(1), metavar="N")
    max_features: int = option(
        "features per image at most (default %(default)s, as of `veil extract`)", default=MAX_FEATURES, parse=at_least(10)
    )
    seed: int = option("seed of lifting and attacks (default %(default)s)", default=0, parse=at_least(0))
    figure: Path | None = option("draw similarity against m (.png or .svg)", parse=picture, metavar="FILE")
    reconstructions: Path | None = option("draw reconstructions beside photographs", parse=picture, metavar="FILE")
    shown: int = option("photographs in --reconstructions (default %(default)s)", default=4, parse=at_least(1))
    shown_m: int | None = option("dimension in --reconstructions (default: the second of --m)", parse=at_least(2))
    first_octave: int | None = option(OCTAVE, parse=octave, metavar="N")
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate inversion` to the subparsers `protocols`."""
    summary = "pictures from what attacks recover (Pittaluga and Zhuang 2023, Table 1; Dusmanu et al. 2021, Fig. 3)"
    add_record_command(protocols, "inversion", summary, EXAMPLES, EvaluateInversion, _inversion)


def _inversion(arguments: EvaluateInversion) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    shown_m = arguments.shown_m or arguments.m[min(1, len(arguments.m) - 1)]
    if shown_m not in arguments.m:
        raise InputError(f"--shown-m {shown_m} is not among --m; give one of {', '.join(map(str, arguments.m))}")
    if len(arguments.lifting) > 1 and (arguments.figure or arguments.reconstructions):
        raise InputError(
            "figures show one way of lifting; name one with --lifting, or leave out --figure and --reconstructions"
        )
    weights = bundled_inverter() if arguments.inverter is None else read_weights(arguments.inverter)
    direct = _direct(arguments)
    words = bundled_codebook() if arguments.codebook is None else read_codebook(arguments.codebook)
    database = bundled_decoys() if arguments.database is None else read_codebook(arguments.database)
    photographs = untrained_photographs(arguments)
    require_other_photographs(photographs, words, database)
    space = words.raw_space
    known = known_attacks(entries(words, space), entries(database, space), seed=arguments.seed)
    with Bar("inverting") as bar:
        pictures = inversion_study(
            photographs,
            {name: attack for name, attack in known.items() if name in arguments.attacks},
            raw=network_of(weights),
            direct={lifting: network_of(item) for lifting, item in direct.items()},
            codebook=words,
            decoys=words,
            case=f"inversion {arguments.seed}",
            liftings=tuple(dict.fromkeys(arguments.lifting)),
            dims=arguments.m,
            progress=bar,
        )
    table, order = rows(pictures), gaps(pictures)
    write_json(
        arguments.json,
        {
            "photographs": len(photographs),
            "weights": {"raw": weights.digest, "direct": {lifting: item.digest for lifting, item in direct.items()}},
            "rows": [row.as_json() for row in table],
            "gaps": [gap.as_json() for gap in order],
            "pictures": [item.as_json() for item in pictures],
        },
    )
    if str(arguments.json) != "-":
        say_table(arguments, inversion_table(table))
        say(arguments, "\nSSIM, photograph by photograph: mean difference, and how often it is above 0")
        say_table(arguments, gap_table(order))
    _draw(arguments, photographs, pictures, table, shown_m)
    return 0


def _direct(arguments: EvaluateInversion) -> dict[Strategy, Weights]:
    """The networks of direct inversion, by the lifting that they were trained on.

    Raises InputError for one that reads no subspaces, two of one lifting, or one whose lifting is not asked for.
    """
    networks: dict[Strategy, Weights] = {}
    for path in arguments.direct:
        weights = read_weights(path)
        if weights.kind != "subspaces":
            raise InputError(f"{path} reads {weights.kind}, not subspaces; train one with --input subspaces")
        # Weights older than the choice of a lifting are of sub-hybrid lifting.
        lifting = next((name for name in STRATEGIES if name == weights.training.lifting), SUB_HYBRID)
        if lifting in networks or lifting not in arguments.lifting:
            cause = "another network is" if lifting in networks else "--lifting does not name it"
            raise InputError(f"{path} was trained on {lifting} lifting, and {cause}; give one network for each lifting")
        networks[lifting] = weights
    return networks


def untrained_photographs(arguments: Arguments) -> list[UntrainedPhotograph]:
    """Photographs with their features, evenly taken from those that the arguments name; blank ones are left out.

    `arguments` are those of the command: `photos`, `photographs`, `max_features` and `first_octave`.
    Raises InputError for fewer than two.
    """
    named = named_pictures(arguments.photos)
    if arguments.photographs and len(named) > arguments.photographs:
        named = [named[k] for k in np.linspace(0, len(named) - 1, arguments.photographs).round().astype(int)]
    options = SiftOptions(max_features=arguments.max_features, first_octave=arguments.first_octave)
    photographs = []
    for name, path in progress(named, "extracting"):
        try:
            features = extract_sift(read_picture(path), options)
        except InputError:  # a blank photograph shows nothing either way
            say(arguments, f"{name} has no features and is left out")
            continue
        photographs.append(UntrainedPhotograph(name=name, rgb=read_rgb(path), features=features))
    if len(photographs) < 2:
        raise InputError("the study needs two photographs with features or more: each is seen beside others; give more")
    return photographs


def require_other_photographs(photographs: Sequence[UntrainedPhotograph], *books: Codebook) -> None:
    """Raise InputError if one of the photographs made one of the codebooks."""
    for book in books:
        known = sum(item.features.image_digest[:8].hex() in book.provenance.image_digests for item in photographs)
        if known:
            raise InputError(
                f"{known} of these photographs made the codebook {book.digest[:12]}, whose attacks would know them; build "
                "books of others with `veil codebook build`"
            )


def _draw(
    arguments: EvaluateInversion,
    photographs: Sequence[UntrainedPhotograph],
    pictures: Sequence[Inverted],
    table: Sequence[InversionRow],
    shown_m: int,
) -> None:
    """Write the figures that the arguments ask for."""
    if arguments.figure:
        draw_similarity(arguments.figure, table, title=f"{len(photographs)} photographs that nothing was trained on")
        report(arguments, arguments.figure, "the figure")
    if arguments.reconstructions:
        chosen = [
            photographs[k]
            for k in np.linspace(0, len(photographs) - 1, min(arguments.shown, len(photographs))).round().astype(int)
        ]
        originals = {item.name: item.frame.crop(item.rgb) for item in chosen}
        title = f"reconstructed at m = {shown_m}, with SSIM"
        draw_inversions(arguments.reconstructions, originals, pictures, m=shown_m, title=title)
        report(arguments, arguments.reconstructions, "the pictures")


def inversion_table(rows: Sequence[InversionRow]) -> Table:
    """The table of mean similarities to the photographs."""
    return Table(
        columns=[
            *names("lifting", "from"),
            *numbers("m", "distance", "decided, %", "MAE", "SSIM", "95 % interval", "PSNR, dB"),
        ],
        rows=[
            (
                row.lifting,
                row.attack,
                str(row.m),
                fixed(row.distance, 3),
                percent(row.decided),
                fixed(row.mae, 3),
                fixed(row.ssim, 3),
                f"{row.interval[0]:.3f} to {row.interval[1]:.3f}",
                fixed(row.psnr, 2),
            )
            for row in rows
        ],
        labels=3,
    )


def gap_table(gaps: Sequence[Gap]) -> Table:
    """The table of differences between neighbors in the order of attacks."""
    return Table(
        columns=[*names("lifting", "from", "less"), *numbers("m", "SSIM", "95 % interval", "above 0, %")],
        rows=[
            (
                gap.lifting,
                gap.better,
                gap.worse,
                str(gap.m),
                f"{gap.mean:+.4f}",
                f"{gap.interval[0]:+.4f} to {gap.interval[1]:+.4f}",
                percent(gap.wins),
            )
            for gap in gaps
        ],
        labels=4,
    )

"""`veil evaluate homographies`: mean matching accuracy of every lifting, or of several descriptors in several forms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veil.cli.common import (
    Bar,
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
from veil.cli.records import add_record_command, json_file, option, positional
from veil.device.descriptor_books import DescriptorBooks
from veil.errors import InputError
from veil.extraction import Extractor, extract
from veil.features import Features
from veil.files.atomic import write_text
from veil.files.photographs.pictures import read_picture
from veil.randomness import seeded
from veil.report.tables import Name, Number, Table, fixed, names, numbers, percent
from veil_lab.cli.evaluate.descriptors import (
    EPSILON,
    AskedDescriptors,
    Descriptors,
    M,
    all_books,
    extraction_options,
    usable,
)
from veil_lab.files.homographies import SequenceFiles, find_sequences
from veil_lab.report.curves import draw_accuracy, draw_descriptors
from veil_lab.studies.matching.equal_numbers import with_equal_numbers
from veil_lab.studies.matching.homographies import (
    ImageSequence,
    MatchingRow,
    default_cases,
    evaluate,
    form_cases,
)

EXAMPLES = """\
  veil evaluate homographies hpatches/ --json mma.json --figure mma.png
  veil evaluate homographies hpatches/ --dims 2 4 --s2s-dims 2 --max-features 1000
  veil evaluate homographies hpatches/ --descriptor sift hardtfeat aliked xfeat --decoys-from photos/
"""
# What the compared forms are called in the table, by profile; and what the first image of a pair is seen as, by distance.
FORMS = {"raw": "raw", "hardened": "subspaces", "words": "words"}
AGAINST = {"point": "raw", "p2s": "raw", "p2w": "raw", "s2s": "subspaces", "w2w": "words"}


@dataclass(frozen=True, kw_only=True)
class EvaluateHomographies(AskedDescriptors):
    """Mean matching accuracy of mutual nearest neighbors at 1..10 px, every lifting and dimension, raw beside it.
    With --descriptor descriptors are compared with equal numbers of features in each image: raw, in hardened subspaces
    and in words, each against a raw image and against its like. One that cannot be extracted here is named.
    """

    folder: Path = positional("sequences NAME/1.jpg ... and NAME/H_1_2 ...")
    liftings: bool = option("with --descriptor: every lifting in place of the forms", default=False)
    dims: tuple[int, ...] = option("dimensions m for p2s, a point against a subspace (default 2 4 8 16)", default=(2, 4, 8, 16))
    s2s_dims: tuple[int, ...] = option("dimensions m for s2s, two subspaces (default 2 4 8)", default=(2, 4, 8))
    epsilon: float = option(f"epsilon of each feature in words that are compared (default %(default)g, m {M})", default=EPSILON)
    max_features: int = option("features per image at most (default %(default)s)", default=2048, parse=at_least(1))
    workers: int = option("image pairs at a time that are matched (default 2)", default=2, parse=at_least(1))
    figure: Path | None = option("draw the curves (.png or .svg)", parse=picture, metavar="FILE")
    calibrate: Path | None = option(
        "write the best ratio of each case (JSON), which the automatic ratio test reads", metavar="FILE"
    )
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate homographies` to the subparsers `protocols`."""
    summary = "mean matching accuracy on HPatches-like sequences"
    add_record_command(protocols, "homographies", summary, EXAMPLES, EvaluateHomographies, _homographies)


def _homographies(arguments: EvaluateHomographies) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    liftings = arguments.liftings or not arguments.descriptor
    if liftings and arguments.figure and len(arguments.descriptor or ()) > 1:
        raise InputError("a figure of liftings is of one descriptor; name one, or leave out --liftings")
    files = find_sequences(arguments.folder)
    descriptors = usable(arguments.descriptor or ["sift"])
    books = all_books(arguments, descriptors.networks)
    rows: list[MatchingRow] = []
    for name, sequences in _sequences(files, descriptors, arguments).items():
        books[name].require_others(item.image_digest for sequence in sequences for item in sequence.features)
        rows += _matched(name, sequences, books[name], arguments, liftings=liftings)
    records = [row.as_json() for row in rows]
    write_json(arguments.json, {"rows": records, "left_out": descriptors.as_json()})
    if str(arguments.json) != "-":
        _say_tables(arguments, records, liftings=liftings)
        for line in descriptors.lines():
            say(arguments, line)
    if arguments.figure:
        _draw(arguments.figure, records, sequences=len(files), liftings=liftings)
        report(arguments, arguments.figure, "the figure")
    if arguments.calibrate:
        _write_ratios(arguments.calibrate, rows)
        report(arguments, arguments.calibrate, "calibrated ratios")
    return 0


def _sequences(
    files: Sequence[SequenceFiles], descriptors: Descriptors, arguments: EvaluateHomographies
) -> dict[Extractor, list[ImageSequence]]:
    """Features and homographies of all sequences for each descriptor, of several ones equal numbers in each image."""
    features: dict[str, dict[str, Features]] = {}
    for name, network in descriptors.networks.items():
        options = extraction_options(name, arguments.max_features)
        paths = [path for item in files for path in item.pictures]
        shown = progress(paths, f"{name}: extracting")
        features[name] = {str(path): extract(read_picture(path), name, options, network) for path in shown}
    equal = with_equal_numbers(features)
    return {
        name: [
            ImageSequence(
                name=item.name,
                features=tuple(equal[name][str(path)] for path in item.pictures),
                homographies=item.homographies,
            )
            for item in files
        ]
        for name in descriptors.networks
    }


def _matched(
    name: str, sequences: Sequence[ImageSequence], books: DescriptorBooks, arguments: EvaluateHomographies, *, liftings: bool
) -> list[MatchingRow]:
    """Rows of one descriptor: of every lifting, or of the compared forms with the pool as releases use it."""
    quantized = sequences[0].features[0].is_quantized
    if liftings:
        cases = default_cases(arguments.dims, arguments.s2s_dims, quantized=quantized)
    else:
        books = books.for_images_of(arguments.max_features)
        cases = form_cases(quantized=quantized, codebook=books.codebook, epsilon=arguments.epsilon, m=M)
    with Bar(f"{name}: matching") as bar:
        return evaluate(
            sequences,
            cases,
            codebook=books.codebook,
            decoys=books.decoys,
            randomness=seeded("homographies"),
            workers=arguments.workers,
            progress=bar,
        )


def matching_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """The table of liftings of one descriptor."""
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


def descriptor_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """The table of descriptors in every form."""
    limits = ("1", "3", "5")
    return Table(
        columns=[
            *names("descriptor", "form", "against"),
            *numbers("features", "matches", "right", *(f"MMA {limit} px, %" for limit in limits)),
        ],
        rows=[
            (
                row["descriptor"],
                FORMS[row["profile"]],
                AGAINST[row["distance"]],
                fixed(row["features"], 0),
                fixed(row["matches"], 1),
                fixed(row["right_matches"], 1),
                *(percent(row["mma"][limit]) for limit in limits),
            )
            for row in records
        ],
        labels=3,
    )


def _say_tables(arguments: EvaluateHomographies, records: Sequence[Mapping[str, Any]], *, liftings: bool) -> None:
    """Print a table of liftings for each descriptor, or one of descriptors."""
    if not liftings:
        say_table(arguments, descriptor_table(records))
        explain(arguments, "right: matches within 3 px")
    kinds = dict.fromkeys(row["descriptor"] for row in records) if liftings else {}
    for name in kinds:
        if len(kinds) > 1:
            say(arguments, name)
        say_table(arguments, matching_table([row for row in records if row["descriptor"] == name]))
    explain(arguments, "MMA: mean share of matches that are right within that number of pixels, over image pairs")


def _draw(path: Path, records: Sequence[dict], *, sequences: int, liftings: bool) -> None:
    """Draw the curves of liftings, or of descriptors."""
    title = f"{sequences} sequences, {records[0]['pairs']} pairs"
    if liftings:
        name = records[0]["descriptor"]
        draw_accuracy(path, records, title=f"{'SIFT' if name == 'sift' else name}, {title}")
    else:
        draw_descriptors(path, records, title=f"{title}, {records[0]['features']:.0f} features an image")


def _write_ratios(path: Path, rows: Sequence[MatchingRow]) -> None:
    """Write the table of ratios that `--ratio auto` reads; of the paper's liftings it holds the recommended sub-hybrid one."""
    table = {}
    for row in rows:
        profile = row.case.profile
        ratio = row.ratio()
        if ratio is None or (profile is not None and profile.name == "paper" and profile.strategy != "sub-hybrid"):
            continue
        if profile is None and row.case.sent is not None:
            continue  # words have no distances
        name, m = (profile.name, profile.m) if profile else ("raw", 0)
        table[f"{row.descriptor}-L2/{name}/{m}/{row.case.distance}"] = round(ratio, 3)
    write_text(path, json.dumps({"right_within_px": 3, "max_ratio": table}, indent=2) + "\n")

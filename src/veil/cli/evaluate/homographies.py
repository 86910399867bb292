"""`veil evaluate homographies`: mean matching accuracy of every lifting, or of several descriptors in several forms."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from veil.cli.common import Bar, add_command, add_json, at_least, picture, progress, quiet_colmap, report, say, write_json
from veil.cli.evaluate.descriptors import (
    EPSILON,
    Descriptors,
    M,
    add_descriptors,
    all_books,
    extraction_options,
    usable,
)
from veil.errors import InputError
from veil.extraction import Extractor, extract
from veil.features import Features
from veil.files.atomic import write_text
from veil.files.homographies import SequenceFiles, find_sequences
from veil.files.pictures import read_picture
from veil.pipelines.descriptor_books import DescriptorBooks
from veil.randomness import seeded
from veil.report.curves import draw_accuracy, draw_descriptors
from veil.studies.matching.equal_numbers import with_equal_numbers
from veil.studies.matching.homographies import (
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


def register(protocols: Any) -> None:
    """Add `veil evaluate homographies` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "homographies",
        "mean matching accuracy on HPatches-like sequences",
        "Mean matching accuracy of mutual nearest neighbors at 1..10 px, every lifting and dimension, raw beside it.\n"
        "With --descriptor descriptors are compared with equal numbers of features in each image: raw, in hardened subspaces\n"
        "and in words, each against a raw image and against its like. One that cannot be extracted here is named.",
        EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="sequences NAME/1.jpg ... and NAME/H_1_2 ...")
    add_descriptors(parser, "to compare in every form (default: every lifting of SIFT)")
    parser.add_argument("--liftings", action="store_true", help="with --descriptor: every lifting in place of the forms")
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 4, 8, 16], help="m for p2s (default 2 4 8 16)")
    parser.add_argument("--s2s-dims", type=int, nargs="+", default=[2, 4, 8], help="m for s2s (default 2 4 8)")
    parser.add_argument(
        "--epsilon", type=float, default=EPSILON, help=f"of each feature in compared words (default %(default)g, m {M})"
    )
    parser.add_argument("--max-features", type=at_least(1), default=2048, help="per image (default %(default)s)")
    parser.add_argument("--study", default="homographies", help="name that seeds the study (default %(default)s)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="image pairs at a time (default 2)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw the curves (.png or .svg)")
    parser.add_argument("--calibrate", type=Path, metavar="FILE", help="write the best ratio of each case (JSON)")
    add_json(parser)
    parser.set_defaults(run=_homographies)


def _homographies(arguments: argparse.Namespace) -> int:
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
        for line in [*(_liftings_table(records) if liftings else _descriptors_table(records)), *descriptors.lines()]:
            say(arguments, line)
    if arguments.figure:
        _draw(arguments.figure, records, sequences=len(files), liftings=liftings)
        report(arguments, arguments.figure, "the figure")
    if arguments.calibrate:
        _write_ratios(arguments.calibrate, rows)
        report(arguments, arguments.calibrate, "calibrated ratios")
    return 0


def _sequences(
    files: Sequence[SequenceFiles], descriptors: Descriptors, arguments: argparse.Namespace
) -> dict[Extractor, list[ImageSequence]]:
    """Features and homographies of all sequences for each descriptor, of several ones equal numbers in each image."""
    found: dict[str, dict[str, Features]] = {}
    for name, network in descriptors.networks.items():
        options = extraction_options(name, arguments.max_features)
        paths = [path for item in files for path in item.pictures]
        shown = progress(paths, f"{name}: extracting")
        found[name] = {str(path): extract(read_picture(path), name, options, network) for path in shown}
    equal = with_equal_numbers(found)
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
    name: str, sequences: Sequence[ImageSequence], books: DescriptorBooks, arguments: argparse.Namespace, *, liftings: bool
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
            randomness=seeded(arguments.study),
            workers=arguments.workers,
            progress=bar,
        )


def _liftings_table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of the printed table of liftings, of each descriptor after its name where there are several."""
    several = len({row["descriptor"] for row in records}) > 1
    for name in dict.fromkeys(row["descriptor"] for row in records):
        if several:
            yield name
        yield f"{'profile':9} {'lifting':16} {'m':>3} {'dist':5} {'matches':>8}  MMA@1  MMA@3  MMA@5  MMA@10"
        for row in records:
            if row["descriptor"] == name:
                text = f"{row['profile']:9} {row['lifting']:16} {row['m']:3d} {row['distance']:5} {row['matches']:8.1f}"
                yield f"{text}  {_shares(row)}"


def _descriptors_table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of the printed table of descriptors; `right` counts matches within 3 px."""
    yield f"{'descriptor':13} {'form':9} {'against':9} {'features':>8} {'matches':>7} {'right':>6}  MMA@1  MMA@3  MMA@5"
    for row in records:
        text = f"{row['descriptor']:13} {FORMS[row['profile']]:9} {AGAINST[row['distance']]:9} {row['features']:8.0f}"
        yield f"{text} {row['matches']:7.1f} {row['right_matches']:6.1f}  {_shares(row, ('1', '3', '5'))}"


def _shares(row: Mapping[str, Any], thresholds: Sequence[str] = ("1", "3", "5", "10")) -> str:
    """The columns of mean matching accuracy, in percent."""
    return "  ".join(f"{100 * row['mma'][t]:5.1f}" for t in thresholds)


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

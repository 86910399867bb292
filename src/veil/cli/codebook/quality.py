"""`veil codebook quality`, and the same report at the end of `veil codebook build`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veil.cli.codebook.collect import Collection, Wanted, collect
from veil.cli.common import (
    Bar,
    add_command,
    add_json,
    at_least,
    explain,
    picture,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.codebooks.quantization import MEASURED, measure
from veil.codebooks.sampling import WordTraining
from veil.errors import InputError
from veil.extraction import EXTRACTORS
from veil.files.codebooks import read_codebook
from veil.files.features import holds_features
from veil.report.quantization import draw_quantization
from veil.report.tables import Name, Table, fixed, numbers

EXAMPLES = """\
  veil codebook quality book.npz others/ --figure quality.png     photographs that the book was not made from
  veil codebook quality book.npz features.h5 --json quality.json
"""


def register(actions) -> None:  # type: ignore[no-untyped-def]
    """Add `veil codebook quality` to the group's actions."""
    parser = add_command(
        actions,
        "quality",
        "how far descriptors lie from its words",
        "Measure the distance of photographs' descriptors to their nearest word, beside the distances to the nearest\n"
        "other descriptor and to one at random, and how evenly the words are used.",
        EXAMPLES,
    )
    parser.add_argument("codebook", type=Path, help="a file that `veil codebook build` wrote")
    parser.add_argument("photos", type=Path, nargs="+", help="photographs, folders of them, or features of `veil extract`")
    parser.add_argument(
        "--sample", type=at_least(2), default=MEASURED, help="descriptors to measure, drawn at random (default %(default)s)"
    )
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of the sample (default %(default)s)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw the distances (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_quality)


def _quality(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    book = read_codebook(arguments.codebook)
    if book.descriptor not in EXTRACTORS and not all(map(holds_features, arguments.photos)):
        raise InputError(f"veil cannot extract {book.descriptor}; give features that `veil extract --imported` wrote")
    taken = WordTraining(arguments.sample, seed=arguments.seed)
    wanted = Wanted(descriptor=book.descriptor, normalization=book.normalization)
    collection = collect(arguments.photos, wanted, Collection(training=taken, held=WordTraining(2, seed=0)))
    sample = taken.sample()
    own = set(book.provenance.image_digests)
    with Bar("measuring") as bar:
        found = measure(
            book,
            sample,
            pool=sample,
            in_pool=True,
            images=len(taken.image_digests),
            book_images=sum(digest in own for digest in taken.image_digests),
            seed=arguments.seed,
            progress=bar,
        )
    record = found.as_json()
    write_json(arguments.json, record)
    say_quality(arguments, record)
    if collection.skipped:
        say(arguments, f"{collection.skipped} photographs had no features and were left out")
    if arguments.figure:
        whose = f"{found.images} photographs" + (f", {found.book_images} of them the book's own" if found.book_images else "")
        draw_quantization(arguments.figure, found, title=f"{len(book):,} words, {book.raw_space}; {whose}")
        report(arguments, arguments.figure, "the figure")
    return 0


def spread_table(record: Mapping[str, Any]) -> Table:
    """The table of distances: to the nearest word, to the nearest other descriptor, and between random ones."""
    spreads = {
        "to_nearest_word": "to the nearest word",
        "to_nearest_other": f"to the nearest other of {record['pool']} descriptors",
        "to_random": "between two random descriptors",
    }
    return Table(
        columns=[Name("distance of unit vectors", least=42), *numbers("mean", "5 %", "median", "95 %")],
        rows=[
            (name, *(fixed(record[key][part], 3) for part in ("mean", "p5", "median", "p95"))) for key, name in spreads.items()
        ],
    )


def say_quality(arguments: argparse.Namespace, record: dict) -> None:
    """Print a record of `veil codebook quality` for people."""
    images, own, words = record["images"], record["book_images"], record["words"]
    say(arguments, f"\n{record['descriptors']} descriptors of {images} photographs, and the {words} words")
    say_table(arguments, spread_table(record))
    explain(
        arguments,
        f"words that none of them uses: {record['unused_words']} (even use would leave {record['unused_words_if_even']:.0f}); "
        f"entropy of use {record['entropy_bits']:.2f} bits (even use {record['entropy_bits_if_even']:.2f}), "
        f"log2 of the words {record['log2_words']:.2f}",
    )
    if own:
        say(
            arguments,
            f"note: {'all' if own == images else own} of these photographs are among those that the book was made from, "
            "which makes the distance to the nearest word too small",
        )

"""`veil lab quality`: how far descriptors lie from the words of a codebook, and how evenly the words are used.

With dimensions of subspaces, also how far two assumptions of attacks hold for words as decoys ([P23], Tables S2 and S3).

A file of its own: it measures codebooks; `lab` only lists commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from veil.cli.codebook.collect import Collection, Wanted, collect
from veil.cli.codebook.quality import say_quality
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
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.codebooks.codebook import Codebook
from veil.codebooks.kmeans import Descriptors
from veil.codebooks.quantization import MEASURED, measure
from veil.codebooks.sampling import WordTraining
from veil.errors import InputError
from veil.extraction import EXTRACTORS
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.features import holds_features
from veil.report.quantization import draw_quantization
from veil.report.tables import Table, numbers, percent
from veil_lab.studies.attacks.assumptions import LIFTED, Assumptions, assumptions, require_dimension, word_counts

EXAMPLES = """\
  veil lab quality book.npz others/ --figure quality.png     photographs that the book was not made from
  veil lab quality book.npz features.h5 --json quality.json
  veil lab quality decoys features.h5 --m 2 4 8 16           and what subspaces with the bundled decoys give an attacker
"""
BUNDLED: Mapping[str, Callable[[], Codebook]] = {"bundled": bundled_codebook, "decoys": bundled_decoys}


@dataclass(frozen=True, kw_only=True)
class MeasureCodebook(Record):
    """Measure the distance of photographs' descriptors to their nearest word, beside the distances to the nearest
    other descriptor and to one at random, and how evenly the words are used. With --m, also how far two assumptions
    of attacks hold for subspaces whose decoys are these words, a quarter or a sixteenth of them. Words next to a
    subspace lie near its descriptor or one decoy. Other subspaces with the same decoys pass far from the descriptor.
    """

    codebook: Path = positional("a file that `veil codebook build` wrote, or 'bundled', or 'decoys' for the bundled pool")
    photos: tuple[Path, ...] = positional("photographs, folders of them, or features of `veil extract`")
    seed: int = option("seed of the sample (default %(default)s)", default=0, parse=at_least(0))
    m: tuple[int, ...] = option("dimensions of subspaces, even numbers (default none)", default=(), parse=at_least(2))
    figure: Path | None = option("draw the distances (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(actions: Commands) -> None:
    """Add `veil lab quality` to the subparsers `actions`."""
    summary = "how far descriptors lie from the words of a codebook"
    add_record_command(actions, "quality", summary, EXAMPLES, MeasureCodebook, _quality)


def _quality(arguments: MeasureCodebook) -> int:
    quiet_colmap()
    named = BUNDLED.get(str(arguments.codebook))
    book = read_codebook(arguments.codebook) if named is None else named()
    if book.descriptor not in EXTRACTORS and not all(map(holds_features, arguments.photos)):
        raise InputError(f"veil cannot extract {book.descriptor}; give features that `veil extract --imported` wrote")
    for m in arguments.m:
        require_dimension(m, book.dim)
    taken = WordTraining(MEASURED, seed=arguments.seed)
    wanted = Wanted(descriptor=book.descriptor, normalization=book.normalization)
    collection = collect(arguments.photos, wanted, Collection(training=taken, held=WordTraining(2, seed=0)))
    sample = taken.sample()
    own = set(book.provenance.image_digests)
    with Bar("measuring") as bar:
        quality = measure(
            book,
            sample,
            pool=sample,
            in_pool=True,
            images=len(taken.image_digests),
            book_images=sum(digest in own for digest in taken.image_digests),
            seed=arguments.seed,
            progress=bar,
        )
    rows = _assumptions(book, sample, arguments)
    record = quality.as_json()
    write_json(arguments.json, {**record, "assumptions": [row.as_json() for row in rows]})
    say_quality(arguments, record)
    if rows:
        say(
            arguments,
            f"\n{rows[0].subspaces} of {rows[0].lifted} descriptors in subspaces, half of whose directions are words",
        )
        say_table(arguments, assumption_table(rows))
        explain(
            arguments,
            "next N: of the N words next to a subspace, those near its descriptor or one decoy; judged: subspaces all of "
            "whose decoys others share; apart: of these, those that others pass farther from the descriptor than from decoys",
        )
    if collection.skipped:
        say(arguments, f"{collection.skipped} photographs had no features and were left out")
    if arguments.figure:
        whose = f"{quality.images} photographs" + (
            f", {quality.book_images} of them the book's own" if quality.book_images else ""
        )
        draw_quantization(arguments.figure, quality, title=f"{len(book):,} words, {book.raw_space}; {whose}")
        report(arguments, arguments.figure, "the figure")
    return 0


def assumption_table(rows: Sequence[Assumptions]) -> Table:
    """The table of the assumptions by dimension and number of words, as [P23], Tables S2 and S3."""
    lists = list(rows[0].matched)
    return Table(
        columns=numbers("m", "K", *(f"next {count}, %" for count in lists), "judged", "apart", "apart, %"),
        rows=[
            (
                str(row.m),
                f"{row.words:,}",
                *(percent(row.matched[count], 2) for count in lists),
                str(row.judged),
                str(row.apart),
                percent(row.apart / row.judged if row.judged else None, 2),
            )
            for row in rows
        ],
    )


def _assumptions(book: Codebook, sample: Descriptors, arguments: MeasureCodebook) -> list[Assumptions]:
    """The assumptions at each dimension that was asked for, and each number of words."""
    asked = [(m, count) for m in arguments.m for count in word_counts(len(book))]
    return [
        assumptions(sample[:LIFTED], replace(book, stored=book.stored[:count], slices=1), m=m, seed=arguments.seed)
        for m, count in progress(asked, "lifting to subspaces")
    ]

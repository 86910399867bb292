"""`veil lab quality`: how far descriptors lie from the words of a codebook, and how evenly the words are used.

A file of its own: it measures codebooks; `lab` only lists commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veil.cli.codebook.collect import Collection, Wanted, collect
from veil.cli.codebook.quality import say_quality
from veil.cli.common import Bar, Commands, at_least, picture, quiet_colmap, report, say, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.codebooks.quantization import MEASURED, measure
from veil.codebooks.sampling import WordTraining
from veil.errors import InputError
from veil.extraction import EXTRACTORS
from veil.files.codebooks import read_codebook
from veil.files.features import holds_features
from veil.report.quantization import draw_quantization

EXAMPLES = """\
  veil lab quality book.npz others/ --figure quality.png     photographs that the book was not made from
  veil lab quality book.npz features.h5 --json quality.json
"""


@dataclass(frozen=True, kw_only=True)
class MeasureCodebook(Record):
    """Measure the distance of photographs' descriptors to their nearest word, beside the distances to the nearest
    other descriptor and to one at random, and how evenly the words are used.
    """

    codebook: Path = positional("a file that `veil codebook build` wrote")
    photos: tuple[Path, ...] = positional("photographs, folders of them, or features of `veil extract`")
    seed: int = option("seed of the sample (default %(default)s)", default=0, parse=at_least(0))
    figure: Path | None = option("draw the distances (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(actions: Commands) -> None:
    """Add `veil lab quality` to the subparsers `actions`."""
    summary = "how far descriptors lie from the words of a codebook"
    add_record_command(actions, "quality", summary, EXAMPLES, MeasureCodebook, _quality)


def _quality(arguments: MeasureCodebook) -> int:
    quiet_colmap()
    book = read_codebook(arguments.codebook)
    if book.descriptor not in EXTRACTORS and not all(map(holds_features, arguments.photos)):
        raise InputError(f"veil cannot extract {book.descriptor}; give features that `veil extract --imported` wrote")
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
    record = quality.as_json()
    write_json(arguments.json, record)
    say_quality(arguments, record)
    if collection.skipped:
        say(arguments, f"{collection.skipped} photographs had no features and were left out")
    if arguments.figure:
        whose = f"{quality.images} photographs" + (
            f", {quality.book_images} of them the book's own" if quality.book_images else ""
        )
        draw_quantization(arguments.figure, quality, title=f"{len(book):,} words, {book.raw_space}; {whose}")
        report(arguments, arguments.figure, "the figure")
    return 0

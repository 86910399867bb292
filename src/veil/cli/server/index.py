"""`veil index`: list a map's points under the words of a dictionary, once, so that queries need not look at every image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypedDict

from veil.cli.common import Arguments, Bar, at_least, report, say, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.cli.remedies import advised
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, SpaceError
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.maps.indexes import vocabulary_folder, write_point_index
from veil.forms import Subsets
from veil.matching.point_index import PointIndex
from veil.places.held_map import INDEXED_FROM, Map, make_point_index
from veil.scene import Scene

BUNDLED = "bundled"
EXAMPLES = """\
  veil index map/                               with the bundled dictionary
  veil index map/ --dictionary dictionary.npz   with the one that queries are released with
  veil index map/ --for distances               a private map, or queries in subspaces alone
"""


@dataclass(frozen=True, kw_only=True)
class IndexMap(Record):
    """Keep lists of a map's points by the words of a dictionary in the map's folder, so that `veil localize` need not look
    at every image. For queries in words, each descriptor of a public map is entered under several of its nearest words,
    as the map's own tracks show how far another view of a point falls. For queries by distance, each point is entered
    under the word nearest to all its views; `veil map` makes this index of maps of 200 images and more.
    """

    map: Path = positional("a folder that `veil map` wrote, not from words")
    queries: Literal["words", "distances", "both"] | None = option(
        f"queries to index the map for (default: words where it is public, distances from {INDEXED_FROM} images on)",
        name="--for",
    )
    dictionary: str = option("dictionary of the queries in words (default: the bundled one)", default=BUNDLED, metavar="FILE")
    threads: int = option("threads that index points (default 2)", default=2, parse=at_least(1))
    json: Path | None = json_file()


class _IndexesJson(TypedDict, total=False):
    dictionary: str
    words: int
    entries: int
    listed_points: int


class IndexJson(_IndexesJson):
    """Indexes of a map: for queries in words, by distance, or both."""

    points: int
    images: int


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil index` to the parser's commands."""
    add_record_command(commands, "index", "a map + a dictionary -> indexes for queries", EXAMPLES, IndexMap, _index)


def _index(arguments: IndexMap) -> int:
    where = Map.read(arguments.map)
    scene = where.scene
    if isinstance(where.form, Subsets):
        raise InputError(f"{arguments.map} is a map of words, which needs no index; localize against it directly")
    asked = arguments.queries or where.usual_queries
    if asked != "distances" and not where.is_public:
        raise InputError(f"{arguments.map} is a private map, which serves no queries in words; index it with --for distances")
    book = read_dictionary(arguments.dictionary, scene.space.descriptor)
    facts: IndexJson = {"points": len(scene.points), "images": len(scene.images)}
    if asked != "distances":
        with Bar("indexing words") as bar:
            made = where.index("words", dictionary=book, progress=bar)
        folder = vocabulary_folder(arguments.map, book.digest)
        facts = {**facts, "dictionary": book.digest, "words": len(book), "entries": made["words"]}
        say(arguments, f"{facts['entries']} entries of {facts['points']} points under {facts['words']} words")
        report(arguments, folder, "the index for queries in words")
    if asked != "words":
        facts["listed_points"] = _index_points(arguments, where, book, threads=arguments.threads)
    write_json(arguments.json, facts)
    return 0


def _index_points(
    arguments: Arguments,
    where: Map,
    book: Codebook,
    *,
    threads: int,
    shown: Path | None = None,
    known: PointIndex | None = None,
) -> int:
    """Index a map for queries by distance, write the index into the map's folder, and return how many points it lists.

    `shown` is the folder that is told of in place of the map's, which moves there; `known` is the index of the map that this
    one grew from.
    """
    with Bar("indexing points") as bar:
        index = make_point_index(where, book, known=known, threads=threads, progress=bar)
    assert where.folder is not None
    folder = write_point_index(where.folder, index)
    say(arguments, f"{len(index.entries)} of {index.points} points under {len(index.words)} words")
    place = folder if shown is None else shown / folder.relative_to(where.folder)
    report(arguments, place, "the index for queries by distance")
    return len(index.entries)


def index_large(
    arguments: Arguments, folder: Path, scene: Scene, *, threads: int, shown: Path, known: PointIndex | None = None
) -> None:
    """Index a new map in `folder`, which moves to `shown`, for queries by distance if it has enough images that it pays.

    `known` is the index of the map that it grew from, if it did.
    """
    where = Map(scene=scene, folder=folder)
    if len(scene.images) < INDEXED_FROM or isinstance(where.form, Subsets):
        return
    try:
        _index_points(arguments, where, bundled_codebook(scene.space.descriptor), threads=threads, shown=shown, known=known)
    except SpaceError as error:
        say(
            arguments,
            f"no index for queries by distance, which match with all images: {advised(error)}; see `veil index --dictionary`",
        )


@cache
def read_dictionary(path: str, descriptor: str = "sift") -> Codebook:
    """The codebook in the file `path`, or the bundled one of a descriptor for the path "bundled"."""
    return bundled_codebook(descriptor) if path == BUNDLED else read_codebook(Path(path))

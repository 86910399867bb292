"""`veil index`: list a map's points under the words of a dictionary, once, for queries in words."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

from veil.cli.common import Bar, add_command, add_json, at_least, report, say, write_json
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.maps import read_map
from veil.files.vocabularies import write_vocabulary
from veil.forms import Subsets
from veil.matching.inverted_index import NEAREST, index_map

BUNDLED = "bundled"
EXAMPLES = """\
  veil index map/                               with the bundled dictionary
  veil index map/ --dictionary dictionary.npz   with the one that queries are released with
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil index` to the parser's commands."""
    parser = add_command(
        commands,
        "index",
        "a public map + a dictionary -> an index for queries in words",
        "Find the words of every descriptor of a map and keep lists of the points of each word in the map's folder, so that\n"
        "`veil localize` matches queries in words through them. Each descriptor is entered under several\n"
        "of its nearest words, as the map's own tracks show how far another view of a point falls.",
        EXAMPLES,
    )
    parser.add_argument("map", type=Path, help="a folder that `veil map` wrote from raw features")
    parser.add_argument("--dictionary", default=BUNDLED, metavar="FILE", help="a codebook (default: the bundled one)")
    parser.add_argument(
        "--nearest", type=at_least(1), default=NEAREST, help="words that a descriptor is entered under (default %(default)s)"
    )
    add_json(parser)
    parser.set_defaults(run=_index)


def _index(arguments: argparse.Namespace) -> int:
    scene = read_map(arguments.map)
    if isinstance(next(iter(scene.images.values())).form, Subsets):
        raise InputError(f"{arguments.map} is a map of words, which needs no index; localize against it directly")
    book = read_dictionary(arguments.dictionary)
    with Bar("indexing") as bar:
        vocabulary = index_map(scene, book, nearest=arguments.nearest, progress=bar)
    folder = write_vocabulary(arguments.map, vocabulary)
    facts = {
        "dictionary": vocabulary.dictionary,
        "words": vocabulary.dictionary_size,
        "entries": len(vocabulary.point_rows),
        "points": len(scene.points),
        "images": len(scene.images),
    }
    write_json(arguments.json, facts)
    say(arguments, f"{facts['entries']} entries of {facts['points']} points under {facts['words']} words")
    report(arguments, folder, "the index")
    return 0


@cache
def read_dictionary(path: str) -> Codebook:
    """The codebook in the file `path`, or the bundled one for the path "bundled"."""
    return bundled_codebook() if path == BUNDLED else read_codebook(Path(path))

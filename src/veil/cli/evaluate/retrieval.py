"""`veil evaluate retrieval`: recall of similar images from subspaces, beside raw descriptors of the same features."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from veil.cli.common import (
    Bar,
    add_command,
    add_json,
    at_least,
    keep_old_name,
    progress,
    quiet_colmap,
    say_table,
    write_json,
)
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.pictures import find_pictures, read_picture
from veil.pipelines.linked_images import similarities_by_matches
from veil.pipelines.pair_choice import similarities
from veil.randomness import seeded
from veil.report.tables import Table, names, numbers, percent
from veil.studies.matching.retrieval_recall import RETRIEVED, RecallRow, overlapping, recall_rows, released_alike

EXAMPLES = """\
  veil evaluate retrieval strecha/fountain-P11 fox --strangers photos/bsds500 --decoys pool.npz
  veil evaluate retrieval lund_door --json recall.json
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate retrieval` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "retrieval",
        "similar images from subspaces, beside raw descriptors",
        "Put the photographs of all scenes and of strangers together, and ask each photograph of a scene for the images that\n"
        "look most like it: by the words of raw descriptors, by the hardened subspaces of the same features, and by what\n"
        "`veil map` matches of these by tracks. Right are photographs of its scene whose raw features match.",
        EXAMPLES,
    )
    parser.add_argument("scenes", type=Path, nargs="+", metavar="SCENE", help="folders of photographs, or with images/ of them")
    parser.add_argument("--strangers", type=Path, nargs="+", default=[], metavar="FOLDER", help="photographs of other places")
    parser.add_argument("--most-strangers", type=at_least(1), metavar="N", help="of each folder at most, evenly (default all)")
    parser.add_argument("--decoys", type=Path, metavar="FILE", help="a secret pool of decoys; default: the public one")
    parser.add_argument("--codebook", type=Path, metavar="FILE", help="words and PCA; default: the bundled one")
    parser.add_argument("--max-features", type=at_least(100), default=2000, help="of an extraction (default %(default)s)")
    parser.add_argument("--study", default="retrieval", help="name that seeds the study (default %(default)s)")
    parser.add_argument("--threads", type=at_least(1), default=2, help="of matching (default 2)")
    keep_old_name(parser, "--workers", "--threads")
    add_json(parser)
    parser.set_defaults(run=_retrieval)


def _retrieval(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    names = [path.resolve().name for path in arguments.scenes]
    if len(set(names)) < len(names):
        raise InputError("two scenes have one name; rename one of the folders")
    pictures = {name: _pictures(path) for name, path in zip(names, arguments.scenes, strict=True)}
    strangers = [path for folder in arguments.strangers for path in _some(find_pictures(folder), arguments.most_strangers)]
    options = SiftOptions(max_features=arguments.max_features)
    features: dict[str, Features] = {}
    scenes: dict[str, list[str]] = {}
    pairs: set[frozenset[str]] = set()
    for scene, paths in pictures.items():
        own = {
            f"{scene}/{path.name}": extract_sift(read_picture(path), options)
            for path in progress(paths, f"{scene}: extracting")
        }
        with Bar(f"{scene}: matching raw features") as bar:
            pairs |= overlapping(own, bar)
        scenes[scene] = sorted(own)
        features |= own
    for path in progress(strangers, "extracting strangers"):
        features[f"/{path.parent.name}/{path.name}"] = extract_sift(read_picture(path), options)
    features = {name: item for name, item in features.items() if len(item)}
    book = read_codebook(arguments.codebook) if arguments.codebook else bundled_codebook()
    decoys = read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys()
    with Bar("privatizing") as bar:
        forms = released_alike(features, codebook=book, decoys=decoys, randomness=seeded(arguments.study), progress=bar)
    with Bar("finding similar images") as bar:
        rows = recall_rows(forms, scenes, pairs, partial(similarities, codebook=book, threads=arguments.threads, progress=bar))
    by_matches = partial(similarities_by_matches, steps=Bar, codebook=book, workers=arguments.threads)
    rows += recall_rows({"tracks": forms["subspaces"]}, scenes, pairs, by_matches)
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    say_table(arguments, recall_table(rows))
    return 0


def _pictures(scene: Path) -> list[Path]:
    """The photographs of a scene. Raises InputError if there are fewer than two."""
    found = find_pictures(scene / "images" if (scene / "images").is_dir() else scene)
    if len(found) < 2:
        raise InputError(f"{scene} holds {len(found)} photographs; retrieval needs two or more")
    return found


def _some(paths: list[Path], most: int | None) -> list[Path]:
    return paths[:: -(-len(paths) // most)] if most else paths


def recall_table(rows: Sequence[RecallRow]) -> Table:
    """The table of the command: recall among the k most similar images, empty without queries."""
    return Table(
        columns=[*names("scene", "form"), *numbers("images", "queries", *(f"recall at {count}, %" for count in RETRIEVED))],
        rows=[
            (
                row.scene or "all",
                row.form,
                f"{row.images:,}",
                f"{row.queries:,}",
                *(percent(row.recall.get(count)) for count in RETRIEVED),
            )
            for row in rows
        ],
        labels=2,
    )

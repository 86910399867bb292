"""`veil evaluate retrieval`: recall of similar images from subspaces and words, beside raw descriptors of the same features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from veil.cli.common import (
    Bar,
    Commands,
    at_least,
    progress,
    quiet_colmap,
    say_table,
    write_json,
)
from veil.cli.records import add_record_command, json_file, option, positional
from veil.device.descriptor_books import DescriptorBooks
from veil.errors import InputError
from veil.extraction import Extractor, extract
from veil.features import Features
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.places.pairs.candidates import similarities
from veil.places.pairs.matching import similarities_by_matches
from veil.randomness import seeded
from veil.report.tables import Remark, Table, names, numbers, percent
from veil_lab.cli.evaluate.descriptors import AskedDescriptors, all_books, extraction_options, usable
from veil_lab.studies.matching.equal_numbers import with_equal_numbers
from veil_lab.studies.matching.retrieval_recall import (
    RETRIEVED,
    RecallRow,
    overlapping,
    recall_rows,
    released_alike,
    released_in_words,
)

SIFT: Extractor = "sift"
SENT = 1000  # features of an image in subspaces, at most
EXAMPLES = """\
  veil evaluate retrieval strecha/fountain-P11 fox --strangers photos/bsds500 --decoys pool.npz
  veil evaluate retrieval lund_door --json recall.json
  veil evaluate retrieval strecha/fountain-P11 fox --descriptor sift aliked xfeat --decoys-from photos/
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateRetrieval(AskedDescriptors):
    """Put the photographs of all scenes and of strangers together, and ask each photograph of a scene for the images that
    look most like it: by the words of raw descriptors, by the hardened subspaces of the same features, and by what
    `veil map` matches of these by tracks. Right are photographs of its scene whose raw features match. --descriptor: by
    raw descriptors, subspaces, and words of an epsilon, with equal numbers of features; right are then photographs that
    match by any of the descriptors.
    """

    scenes: tuple[Path, ...] = positional("folders of photographs, or with images/ of them", metavar="SCENE")
    strangers: tuple[Path, ...] = option("photographs of other places", default=(), metavar="FOLDER")
    most_strangers: int | None = option(
        "photographs of each folder of strangers at most, evenly taken (default all)", parse=at_least(1), metavar="N"
    )
    epsilon: float = option("epsilon of a feature in words (default %(default)g)", default=4.0, metavar="E")
    max_features: int = option("features per image at most (default %(default)s)", default=2000, parse=at_least(100))
    threads: int = option("threads of matching (default 2)", default=2, parse=at_least(1))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate retrieval` to the subparsers `protocols`."""
    summary = "similar images from subspaces and words, beside raw descriptors"
    add_record_command(protocols, "retrieval", summary, EXAMPLES, EvaluateRetrieval, _retrieval)


def _retrieval(arguments: EvaluateRetrieval) -> int:
    quiet_colmap()
    called = [path.resolve().name for path in arguments.scenes]
    if len(set(called)) < len(called):
        raise InputError("two scenes have one name; rename one of the folders")
    paths = {scene: _pictures(path) for scene, path in zip(called, arguments.scenes, strict=True)}
    strangers = [path for folder in arguments.strangers for path in _some(find_pictures(folder), arguments.most_strangers)]
    pictures = {f"{scene}/{path.name}": path for scene, features in paths.items() for path in features}
    pictures |= {f"/{path.parent.name}/{path.name}": path for path in strangers}
    named = usable(arguments.descriptor or [SIFT])
    books = all_books(arguments, named.networks)
    features: dict[str, dict[str, Features]] = {}
    for name, network in named.networks.items():
        features[name] = _features(arguments, name, network, pictures)
    if arguments.descriptor:
        features = with_equal_numbers(features)
        for kind, images in features.items():
            books[kind].require_others(item.image_digest for item in images.values())
    features = {kind: {image: item for image, item in images.items() if len(item)} for kind, images in features.items()}
    scenes = {
        scene: sorted(image for image in next(iter(features.values())) if image.startswith(f"{scene}/")) for scene in paths
    }
    pairs = _overlapping(features, scenes)
    rows: list[RecallRow] = []
    for kind, images in features.items():
        rows += _rows(arguments, kind, images, books[kind], scenes, pairs)
    write_json(arguments.json, {"rows": [row.as_json() for row in rows], "left_out": named.as_json()})
    say_table(arguments, recall_table(rows, named.left_out))
    return 0


def _features(arguments: EvaluateRetrieval, name: Extractor, network: Any, pictures: Mapping[str, Path]) -> dict[str, Features]:
    """Features of one descriptor, by name of the image."""
    options = extraction_options(name, arguments.max_features)
    return {
        image: extract(read_picture(path), name, options, network)
        for image, path in progress(list(pictures.items()), f"{name}: extracting")
    }


def _overlapping(features: Mapping[str, Mapping[str, Features]], scenes: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """Pairs of images of one scene whose raw features match by any descriptor."""
    pairs: set[frozenset[str]] = set()
    for name, images in features.items():
        for scene, own in scenes.items():
            with Bar(f"{scene}: matching raw features of {name}") as bar:
                pairs |= overlapping({image: images[image] for image in own}, bar)
    return pairs


def _rows(
    arguments: EvaluateRetrieval,
    name: str,
    images: Mapping[str, Features],
    books: DescriptorBooks,
    scenes: Mapping[str, list[str]],
    pairs: set[frozenset[str]],
) -> list[RecallRow]:
    """Rows of one descriptor: raw and subspaces, and with --descriptor words, else tracks."""
    book = books.codebook
    several = arguments.descriptor is not None
    decoys = books.for_images_of(min(SENT, max(map(len, images.values())))).decoys if several else books.decoys
    with Bar(f"{name}: privatizing") as bar:
        forms = released_alike(images, codebook=book, decoys=decoys, randomness=seeded("retrieval"), progress=bar)
    if several:
        with Bar(f"{name}: words") as bar:
            forms["words"] = released_in_words(
                images, dictionary=book, epsilon=arguments.epsilon, randomness=seeded("retrieval"), progress=bar
            )
    with Bar(f"{name}: finding similar images") as bar:
        similar = partial(similarities, book=book, threads=arguments.threads, progress=bar)
        rows = recall_rows(forms, scenes, pairs, similar, name)
    if not several:
        by_matches = partial(similarities_by_matches, steps=Bar, codebook=book, workers=arguments.threads)
        rows += recall_rows({"tracks": forms["subspaces"]}, scenes, pairs, by_matches, name)
    return rows


def _pictures(scene: Path) -> list[Path]:
    """The photographs of a scene. Raises InputError if there are fewer than two."""
    photographs = find_pictures(scene / "images" if (scene / "images").is_dir() else scene)
    if len(photographs) < 2:
        raise InputError(f"{scene} holds {len(photographs)} photographs; retrieval needs two or more")
    return photographs


def _some(paths: list[Path], most: int | None) -> list[Path]:
    return paths[:: -(-len(paths) // most)] if most else paths


def recall_table(rows: Sequence[RecallRow], left_out: Mapping[str, str]) -> Table:
    """The table of the command: recall among the k most similar images, empty without queries.

    `left_out` says of descriptors why they were not measured.
    """
    labels = ("descriptor", "scene", "form")
    return Table(
        columns=[*names(*labels), *numbers("images", "queries", *(f"recall at {count}, %" for count in RETRIEVED))],
        rows=[
            *(
                (
                    row.descriptor,
                    row.scene or "all",
                    row.form,
                    f"{row.images:,}",
                    f"{row.queries:,}",
                    *(percent(row.recall.get(count)) for count in RETRIEVED),
                )
                for row in rows
            ),
            *(Remark(labels=(name, "", ""), text=f"not measured: {why}") for name, why in left_out.items()),
        ],
        labels=3,
    )

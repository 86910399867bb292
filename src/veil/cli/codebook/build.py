"""`veil codebook build` and `info`: make a codebook from photographs, and describe one."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from veil.cli.codebook import quality
from veil.cli.codebook.clustering import (
    SAMPLE,
    SAMPLE_A_WORD,
    ClusteringMethod,
    add_clustering,
    clustered,
    clustering_method,
    holdout,
)
from veil.cli.codebook.collect import Collection, Wanted, collect
from veil.cli.common import (
    Bar,
    add_command,
    add_json,
    at_least,
    quiet_colmap,
    report,
    say,
    say_facts,
    write_json,
)
from veil.codebooks.codebook import Codebook
from veil.codebooks.kmeans import FLAT_WORDS
from veil.codebooks.quantization import MEASURED, Quantization, measure
from veil.codebooks.sampling import WordTraining
from veil.device.descriptor_books import assembled
from veil.errors import InputError
from veil.extraction import EXTRACTORS, full_name
from veil.files.codebooks import read_codebook, write_codebook

CENTROIDS, DECOYS = FLAT_WORDS, 262144

BUILD_EXAMPLES = """\
  veil codebook build photos/ -o book.npz --word-count 16384 --source "my photographs" --license CC0-1.0
  veil codebook build reference.h5 -o book.npz --word-count 256000    a dictionary of a public map's reference images
  veil codebook build photos/ -o book.npz --method sharded --engine dask:tcp://10.0.0.5:8786
  veil codebook build --decoy-pool photos/ -o pool.npz       a decoy pool of real descriptors, kept by the client
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil codebook` with its actions to the parser's commands."""
    parser = add_command(
        commands,
        "codebook",
        "build or describe a codebook",
        "A codebook holds the words that descriptors hide among, and the public PCA of the hardened profile.",
        BUILD_EXAMPLES,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _register_build(actions)
    info = add_command(
        actions,
        "info",
        "describe one",
        "Print what a codebook holds, where it came from, and its hash.",
        "  veil codebook info book.npz\n",
    )
    info.add_argument("codebook", type=Path, help="a file that `veil codebook build` wrote")
    add_json(info)
    info.set_defaults(run=_info)


def _register_build(actions) -> None:  # type: ignore[no-untyped-def]
    build = add_command(
        actions,
        "build",
        "build one from photographs",
        "Extract SIFT from every photograph of a folder (or read features), keep a bounded uniform sample, cluster it, and\n"
        "say how far descriptors lie from the words. The digests of the photographs are stored, so that releases of them\n"
        "with this codebook can be refused: build it from public photographs, or from the reference images of a public map.\n"
        "Never build a decoy pool from photographs that you will release: their descriptors would be decoys.",
        BUILD_EXAMPLES,
    )
    build.add_argument(
        "photos",
        type=Path,
        nargs="+",
        help="photographs, folders of them (searched recursively), or features of `veil extract`",
    )
    build.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write (.npz)")
    build.add_argument("--decoy-pool", action="store_true", help="keep real descriptors instead of centroids: a decoy pool")
    build.add_argument(
        "--word-count",
        type=at_least(2),
        help=f"number of words (default {CENTROIDS}; for --decoy-pool {DECOYS} or as many as there are; the "
        "paper's 256k are 256000)",
    )
    build.add_argument(
        "--slices",
        type=at_least(1),
        default=16,
        help="disjoint sub-databases, at most (default %(default)s); a small pool is used in fewer",
    )
    build.add_argument(
        "--eight-bits",
        action="store_true",
        help="keep float words in 8 bits, dithered as they are read: a quarter of the bytes",
    )
    build.add_argument(
        "--descriptor", type=full_name, choices=EXTRACTORS, help="kind of descriptor (default sift, or that of the features)"
    )
    build.add_argument(
        "--normalization",
        choices=("L2", "L1_ROOT"),
        help="normalization of SIFT descriptors (default L2, or that of the features)",
    )
    add_clustering(build)
    build.add_argument("--source", default="", help="where the photographs come from; stored in the codebook")
    build.add_argument("--license", default="", help="the photographs' license; stored in the codebook")
    add_json(build)
    build.set_defaults(run=_build)


def _build(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    words = arguments.word_count or (DECOYS if arguments.decoy_pool else CENTROIDS)
    method = None if arguments.decoy_pool else clustering_method(arguments.method, words)
    every = holdout(arguments, method)
    # A pool loses its duplicates, so a little more than `words` is kept.
    capacity = words + words // 16 if arguments.decoy_pool else _capacity(arguments, words)
    collection = Collection(
        training=WordTraining(capacity, seed=arguments.seed), held=WordTraining(MEASURED, seed=arguments.seed)
    )
    collect(arguments.photos, Wanted.of(arguments), collection, every=every)
    images = len(collection.training.image_digests)
    if arguments.holdout and not collection.held.image_digests:
        raise InputError(f"--holdout {every} needs {every} photographs with features, got {images}; give less, or 0")
    sample = collection.training.sample()
    book = _assemble(arguments, collection, sample, words, method)
    if arguments.eight_bits and book.stored.dtype == np.uint8:
        raise InputError(f"words of {book.descriptor} have 8 bits already; leave --eight-bits out")
    book = write_codebook(arguments.output, book, dither_seed=arguments.seed if arguments.eight_bits else None)
    found = None if method is None else _measured(arguments, book, collection, sample)
    _tell(arguments, book, collection, method, found)
    return 0


def _capacity(arguments: argparse.Namespace, words: int) -> int:
    """Number of descriptors to sample for a number of words."""
    return max(arguments.sample or max(SAMPLE, SAMPLE_A_WORD * words), words)


def _assemble(
    arguments: argparse.Namespace, collection: Collection, sample: np.ndarray, words: int, method: ClusteringMethod | None
) -> Codebook:
    """The codebook of a sample: clustered by `method`, or a pool of decoys if that is None."""
    assert collection.space is not None  # there is a sample
    return assembled(
        sample,
        collection.training,
        collection.space,
        words,
        None if method is None else lambda sample: clustered(arguments, sample, words, method),
        is_flat=method == "flat",
        slices=arguments.slices,
        seed=arguments.seed,
        source=arguments.source,
        license=arguments.license,
        fewer=arguments.word_count is None,
    )


def _measured(arguments: argparse.Namespace, book: Codebook, collection: Collection, sample: np.ndarray) -> Quantization:
    """Quantization of the held-out photographs by the book, or of its own photographs if none were held out."""
    held = collection.held
    images = len(held.image_digests) or len(collection.training.image_digests)
    with Bar("measuring") as bar:
        return measure(
            book,
            held.sample() if held.image_digests else sample[:MEASURED],
            pool=sample,
            in_pool=not held.image_digests,
            images=images,
            book_images=0 if held.image_digests else images,
            seed=arguments.seed,
            progress=bar,
        )


def _tell(
    arguments: argparse.Namespace,
    book: Codebook,
    collection: Collection,
    method: ClusteringMethod | None,
    found: Quantization | None,
) -> None:
    measured = None if found is None else found.as_json()
    record = {
        "kind": book.kind,
        "words": len(book),
        "method": method,
        "images": book.provenance.image_count,
        "held_out": len(collection.held.image_digests),
        "skipped": collection.skipped,
        "descriptors_seen": book.provenance.descriptor_count,
        "remainder": book.remainder,
        "sha256": book.digest,
        "quality": measured,
    }
    write_json(arguments.json, record)
    report(arguments, arguments.output, f"{len(book)} {book.kind} from {record['images']} photographs")
    if collection.skipped:
        say(arguments, f"{collection.skipped} photographs had no features and were left out")
    if book.remainder:
        say(arguments, f"{book.remainder} words are in no sub-database because {book.slices} does not divide {len(book)}")
    if measured is not None:
        quality.say_quality(arguments, measured)
    say(
        arguments,
        "warning: the codebook tells of the photographs that it was made from, and keeps their digests; do not make it from "
        "photographs that you will release with it, and publish it only if these may be public",
    )


def _info(arguments: argparse.Namespace) -> int:
    book = read_codebook(arguments.codebook)
    facts = {
        "kind": book.kind,
        "words": len(book),
        "dim": book.dim,
        "descriptor": book.descriptor,
        "normalization": book.normalization,
        "stored_as": str(book.stored.dtype),
        "slices": book.slices,
        "slice_size": book.slice_size,
        "remainder": book.remainder,
        "pca_dim": None if book.pca is None else len(book.pca.axes),
        "dither_steps": book.dither_steps,
        "source": book.provenance.source,
        "license": book.provenance.license,
        "images": book.provenance.image_count,
        "descriptors_seen": book.provenance.descriptor_count,
        "sha256": book.digest,
    }
    write_json(arguments.json, facts)
    if str(arguments.json) != "-":
        say_facts(arguments, {key: str(value) for key, value in facts.items()})
    return 0

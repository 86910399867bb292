"""`veil codebook build` and `info`: make a codebook from photographs, and describe one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from veil.cli.codebook import quality
from veil.cli.codebook.collect import Collection, Wanted, collect
from veil.cli.common import Bar, Commands, add_command, at_least, quiet_colmap, report, say, say_facts, write_json
from veil.cli.engine_arguments import AskedEngine
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.codebooks.codebook import Codebook, Kind
from veil.codebooks.kmeans import FLAT_WORDS, chosen_method, train_words
from veil.codebooks.quantization import MEASURED, Quantization, QuantizationJson, measure
from veil.codebooks.sampling import WordTraining
from veil.codebooks.shards import train_sharded
from veil.device.descriptor_books import SAMPLE, SAMPLE_A_WORD, SLICES, assembled
from veil.engine import open_engine
from veil.errors import InputError
from veil.extraction import EXTRACTORS, full_name
from veil.files.codebooks import read_codebook, saved_shards, write_codebook
from veil.space import Normalization

ClusteringMethod = Literal["flat", "hierarchical", "sharded"]
DECOYS = 262144
# One photograph in ten is held out, to measure words with it; iterations of k-means; processes of an engine.
HOLDOUT, ITERATIONS, WORKERS = 10, 15, 2

BUILD_EXAMPLES = """\
  veil codebook build photos/ -o book.npz --word-count 16384 --source "my photographs" --license CC0-1.0
  veil codebook build public/ -o place.npz --word-count 16384    a dictionary of a place, of public photographs
  veil codebook build reference.h5 -o book.npz --word-count 256000    a dictionary of a public map's reference images
  veil codebook build photos/ -o book.npz --engine dask:tcp://10.0.0.5:8786
  veil codebook build --decoy-pool photos/ -o pool.npz       a decoy pool of real descriptors, kept by the client
"""


@dataclass(frozen=True, kw_only=True)
class BuildCodebook(AskedEngine):
    """Extract SIFT from every photograph of a folder (or read features), keep a bounded uniform sample, cluster it, and
    say how far descriptors lie from the words. The digests of the photographs are stored, so that releases of them
    with this codebook can be refused: build it from public photographs, or from the reference images of a public map.
    Never build a decoy pool from photographs that you will release: their descriptors would be decoys.
    """

    photos: tuple[Path, ...] = positional("photographs, folders of them (searched recursively), or features of `veil extract`")
    output: Path = option("where to write (.npz)", required=True, short="-o", metavar="FILE")
    decoy_pool: bool = option("keep real descriptors instead of centroids: a decoy pool", default=False)
    word_count: int | None = option(
        f"number of words (default {FLAT_WORDS}; for --decoy-pool {DECOYS} or as many as there are; the paper's 256k are "
        "256000)",
        parse=at_least(2),
    )
    eight_bits: bool = option("keep float words in 8 bits, dithered as they are read: a quarter of the bytes", default=False)
    descriptor: str | None = option(
        "kind of descriptor (default sift, or that of the features)", parse=full_name, choices=EXTRACTORS
    )
    normalization: Literal["L2", "L1_ROOT"] | None = option(
        "normalization of SIFT descriptors (default L2, or that of the features)"
    )
    seed: int = option("seed of the sample and of k-means (default %(default)s)", default=0, parse=at_least(0))
    workers: int | None = option(
        f"cluster flat, in tasks for this many processes of --engine; the words are the same whatever --engine and "
        f"--workers are (default: in this process, and in two levels above {FLAT_WORDS} words; with --engine {WORKERS})",
        parse=at_least(1),
    )
    source: str = option("where the photographs come from; stored in the codebook", default="")
    license: str = option("the photographs' license; stored in the codebook", default="")
    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class TellCodebook(Record):
    """Print what a codebook holds, where it came from, and its hash."""

    codebook: Path = positional("a file that `veil codebook build` wrote")
    json: Path | None = json_file()


def register(commands: Commands) -> None:
    """Add `veil codebook` with its actions to the parser's commands."""
    parser = add_command(
        commands,
        "codebook",
        "build or describe a codebook",
        "A codebook holds the words that descriptors hide among, and the public PCA of the hardened profile.",
        BUILD_EXAMPLES,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_record_command(actions, "build", "build one from photographs", BUILD_EXAMPLES, BuildCodebook, _build)
    add_record_command(actions, "info", "describe one", "  veil codebook info book.npz\n", TellCodebook, _info)


def _build(arguments: BuildCodebook) -> int:
    quiet_colmap()
    words = arguments.word_count or (DECOYS if arguments.decoy_pool else FLAT_WORDS)
    method = _method(arguments, words)
    # A pool loses its duplicates, so a little more than `words` is kept.
    capacity = words + words // 16 if arguments.decoy_pool else max(SAMPLE, SAMPLE_A_WORD * words)
    collection = Collection(
        training=WordTraining(capacity, seed=arguments.seed), held=WordTraining(MEASURED, seed=arguments.seed)
    )
    wanted = Wanted(descriptor=arguments.descriptor, normalization=arguments.normalization)
    # Books made flat, and pools, keep all photographs.
    collect(arguments.photos, wanted, collection, every=0 if method in (None, "flat") else HOLDOUT)
    sample = collection.training.sample()
    book = _assemble(arguments, collection, sample, words, method)
    if arguments.eight_bits and book.stored.dtype == np.uint8:
        raise InputError(f"words of {book.descriptor} have 8 bits already; leave --eight-bits out")
    book = write_codebook(arguments.output, book, dither_seed=arguments.seed if arguments.eight_bits else None)
    quantization = None if method is None else _measured(arguments, book, collection, sample)
    _tell(arguments, book, collection, method, quantization)
    return 0


def _method(arguments: BuildCodebook, words: int) -> ClusteringMethod | None:
    """The method of k-means for a number of words; None for a pool. Raises InputError for options that do not fit together."""
    in_tasks = arguments.workers is not None or arguments.engine != "local"
    if arguments.decoy_pool:
        if in_tasks:
            raise InputError("--workers and --engine make words; a decoy pool holds descriptors as they are")
        return None
    return "sharded" if in_tasks else chosen_method("auto", words)


def _clustered(arguments: BuildCodebook, sample: np.ndarray, words: int, method: ClusteringMethod) -> np.ndarray:
    """Words of a sample by the method that was chosen."""
    if method == "sharded":
        # Beside the result: workers on other machines must see the folder, as engine.md says.
        with (
            open_engine(arguments.engine, workers=arguments.workers or WORKERS) as engine,
            saved_shards(arguments.output.parent, sample) as shards,
            Bar("clustering") as clustering,
        ):
            return train_sharded(shards, words, iterations=ITERATIONS, engine=engine, on_words=clustering)
    with Bar("clustering cells") as cells, Bar("clustering") as clustering:
        return train_words(
            sample,
            words,
            method=method,
            iterations=ITERATIONS,
            seed=arguments.seed,
            on_cells=cells,
            on_words=clustering,
        )


def _assemble(
    arguments: BuildCodebook, collection: Collection, sample: np.ndarray, words: int, method: ClusteringMethod | None
) -> Codebook:
    """The codebook of a sample: clustered by `method`, or a pool of decoys if that is None."""
    assert collection.space is not None  # there is a sample
    return assembled(
        sample,
        collection.training,
        collection.space,
        words,
        None if method is None else lambda sample: _clustered(arguments, sample, words, method),
        is_flat=method == "flat",
        slices=SLICES,
        seed=arguments.seed,
        source=arguments.source,
        license=arguments.license,
        fewer=arguments.word_count is None,
    )


def _measured(arguments: BuildCodebook, book: Codebook, collection: Collection, sample: np.ndarray) -> Quantization:
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


class BuildCodebookJson(TypedDict):
    """A codebook that was made, and its quality."""

    kind: Kind
    words: int
    method: Literal["flat", "hierarchical", "sharded", None]
    images: int
    held_out: int
    skipped: int
    descriptors_seen: int
    remainder: int
    sha256: str
    quality: QuantizationJson | None


def _tell(
    arguments: BuildCodebook,
    book: Codebook,
    collection: Collection,
    method: ClusteringMethod | None,
    quantization: Quantization | None,
) -> None:
    measured = None if quantization is None else quantization.as_json()
    record: BuildCodebookJson = {
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


class CodebookInfoJson(TypedDict):
    """Facts of a codebook."""

    kind: Kind
    words: int
    dim: int
    descriptor: str
    normalization: Normalization
    stored_as: str
    slices: int
    slice_size: int
    remainder: int
    pca_dim: int | None
    dither_steps: float
    source: str
    license: str
    images: int
    descriptors_seen: int
    sha256: str


def _info(arguments: TellCodebook) -> int:
    book = read_codebook(arguments.codebook)
    facts: CodebookInfoJson = {
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

"""`veil codebook build|info`."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from veil.cli.common import add_command, add_json, at_least, progress, quiet_colmap, report, say, write_json
from veil.codebook import PCA_DIM, Codebook, Pca, Provenance, WordTraining, fit_pca, spherical_kmeans
from veil.errors import InputError
from veil.extract import EXTRACTORS, extract
from veil.extract.sift import SiftOptions
from veil.files.codebooks import read_codebook, write_codebook
from veil.files.pictures import find_pictures, read_picture
from veil.files.weights import load_network
from veil.privatize.profile import HARDENED_DITHER_STEPS

CENTROIDS, DECOYS = 16384, 262144

BUILD_EXAMPLES = """\
  veil codebook build photos/ -o book.npz --words 16384 --source "my photographs" --license CC0-1.0
  veil codebook build --decoys photos/ -o pool.npz       a decoy pool of real descriptors, kept by the client
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the command."""
    parser = add_command(
        commands,
        "codebook",
        "build or describe a codebook",
        "A codebook holds the words that descriptors hide among, and the public PCA of the hardened profile.",
        BUILD_EXAMPLES,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    build = add_command(
        actions,
        "build",
        "build one from photographs",
        "Extract SIFT from every photograph of a folder, keep a bounded uniform sample, and cluster it.\n"
        "Never build a decoy pool from photographs that you will release: their descriptors would be decoys.",
        BUILD_EXAMPLES,
    )
    build.add_argument("photos", type=Path, nargs="+", help="folders of photographs (searched recursively) or files")
    build.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write (.npz)")
    build.add_argument("--decoys", action="store_true", help="keep real descriptors instead of centroids: a decoy pool")
    build.add_argument(
        "--words", type=at_least(2), help=f"words (default {CENTROIDS}; for --decoys {DECOYS} or as many as there are)"
    )
    build.add_argument("--slices", type=at_least(1), default=16, help="disjoint sub-databases (default %(default)s)")
    build.add_argument("--descriptor", choices=EXTRACTORS, default="sift", help="default sift")
    build.add_argument("--normalization", choices=("L2", "L1_ROOT"), default="L2", help="of the SIFT (default L2)")
    build.add_argument("--sample", type=at_least(2), default=400_000, help="descriptors to cluster (default %(default)s)")
    build.add_argument("--iterations", type=at_least(1), default=15, help="of k-means (default %(default)s)")
    build.add_argument("--seed", type=at_least(0), default=0, help="of the sample and of k-means (default %(default)s)")
    build.add_argument("--source", default="", help="where the photographs come from; stored in the codebook")
    build.add_argument("--license", default="", help="the photographs' license; stored in the codebook")
    build.set_defaults(run=_build)
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


def _build(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    paths = [path for folder in arguments.photos for path in find_pictures(folder)]
    words = arguments.words or (DECOYS if arguments.decoys else CENTROIDS)
    # A pool loses its duplicates, so a little more than `words` is kept.
    capacity = words + words // 16 if arguments.decoys else max(arguments.sample, words)
    training = WordTraining(capacity, seed=arguments.seed)
    options = SiftOptions(normalization=arguments.normalization)
    network = load_network(arguments.descriptor)
    skipped = 0
    for path in progress(paths, "extracting"):
        try:
            features = extract(read_picture(path), arguments.descriptor, options, network)
        except InputError:
            skipped += 1  # a blank photograph has nothing to add
            continue
        training.add(features.descriptors, features.image_digest)
    book = _assemble(arguments, training, words)
    write_codebook(arguments.output, book)
    report(arguments, arguments.output, f"{len(book)} {book.kind} from {len(paths) - skipped} photographs")
    if skipped:
        say(arguments, f"{skipped} photographs had no features and were left out")
    if book.remainder:
        say(arguments, f"{book.remainder} words are in no sub-database because {book.slices} does not divide {len(book)}")
    return 0


def _assemble(arguments: argparse.Namespace, training: WordTraining, words: int) -> Codebook:
    sample = training.sample()
    if arguments.decoys:  # a word that is there twice would be drawn twice as often, and twice for one descriptor
        sample = sample[np.sort(np.unique(sample, axis=0, return_index=True)[1])]
        words = min(words, len(sample)) if arguments.words is None else words
    if len(sample) < words:
        raise InputError(f"{len(sample)} descriptors cannot give {words} words; add photographs or ask for fewer")
    quantized = sample.dtype == np.uint8
    pca: Pca | None = None
    stored = sample[:words]
    if not arguments.decoys:
        if quantized:
            pca = fit_pca(_dithered(sample, arguments.seed), PCA_DIM)
        stored = _stored_centroids(_clustered(sample, words, arguments), quantized)
        # k-means leaves similar words side by side; sub-databases must be uniform draws (traps D10).
        stored = stored[np.random.default_rng(arguments.seed).permutation(len(stored))]
    return Codebook(
        kind="descriptors" if arguments.decoys else "centroids",
        descriptor=arguments.descriptor,
        normalization=arguments.normalization,
        stored=np.ascontiguousarray(stored),
        slices=arguments.slices,
        pca=pca,
        dither_steps=0.0 if pca is None else HARDENED_DITHER_STEPS,
        provenance=Provenance(
            source=arguments.source,
            license=arguments.license,
            image_count=len(training.image_digests),
            descriptor_count=training.seen,
            image_digests=tuple(training.image_digests),
        ),
    )


def _dithered(sample: np.ndarray, seed: int) -> np.ndarray:
    """The sample as the hardened profile will see descriptors: the PCA is fitted where it is used."""
    values = sample + np.random.default_rng(seed).uniform(0, HARDENED_DITHER_STEPS, sample.shape)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def _clustered(sample: np.ndarray, words: int, arguments: argparse.Namespace) -> np.ndarray:
    unit = sample.astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    steps = spherical_kmeans(unit, words, iterations=arguments.iterations, seed=arguments.seed)
    return list(progress(steps, "clustering", total=arguments.iterations))[-1]


def _stored_centroids(centroids: np.ndarray, quantized: bool) -> np.ndarray:
    """Centroids of 8-bit descriptors in 8 bits (they are not negative), others in full precision."""
    if not quantized:
        return centroids.astype(np.float32)
    return np.clip(np.round(centroids * (255.0 / centroids.max())), 0, 255).astype(np.uint8)


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
        for key, value in facts.items():
            print(f"{key:18} {value}")
    return 0

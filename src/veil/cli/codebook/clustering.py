"""The options of `veil codebook build` about k-means, and how they make words."""

from __future__ import annotations

import argparse
from typing import Literal

import numpy as np

from veil.cli.common import Bar, at_least
from veil.cli.engine_arguments import add_engine_arguments, opened_engine
from veil.codebooks.kmeans import FLAT_WORDS, METHODS, chosen_method, train_words
from veil.codebooks.shards import train_sharded
from veil.errors import InputError
from veil.files.codebooks import saved_shards

ClusteringMethod = Literal["flat", "hierarchical", "sharded"]
SAMPLE, SAMPLE_A_WORD = 400_000, 10
HOLDOUT = 10


def clustering_method(method: str, words: int) -> ClusteringMethod:
    """The method that --method stands for, by the number of words."""
    return "sharded" if method == "sharded" else chosen_method(method, words)


def add_clustering(build: argparse.ArgumentParser) -> None:
    """Add the options of k-means: its method, sample, held-out photographs, iterations, seed, and where it runs."""
    build.add_argument(
        "--method",
        choices=("auto", *METHODS, "sharded"),
        default="auto",
        help=f"method of k-means: auto is flat up to {FLAT_WORDS} words and hierarchical, in two levels, above;"
        " sharded is flat, by tasks of --engine, and gives the same words whatever --engine and --workers"
        " are",
    )
    build.add_argument(
        "--sample",
        type=at_least(2),
        help=f"descriptors to cluster (default {SAMPLE}, or {SAMPLE_A_WORD} times --word-count if that is more). The memory is "
        "bounded by it: 128 bytes each of SIFT (--method flat: 3 kB), beside 1 kB for each word",
    )
    build.add_argument(
        "--holdout",
        type=at_least(0),
        metavar="N",
        help=f"keep each N-th photograph out and measure the words with it; 0: measure with the photographs they are made from "
        f"(default 0 for --method flat, {HOLDOUT} for others)",
    )
    build.add_argument("--iterations", type=at_least(1), default=15, help="iterations of k-means (default %(default)s)")
    build.add_argument("--seed", type=at_least(0), default=0, help="seed of the sample and of k-means (default %(default)s)")
    build.add_argument("--workers", type=at_least(1), default=2, help="processes of --method sharded (default %(default)s)")
    add_engine_arguments(build)


def holdout(arguments: argparse.Namespace, method: ClusteringMethod | None) -> int:
    """Interval of held-out photographs: every Nth (0: none). Raises InputError for options that do not fit together."""
    if method is None and (arguments.holdout is not None or arguments.method != "auto"):
        raise InputError("--method and --holdout belong to words made by k-means; a decoy pool holds descriptors as they are")
    if method != "sharded" and arguments.engine != "local":
        raise InputError(f"--engine {arguments.engine} belongs to --method sharded; other methods run in this process")
    if arguments.holdout == 1:
        raise InputError("--holdout 1 would keep every photograph out; give 0 or at least 2")
    if arguments.holdout is not None:
        return int(arguments.holdout)
    return 0 if method in (None, "flat") else HOLDOUT  # books made flat stay what they were


def clustered(arguments: argparse.Namespace, sample: np.ndarray, words: int, method: ClusteringMethod) -> np.ndarray:
    """Words of a sample by the method that was chosen."""
    if method == "sharded":
        # Beside the result: workers on other machines must see the folder, as engine.md says.
        with (
            opened_engine(arguments) as engine,
            saved_shards(arguments.output.parent, sample) as shards,
            Bar("clustering") as clustering,
        ):
            return train_sharded(shards, words, iterations=arguments.iterations, engine=engine, on_words=clustering)
    with Bar("clustering cells") as cells, Bar("clustering") as clustering:
        return train_words(
            sample,
            words,
            method=method,
            iterations=arguments.iterations,
            seed=arguments.seed,
            on_cells=cells,
            on_words=clustering,
        )

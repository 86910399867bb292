"""How often have two views of one point the same true word, by the dictionary?

    veil extract strecha/fountain-P11/images -o fountain.h5
    veil codebook build fountain.h5 -o own.npz --word-count 16384
    python lab/benchmarks/shared_words.py fountain.h5 bundled own.npz --every 2

The share sigma_1 of docs/theory/words.md, Eq. 11, of matches of raw features (ratio below 0.8) between neighbors in the order
of their names. A pair of views counts in a map from words if both send their true words and these are one: with p^2 sigma_1,
for the law of `--epsilon` and `--m`. `--every N` takes every N-th photograph from the second, to make the dictionary of others.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.features import read_features
from veil.forms import Points
from veil.ldp.mechanism import SubsetMechanism
from veil.matching import Matches, match_pairs
from veil.mechanisms.public import publish

RATIO = 0.8


def main() -> None:
    """Print a row for each dictionary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path, help="a file that `veil extract` wrote")
    parser.add_argument("dictionaries", nargs="+", help="files of `veil codebook build`, or bundled")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--m", type=int, default=2)
    arguments = parser.parse_args()
    images = {name: publish(image) for name, image in sorted(read_features(arguments.features))}
    names = list(images)[arguments.every // 2 :: arguments.every]
    matches = match_pairs({name: images[name] for name in names}, list(pairwise(names)))
    print(
        "| dictionary | K | epsilon | m | matches | with one word | with one word that both send |",
        "| --- " * 7 + "|",
        sep="\n",
    )
    for name in arguments.dictionaries:
        book = bundled_codebook() if name == "bundled" else read_codebook(Path(name))
        law = SubsetMechanism(dictionary_size=len(book), epsilon=arguments.epsilon, m=arguments.m)
        same = shared(images, matches, book)
        share, sent = same.mean(), float(law.truth) ** 2 * same.mean()
        cells = (
            f"{len(book):,}",
            f"{law.epsilon:g}",
            str(law.m),
            f"{len(same):,}",
            f"{100 * share:.1f} %",
            f"{100 * sent:.1f} %",
        )
        print(f"| {Path(name).stem} | {' | '.join(cells)} |", flush=True)


def shared(images: dict[str, Points], matches: dict[tuple[str, str], Matches], book: Codebook) -> np.ndarray:
    """Whether both features of a match have one true word, for all matches below `RATIO`."""
    both = [
        book.nearest(np.concatenate([images[name].vectors[rows] for name, rows in zip(pair, clear.T, strict=True)]))
        for pair, found in matches.items()
        if len(clear := found.indices[found.ratios < RATIO])
    ]
    return np.concatenate([np.equal(*np.split(words, 2)) for words in both])


if __name__ == "__main__":
    main()

"""How near to a descriptor may an oracle come that picks from the K entries of a database nearest to its subspace?

    python lab/benchmarks/oracle.py sacre_coeur --figure oracle.png

Fig. 6 of Dusmanu et al. 2021: sub-hybrid lifting to planes, with centroids of the bundled codebooks as decoys. The database is
the bundled pool of real descriptors, and the oracle knows the truth. A row gives the mean distance of the entry that it picks,
and of its projection on the plane. The last column is the limit: the oracle picks from the whole database.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from veil.attacks.distribution.nearest import entries
from veil.cli.common import progress, quiet_colmap
from veil.extraction import extract
from veil.features import Features
from veil.files.photographs.pictures import read_picture
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil_lab.cli.evaluate.attacks.photographs import chosen_photographs
from veil_lab.cli.evaluate.descriptors import bundled_books, extraction_options, usable
from veil_lab.report.attacks import draw_oracle
from veil_lab.studies.attacks.distribution import oracle_curve

DESCRIPTORS = ("sift", "aliked-n16rot")
MOST = 2000  # features of a photograph
TOLD = (1, 10, 100, 1_000, 10_000)


def main() -> None:
    """Print the table, and draw the figure if it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=10, help="photographs, evenly taken (default 10)")
    parser.add_argument("--features", type=int, default=100, help="features of each, drawn at random (default 100)")
    parser.add_argument("--m", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    quiet_colmap()
    curves: dict[str, np.ndarray] = {}
    print(f"| descriptor | picked | features | database | {' | '.join(f'K = {k:,}' for k in TOLD)} | all |")
    print("| --- " * (5 + len(TOLD)) + "|")
    for name in DESCRIPTORS:
        features = _features(name, chosen_photographs(arguments.photographs, arguments.count), arguments.features)
        curves[name], size = _curve(name, features, arguments.m)
        for picked, values in zip(("entry", "projected"), curves[name], strict=True):
            cells = [*(f"{values[k - 1]:.3f}" for k in TOLD), f"{values[-1]:.3f}"]
            print(f"| {name} | {picked} | {sum(map(len, features)):,} | {size:,} | {' | '.join(cells)} |")
    if arguments.figure:
        draw_oracle(arguments.figure, curves, title=f"{arguments.count} photographs, sub-hybrid lifting, m = {arguments.m}")


def _features(name: str, pictures: list[tuple[str, Path]], each: int) -> list[Features]:
    """At most `each` features of each photograph, drawn at random."""
    network, random = usable([name]).networks[name], np.random.default_rng(0)  # type: ignore[list-item, index]
    found = [extract(read_picture(path), name, extraction_options(name, MOST), network) for _, path in progress(pictures, name)]
    bundled_books(name).require_others(item.image_digest for item in found)
    return [item.drawn(each, random) for item in found]


def _curve(name: str, features: list[Features], m: int) -> tuple[np.ndarray, int]:
    """The curves of a descriptor, and the number of entries in the database."""
    books = bundled_books(name)
    database = entries(books.decoys, books.decoys.raw_space)
    curves = [
        oracle_curve(
            lift(
                item,
                profile=Profile.paper(m),
                compression=books.codebook.compression,
                decoys=books.codebook,
                randomness=seeded(f"oracle {name} {number}"),
            ).form,
            publish(item).vectors.astype(np.float64),
            database,
        )
        for number, item in enumerate(features)
    ]
    return np.average(curves, axis=0, weights=[len(item) for item in features]), len(database)


if __name__ == "__main__":
    main()

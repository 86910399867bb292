"""How far descriptors lie from the words of a codebook, for people.

A file of its own: `veil codebook build` ends with it, and `veil lab quality` prints the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veil.cli.common import Arguments, explain, say, say_table
from veil.report.tables import Name, Table, fixed, numbers


def spread_table(record: Mapping[str, Any]) -> Table:
    """The table of distances: to the nearest word, to the nearest other descriptor, and between random ones."""
    spreads = {
        "to_nearest_word": "to the nearest word",
        "to_nearest_other": f"to the nearest other of {record['pool']} descriptors",
        "to_random": "between two random descriptors",
    }
    return Table(
        columns=[Name("distance of unit vectors", least=42), *numbers("mean", "5 %", "median", "95 %")],
        rows=[
            (name, *(fixed(record[key][part], 3) for part in ("mean", "p5", "median", "p95"))) for key, name in spreads.items()
        ],
    )


def say_quality(arguments: Arguments, record: Mapping[str, Any]) -> None:
    """Print a record of `veil lab quality` for people."""
    images, own, words = record["images"], record["book_images"], record["words"]
    say(arguments, f"\n{record['descriptors']} descriptors of {images} photographs, and the {words} words")
    say_table(arguments, spread_table(record))
    explain(
        arguments,
        f"words that none of them uses: {record['unused_words']} (even use would leave {record['unused_words_if_even']:.0f}); "
        f"entropy of use {record['entropy_bits']:.2f} bits (even use {record['entropy_bits_if_even']:.2f}), "
        f"log2 of the words {record['log2_words']:.2f}",
    )
    if own:
        say(
            arguments,
            f"note: {'all' if own == images else own} of these photographs are among those that the book was made from, "
            "which makes the distance to the nearest word too small",
        )

"""`veil evaluate word-inversion`: pictures drawn from words by one network, at equal probability of the true word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from veil.cli.common import OCTAVE, Bar, Commands, at_least, octave, quiet_colmap, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.device.inverting import network_of
from veil.errors import InputError
from veil.extraction.sift import MAX_FEATURES
from veil.files.attack_networks import bundled_inverter, read_weights
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward, outward_percent
from veil.report.tables import Name, Table, fixed, numbers
from veil_lab.cli.evaluate.attacks.inversion import require_other_photographs, untrained_photographs
from veil_lab.studies.pictures.word_inversion import WordInversion, WordInversionJson, equal_epsilon, word_inversion_study

EXAMPLES = """\
  veil evaluate word-inversion bsds500/ --inverter words.npz --dictionary own.npz --photographs 20 --json pictures.json
  veil evaluate word-inversion bsds500/ --inverter words.npz --dictionary own.npz --m 2 --epsilon 10 12 --equal-to 65536
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateWordInversion(Record):
    """Draw pictures of photographs from words by a network that reads them. Epsilons are those of a dictionary of
    --equal-to words; the dictionary at hand sends the true word as often at smaller ones. The photographs must be
    others than those that the network and the dictionary were made of.
    """

    photos: tuple[Path, ...] = positional("photographs or folders of them")
    inverter: Path = option("network for words of the dictionary", required=True, metavar="FILE")
    dictionary: Path | None = option("dictionary of the words (default: the bundled codebook)", metavar="FILE")
    m: tuple[int, ...] = option("words of a feature (default 1 2 4)", default=(1, 2, 4), parse=at_least(1))
    epsilon: tuple[float, ...] = option(
        "epsilons of each feature, with --equal-to words (default 16 14 12 10)", default=(16.0, 14.0, 12.0, 10.0)
    )
    equal_to: int = option("number of words of these epsilons (default %(default)s)", default=256_000, parse=at_least(2))
    photographs: int | None = option("photographs to invert, evenly taken (default: all)", parse=at_least(1), metavar="N")
    max_features: int = option(
        "features per image at most (default %(default)s, as of `veil extract`)", default=MAX_FEATURES, parse=at_least(10)
    )
    seed: int = option("seed of the words (default %(default)s)", default=0, parse=at_least(0))
    first_octave: int | None = option(OCTAVE, parse=octave, metavar="N")
    json: Path | None = json_file()


class WordInversionStudyJson(TypedDict):
    """The record of `veil evaluate word-inversion`."""

    photographs: int
    weights: str
    dictionary: str
    words: int
    equal_to: int
    rows: list[WordInversionJson]


def register(protocols: Commands) -> None:
    """Add `veil evaluate word-inversion` to the subparsers `protocols`."""
    summary = "pictures drawn from words (Pittaluga and Zhuang 2023, Table 4)"
    add_record_command(protocols, "word-inversion", summary, EXAMPLES, EvaluateWordInversion, _word_inversion)


def _word_inversion(arguments: EvaluateWordInversion) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    weights = read_weights(arguments.inverter)
    dictionary = bundled_codebook() if arguments.dictionary is None else read_codebook(arguments.dictionary)
    if weights.training.codebook != dictionary.digest:
        raise InputError(
            f"{arguments.inverter} reads words of {weights.training.codebook[:12] or 'no dictionary'}, not of "
            f"{dictionary.digest[:12]}; give its --dictionary, or train with this one"
        )
    laws = {
        (m, epsilon): SubsetMechanism(
            dictionary_size=len(dictionary),
            epsilon=equal_epsilon(epsilon, m=m, words=len(dictionary), of=arguments.equal_to),
            m=m,
        )
        for m in arguments.m
        for epsilon in arguments.epsilon
    }
    photographs = untrained_photographs(arguments)
    require_other_photographs(photographs, dictionary)
    with Bar("inverting") as bar:
        rows = word_inversion_study(
            photographs,
            list(laws.values()),
            network=network_of(weights),
            raw=network_of(bundled_inverter()),
            dictionary=dictionary,
            case=f"word inversion {arguments.seed}",
            progress=bar,
        )
    record: WordInversionStudyJson = {
        "photographs": len(photographs),
        "weights": weights.digest,
        "dictionary": dictionary.digest,
        "words": len(dictionary),
        "equal_to": arguments.equal_to,
        "rows": [row.as_json() for row in rows],
    }
    write_json(arguments.json, record)
    if str(arguments.json) != "-":
        asked = {law: epsilon for (_, epsilon), law in laws.items()}
        say_table(arguments, word_inversion_table(rows, asked, arguments.equal_to))
    return 0


def word_inversion_table(rows: Sequence[WordInversion], asked: dict[SubsetMechanism, float], equal_to: int) -> Table:
    """The table of mean errors by law; `asked` are the epsilons of a dictionary of `equal_to` words."""
    of_other = f"epsilon of {equal_to:,}"
    return Table(
        columns=[
            Name("from"),
            *numbers("m", of_other, "K", "epsilon", "true word, %", "of the image", "MAE", "SSIM", "95 % interval", "PSNR, dB"),
        ],
        rows=[
            (
                row.source,
                *_law_cells(row, asked),
                fixed(row.row.mae, 3),
                fixed(row.row.ssim, 3),
                f"{row.row.interval[0]:.3f} to {row.row.interval[1]:.3f}",
                fixed(row.row.psnr, 2),
            )
            for row in rows
        ],
        labels=3,
    )


def _law_cells(row: WordInversion, asked: dict[SubsetMechanism, float]) -> tuple[str, ...]:
    """The cells of a row on its law: m, the epsilon that was asked for, K, epsilon, true word, and epsilon of the image."""
    law = row.law
    if law is None:
        return ("",) * 6
    epsilon = "∞" if law.epsilon == float("inf") else outward(law.epsilon)
    return (
        str(law.m),
        f"{asked[law]:g}" if law in asked else "",
        f"{law.dictionary_size:,}",
        epsilon,
        outward_percent(float(law.truth)),
        "∞" if law.epsilon == float("inf") else outward(row.epsilon_of_image),
    )

"""`veil evaluate attacks`: how much known attacks recover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.attacks.distribution.nearest import entries
from veil.cli.common import (
    Bar,
    Commands,
    at_least,
    picture,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.records import add_record_command, option
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.kmeans import chosen_method, train_words
from veil.errors import InputError
from veil.features import Features
from veil.mechanisms.profile import STRATEGIES, Strategy
from veil.mechanisms.public import publish
from veil_lab.cli.evaluate.attacks.attack_tables import (
    decoy_table,
    distribution_table,
    position_table,
    structural_table,
)
from veil_lab.cli.evaluate.attacks.descriptor_attacks import AskedAttacks, compare_descriptors
from veil_lab.cli.evaluate.attacks.photographs import extracted
from veil_lab.report.attacks import draw_position_attacks
from veil_lab.studies.attacks.distribution import DistributionStudy, descriptor_attacks
from veil_lab.studies.attacks.positions import position_rows, position_trials
from veil_lab.studies.attacks.structural import structural_attacks

EXAMPLES = """\
  veil evaluate attacks bsds500/ --attacker imagenet_sample/ --json attacks.json --figure positions.png
  veil evaluate attacks bsds500/ --attacker imagenet_sample/ --lifting random     nearest descriptors, no decoys beside
  veil evaluate attacks photos/ --attacker others/ --m 4 --attacked-features 100 --word-count 4096 --public 16384
  veil evaluate attacks bsds500/ --attacker imagenet_sample/ --descriptor sift hardtfeat aliked xfeat --word-count 4096
"""
PER_IMAGE, DIMENSIONS = 120, (2, 4, 8, 16)
RECOMMENDED: Strategy = "sub-hybrid"  # by [D21]


@dataclass(frozen=True, kw_only=True)
class EvaluateAttacks(AskedAttacks):
    """Lift descriptors of photographs as the paper says, and attack them: structure (lattice, vertex), the distribution of
    descriptors (nearest, oracle, clustering, intersection, database), and lines through keypoints. The attacker's
    photographs make the words that decoys come from (one half) and its own database (the other half); they must be
    others than those attacked. Half of the attacked photographs serve as further uploads only. Random lifting has no
    decoys, and no attack is run that looks for any. With --descriptor, the paper's lifting, the hardened form and words
    of several descriptors are attacked by every attack of the list.
    """

    lifting: Strategy = option("way of lifting (default %(default)s)", default=RECOMMENDED, choices=STRATEGIES)
    line_photographs: int = option("photographs whose lines are attacked (default %(default)s)", default=20, parse=at_least(1))
    figure: Path | None = option("draw errors of positions (.png or .svg)", parse=picture, metavar="FILE")


def register(protocols: Commands) -> None:
    """Add `veil evaluate attacks` to the subparsers `protocols`."""
    summary = "every attack on lifted descriptors and hidden positions"
    add_record_command(protocols, "attacks", summary, EXAMPLES, EvaluateAttacks, _attacks)


def _attacks(arguments: EvaluateAttacks) -> int:
    """Run `veil evaluate attacks`; exit code 0."""
    quiet_colmap()
    if arguments.descriptor:
        if arguments.lifting != RECOMMENDED:
            raise InputError(f"with --descriptor lifting is {RECOMMENDED}; leave --lifting out, or leave --descriptor out")
        return compare_descriptors(arguments)
    per_image, dimensions = arguments.per_image or PER_IMAGE, arguments.m or DIMENSIONS
    victims = extracted(arguments.victims, most=arguments.photographs, least=per_image)
    owned = extracted(arguments.attacker, most=None, least=1)
    shared = {item.image_digest for item in victims} & {item.image_digest for item in owned}
    if shared:
        raise InputError(f"{len(shared)} photographs are both the attacker's and attacked; give others with --attacker")
    if len(victims) < 2 or len(owned) < 2:
        raise InputError("attacks need two photographs or more on either side; give more of them")
    say(arguments, f"{len(victims)} photographs are attacked with {len(owned)} others")
    words = _centroids(owned[::2], arguments.word_count, "half of the attacker's photographs")
    public = _centroids(owned[1::2], arguments.public, "the other half of the attacker's photographs")
    tested, auxiliary = victims[::2], victims[1::2]
    with Bar("structural attacks") as bar:
        structural = structural_attacks(
            tested,
            words=words,
            dimensions=dimensions,
            strategy=arguments.lifting,
            count=min(arguments.attacked_features, per_image * len(tested)),
            seed=arguments.seed,
            threads=arguments.threads,
            progress=bar,
        )
    with Bar("attacks by distribution") as bar:
        rows, decoys = descriptor_attacks(
            tested,
            words=words,
            public=entries(public, public.raw_space),
            auxiliary=auxiliary,
            study=DistributionStudy(
                dimensions=tuple(dimensions),
                strategy=arguments.lifting,
                count=arguments.attacked_features,
                per_image=per_image,
                seed=arguments.seed,
            ),
            progress=bar,
        )
    trials = [
        trial
        for k, item in progress(list(enumerate(victims[: arguments.line_photographs])), "attacks on lines")
        for trial in position_trials(str(k), item, seed=arguments.seed)
    ]
    positions = position_rows(trials)
    write_json(
        arguments.json,
        {
            "structural": [row.as_json() for row in structural],
            "distribution": [row.as_json() for row in rows],
            "decoys": [row.as_json() for row in decoys],
            "positions": [row.as_json() for row in positions],
        },
    )
    if str(arguments.json) != "-":
        tables = structural_table(structural), distribution_table(rows), decoy_table(decoys), position_table(positions)
        for table in tables:
            if table.rows:
                say_table(arguments, table)
                say(arguments, "")
    if arguments.figure:
        draw_position_attacks(arguments.figure, trials, title=f"{len(victims[: arguments.line_photographs])} photographs")
        report(arguments, arguments.figure, "the figure")
    return 0


def _centroids(images: Sequence[Features], words: int, source: str) -> Codebook:
    """A codebook of `words` centroids of all descriptors of `images`, in sixteen slices; `source` says where these are from.

    Raises InputError if there are fewer descriptors than words.
    """
    vectors = np.concatenate([publish(item).vectors for item in images])
    if words > len(vectors):
        raise InputError(f"{source} have {len(vectors)} descriptors, which cannot give {words} words; ask for fewer")
    sample = vectors[np.random.default_rng(0).permutation(len(vectors))]
    with Bar("clustering") as bar:
        method = chosen_method("auto", words)
        stored = train_words(sample, words, method=method, iterations=8, seed=0, on_words=bar)
    return Dictionary(
        descriptor="sift",
        normalization="L2",
        stored=stored,
        slices=16,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source=source, license="", image_count=len(images), descriptor_count=len(vectors)),
    )

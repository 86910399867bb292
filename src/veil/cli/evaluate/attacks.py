"""`veil evaluate attacks` and `veil evaluate defenses`: how much known attacks recover, and how much accuracy defenses cost."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.attacks.distribution.nearest import entries
from veil.cli.common import (
    Bar,
    add_command,
    add_json,
    at_least,
    explain,
    keep_old_name,
    picture,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.evaluate.attack_tables import (
    accuracy_table,
    decoy_table,
    distribution_table,
    far_table,
    near_table,
    position_table,
    structural_table,
)
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.kmeans import chosen_method, train_words
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.homographies import find_sequences
from veil.files.pictures import named_pictures, read_picture
from veil.mechanisms.public import publish
from veil.report.defenses import draw_defenses
from veil.report.position_attacks import draw_position_attacks
from veil.studies.attacks.defenses import DefenseRow, Effort, Pools, default_defenses, defense_study
from veil.studies.attacks.distribution import DistributionStudy, descriptor_attacks
from veil.studies.attacks.positions import position_rows, position_trials
from veil.studies.attacks.structural import structural_attacks
from veil.studies.matching.homographies import ImageSequence

ATTACKS_EXAMPLES = """\
  veil evaluate attacks bsds500/ --attacker imagenet_sample/ --json attacks.json --figure positions.png
  veil evaluate attacks photos/ --attacker others/ --m 4 --features 100 --words 4096 --public 16384
"""
DEFENSES_EXAMPLES = """\
  veil evaluate defenses homography/ --victims strecha/fountain-P11/images --figure defenses.png
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate attacks` and `veil evaluate defenses` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "attacks",
        "every attack on lifted descriptors and hidden positions",
        "Lift descriptors of photographs as the paper says, and attack them: structure (lattice, vertex), the distribution of\n"
        "descriptors (nearest, oracle, clustering, intersection, database), and lines through keypoints. The attacker's\n"
        "photographs make the words that decoys come from (one half) and its own database (the other half); they must be\n"
        "others than those attacked. Half of the attacked photographs serve as further uploads only.",
        ATTACKS_EXAMPLES,
    )
    parser.add_argument("victims", type=Path, nargs="+", metavar="PHOTOS", help="the victims: photographs that are attacked")
    parser.add_argument("--attacker", type=Path, nargs="+", required=True, metavar="PHOTOS", help="the attacker's photographs")
    parser.add_argument("--photographs", type=at_least(2), default=80, help="attacked at most, half as uploads (default 80)")
    parser.add_argument("--features", type=at_least(10), default=400, help="descriptors attacked (default %(default)s)")
    parser.add_argument("--per-image", type=at_least(10), default=120, help="lifted of each photograph (default %(default)s)")
    parser.add_argument("--m", type=at_least(2), nargs="+", default=[2, 4, 8, 16], help="dimensions (default 2 4 8 16)")
    parser.add_argument("--words", type=at_least(64), default=16384, help="words that decoys come from (default %(default)s)")
    parser.add_argument("--public", type=at_least(64), default=65536, help="entries of the database (default %(default)s)")
    parser.add_argument("--line-photographs", type=at_least(1), default=20, help="whose lines are attacked (default 20)")
    parser.add_argument("--threads", type=at_least(1), default=2, help="of the structural attacks (default %(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="which features are drawn (default %(default)s)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw errors of positions (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_attacks)
    parser = add_command(
        protocols,
        "defenses",
        "what each defense costs in matching, and what is recovered from it",
        "For dither, compression, real decoys, precision and their combinations: mean matching accuracy at 3 px, and what the\n"
        "lattice, vertex, nearest-neighbor, intersection and database attacks recover from photographs.",
        DEFENSES_EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="sequences NAME/1.jpg ... and NAME/H_1_2 ...")
    parser.add_argument(
        "--victims", type=Path, nargs="+", required=True, metavar="PHOTOS", help="photographs that are attacked"
    )
    parser.add_argument("--photographs", type=at_least(1), default=8, help="of them (default %(default)s)")
    parser.add_argument("--per-image", type=at_least(10), default=60, help="features of each (default %(default)s)")
    parser.add_argument("--structural", type=at_least(1), default=200, help="of these for structural attacks behind a PCA")
    parser.add_argument("--tours", type=at_least(0), help="of the lattice attack behind a PCA (default: its own, minutes each)")
    parser.add_argument("--m", type=at_least(2), default=4, help="dimension (default %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the defenses")
    parser.add_argument("--max-features", type=at_least(100), default=600, help="for matching (default %(default)s)")
    parser.add_argument("--codebook", type=Path, metavar="FILE", help="centroids; default: the bundled ones")
    parser.add_argument("--decoys", type=Path, metavar="FILE", help="real descriptors; default: the bundled pool")
    parser.add_argument("--threads", type=at_least(1), default=2, help="of matching and attacks (default 2)")
    keep_old_name(parser, "--workers", "--threads")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw recovery against matching (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_defenses)


def _attacks(arguments: argparse.Namespace) -> int:
    """Run `veil evaluate attacks`; exit code 0."""
    quiet_colmap()
    victims = _extracted(arguments.victims, most=arguments.photographs, least=arguments.per_image)
    owned = _extracted(arguments.attacker, most=None, least=1)
    shared = {item.image_digest for item in victims} & {item.image_digest for item in owned}
    if shared:
        raise InputError(f"{len(shared)} photographs are both the attacker's and attacked; give others with --attacker")
    if len(victims) < 2 or len(owned) < 2:
        raise InputError("attacks need two photographs or more on either side; give more of them")
    say(arguments, f"{len(victims)} photographs are attacked with {len(owned)} others")
    words = _centroids(owned[::2], arguments.words, "half of the attacker's photographs")
    public = _centroids(owned[1::2], arguments.public, "the other half of the attacker's photographs")
    tested, auxiliary = victims[::2], victims[1::2]
    with Bar("structural attacks") as bar:
        structural = structural_attacks(
            tested,
            words=words,
            dimensions=arguments.m,
            count=min(arguments.features, arguments.per_image * len(tested)),
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
                dimensions=tuple(arguments.m),
                count=arguments.features,
                per_image=arguments.per_image,
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
        for table in (structural_table(structural), distribution_table(rows), decoy_table(decoys), position_table(positions)):
            say_table(arguments, table)
            say(arguments, "")
    if arguments.figure:
        draw_position_attacks(arguments.figure, trials, title=f"{len(victims[: arguments.line_photographs])} photographs")
        report(arguments, arguments.figure, "the figure")
    return 0


def _extracted(paths: Sequence[Path], *, most: int | None, least: int) -> list[Features]:
    """SIFT features of at most `most` photographs, evenly taken from all, without those of fewer than `least` features."""
    pictures = named_pictures(paths)
    if most is not None and len(pictures) > most:
        pictures = [pictures[k] for k in np.linspace(0, len(pictures) - 1, most).round().astype(int)]
    extracted = []
    for _, path in progress(pictures, "extracting"):
        try:
            features = extract_sift(read_picture(path), SiftOptions(max_features=2000))
        except InputError:  # a blank photograph has nothing to attack
            continue
        if len(features) >= least:
            extracted.append(features)
    return extracted


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


def _defenses(arguments: argparse.Namespace) -> int:
    """Run `veil evaluate defenses`; exit code 0."""
    quiet_colmap()
    known = default_defenses(arguments.m)
    if arguments.only:
        unknown = set(arguments.only) - {defense.name for defense in known}
        if unknown:
            names = ", ".join(defense.name for defense in known)
            raise InputError(f"there is no defense {', '.join(sorted(unknown))}; there are {names}")
        known = [defense for defense in known if defense.name in arguments.only]
    options = SiftOptions(max_features=arguments.max_features)
    sequences = [
        ImageSequence(
            name=item.name,
            features=tuple(extract_sift(read_picture(path), options) for path in item.pictures),
            homographies=item.homographies,
        )
        for item in progress(find_sequences(arguments.folder), "extracting")
    ]
    victims = _few(_extracted(arguments.victims, most=arguments.photographs, least=arguments.per_image), arguments.per_image)
    if not victims:
        raise InputError(f"no photograph of --victims has {arguments.per_image} features; ask for fewer with --per-image")
    pools = Pools.split(
        read_codebook(arguments.codebook) if arguments.codebook else bundled_codebook(),
        read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys(),
    )
    effort = Effort(structural=arguments.structural, tours=arguments.tours, threads=arguments.threads)
    results = defense_study(sequences, victims, pools, known, effort=effort, workers=arguments.threads)
    rows: list[DefenseRow] = []
    for row in progress(results, "attacking defenses", len(known)):
        rows.append(row)
        if str(arguments.json) != "-":  # hours may go into a table: what is done is kept
            write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    if str(arguments.json) == "-":
        write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    else:
        for table in (accuracy_table(rows), near_table(rows), far_table(rows)):
            say_table(arguments, table)
            say(arguments, "")
        explain(arguments, "shares of descriptors that attacks recover; <: the upper end of the 95 % interval")
    if arguments.figure:
        draw_defenses(arguments.figure, rows)
        report(arguments, arguments.figure, "the figure")
    return 0


def _few(images: Sequence[Features], count: int) -> list[Features]:
    """Random features of each photograph, `count` of each."""
    return [item.drawn(count, np.random.default_rng(k)) for k, item in enumerate(images)]

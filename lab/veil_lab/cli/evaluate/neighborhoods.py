"""`veil evaluate neighborhoods`: the attack on lines by neighbors, learned from descriptors or given, by rule of lines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.attacks.positions.pair_network import PairNetwork
from veil.cli.common import (
    Bar,
    add_command,
    add_json,
    at_least,
    explain,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.attack_networks import bundled_pair_network, read_pair_network, write_pair_network
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.mechanisms.public import publish
from veil.report.tables import Table, fixed, names, numbers, percent
from veil_lab.studies.attacks.neighborhoods import (
    ATTACKS,
    RULES,
    WITHIN_PX,
    NeighborhoodRow,
    NeighborhoodTrial,
    neighborhood_rows,
    neighborhood_trials,
)
from veil_lab.studies.attacks.positions import NEIGHBORS
from veil_lab.training.pair_training import PairTraining, TrainingPhotograph, train_pairs

EXAMPLES = """\
  veil evaluate neighborhoods strecha/ --json neighborhoods.json
  veil evaluate neighborhoods photos/ --attacker others/ --write-network neighbors.npz
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate neighborhoods` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "neighborhoods",
        "positions recovered from lines by neighbors, learned and given",
        "Hide the keypoints of photographs in lines of every rule, and recover them from the lines of their neighbors\n"
        "(Chelani et al. 2024): given the true neighbors, and with those that a network tells from the descriptors. The\n"
        "network is the bundled one, one of a file, or trained here on the attacker's photographs (some minutes).",
        EXAMPLES,
    )
    parser.add_argument("victims", type=Path, nargs="+", metavar="PHOTOS", help="the victims: photographs that are attacked")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--attacker", type=Path, nargs="+", metavar="PHOTOS", help="the attacker's photographs, to train a network on"
    )
    source.add_argument("--network", type=Path, metavar="FILE", help="network of --write-network (default: the bundled one)")
    parser.add_argument("--write-network", type=Path, metavar="FILE", help="with --attacker: keep the network (.npz)")
    parser.add_argument(
        "--steps", type=at_least(1), default=PairTraining().steps, help="steps of the training (default %(default)s)"
    )
    parser.add_argument(
        "--photographs", type=at_least(1), default=20, help="photographs attacked at most (default %(default)s)"
    )
    parser.add_argument(
        "--max-features", type=at_least(100), default=1000, help="features per image at most (default %(default)s)"
    )
    parser.add_argument("--rules", nargs="+", choices=tuple(RULES), default=tuple(RULES), help="rules of lines (default: all)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of the training and of what is drawn (default 0)")
    add_json(parser)
    parser.set_defaults(run=_neighborhoods)


def _neighborhoods(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    if arguments.write_network and not arguments.attacker:
        raise InputError("--write-network belongs to --attacker: nothing is trained without it")
    victims = _extracted(arguments.victims, arguments, most=arguments.photographs)
    network = _network(arguments, {item.image_digest for item in victims.values()})
    trials: list[NeighborhoodTrial] = []
    for name, item in progress(list(victims.items()), "attacking"):
        trials += neighborhood_trials(name, item, network=network, rules=arguments.rules, seed=arguments.seed)
    rows = neighborhood_rows(trials)
    write_json(arguments.json, {"network": network.source, "rows": [row.as_json() for row in rows]})
    if str(arguments.json) != "-":
        say(arguments, f"{len(victims)} photographs; network: {network.source}")
        say_table(arguments, neighborhood_table(rows))
        named = {row.rule: RULES[row.rule] for row in rows} | {row.attack: ATTACKS[row.attack] for row in rows}
        explain(arguments, *(f"{name}: {text}" for name, text in named.items()))
    return 0


def _network(arguments: argparse.Namespace, attacked: set[bytes]) -> PairNetwork:
    """The network of the attack. Raises InputError for a training with photographs that are attacked (`attacked`: digests)."""
    if arguments.network:
        return read_pair_network(arguments.network)
    if not arguments.attacker:
        return bundled_pair_network()
    owned = _extracted(arguments.attacker, arguments, most=None)
    shared = sum(item.image_digest in attacked for item in owned.values())
    if shared:
        raise InputError(f"{shared} photographs are both the attacker's and attacked; give others with --attacker")
    photographs = [
        TrainingPhotograph(
            vectors=publish(item).vectors.astype(np.float32),
            keypoints=item.keypoints,
            size_px=(item.camera.width_px, item.camera.height_px),
        )
        for item in owned.values()
    ]
    options = PairTraining(steps=arguments.steps, seed=arguments.seed)
    source = f"{len(photographs)} photographs, {options.steps} steps, seed {options.seed}"
    space = publish(next(iter(owned.values()))).space
    with Bar("training") as bar:
        network = train_pairs(photographs, space=space, source=source, options=options, progress=bar)
    if arguments.write_network:
        write_pair_network(arguments.write_network, network)
        report(arguments, arguments.write_network, "the network")
    return network


def _extracted(paths: Sequence[Path], arguments: argparse.Namespace, *, most: int | None) -> dict[str, Features]:
    """SIFT features by name of at most `most` photographs, evenly taken from all that have enough features.

    Raises InputError if none has.
    """
    pictures = named_pictures(paths)
    if most is not None and len(pictures) > most:
        pictures = [pictures[k] for k in np.linspace(0, len(pictures) - 1, most).round().astype(int)]
    found = {}
    for name, path in progress(pictures, "extracting"):
        try:
            item = extract_sift(read_picture(path), SiftOptions(max_features=arguments.max_features))
        except InputError:  # a blank photograph has nothing to attack
            continue
        if len(item) >= NEIGHBORS + 2:
            found[name] = item
    if not found:
        raise InputError(f"none of the photographs has {NEIGHBORS + 2} features; give others")
    return found


def neighborhood_table(rows: Sequence[NeighborhoodRow]) -> Table:
    """The table of the command."""
    return Table(
        columns=[
            *names("lines", "attack"),
            *numbers("features", "undecided", "median, px", *(f"within {limit:g} px, %" for limit in WITHIN_PX)),
        ],
        rows=[
            (
                row.rule,
                row.attack,
                str(row.features),
                str(row.undecided),
                fixed(row.median_px, 1),
                *(percent(share) for share in row.within.values()),
            )
            for row in rows
        ],
        labels=2,
    )

"""`veil evaluate neighborhoods`: the attack on lines by neighbors, learned from descriptors or given, by rule of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.attacks.positions.pair_network import PairNetwork
from veil.cli.common import (
    Bar,
    Commands,
    at_least,
    explain,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.records import Record, add_record_command, json_file, option, positional
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


@dataclass(frozen=True, kw_only=True)
class EvaluateNeighborhoods(Record):
    """Hide the keypoints of photographs in lines of every rule, and recover them from the lines of their neighbors
    (Chelani et al. 2024): given the true neighbors, and with those that a network tells from the descriptors. The
    network is the bundled one, one of a file, or trained here on the attacker's photographs (some minutes).
    """

    victims: tuple[Path, ...] = positional("the victims: photographs that are attacked", metavar="PHOTOS")
    attacker: tuple[Path, ...] | None = option("the attacker's photographs, to train a network on", metavar="PHOTOS")
    network: Path | None = option("network of --write-network (default: the bundled one)", metavar="FILE")
    write_network: Path | None = option("with --attacker: keep the network (.npz)", metavar="FILE")
    steps: int = option("steps of the training (default %(default)s)", default=PairTraining().steps, parse=at_least(1))
    photographs: int = option("photographs attacked at most (default %(default)s)", default=20, parse=at_least(1))
    max_features: int = option("features per image at most (default %(default)s)", default=1000, parse=at_least(100))
    rules: tuple[str, ...] = option("rules of lines (default: all)", default=tuple(RULES), choices=tuple(RULES))
    seed: int = option("seed of the training and of what is drawn (default 0)", default=0, parse=at_least(0))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate neighborhoods` to the subparsers `protocols`."""
    summary = "positions recovered from lines by neighbors, learned and given"
    add_record_command(protocols, "neighborhoods", summary, EXAMPLES, EvaluateNeighborhoods, _neighborhoods)


def _neighborhoods(arguments: EvaluateNeighborhoods) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    if arguments.attacker and arguments.network:
        raise InputError("--attacker trains a network, and --network names one; give one of them")
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


def _network(arguments: EvaluateNeighborhoods, attacked: set[bytes]) -> PairNetwork:
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


def _extracted(paths: Sequence[Path], arguments: EvaluateNeighborhoods, *, most: int | None) -> dict[str, Features]:
    """SIFT features by name of at most `most` photographs, evenly taken from all that have enough features.

    Raises InputError if none has.
    """
    pictures = named_pictures(paths)
    if most is not None and len(pictures) > most:
        pictures = [pictures[k] for k in np.linspace(0, len(pictures) - 1, most).round().astype(int)]
    features = {}
    for name, path in progress(pictures, "extracting"):
        try:
            item = extract_sift(read_picture(path), SiftOptions(max_features=arguments.max_features))
        except InputError:  # a blank photograph has nothing to attack
            continue
        if len(item) >= NEIGHBORS + 2:
            features[name] = item
    if not features:
        raise InputError(f"none of the photographs has {NEIGHBORS + 2} features; give others")
    return features


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

"""`veil evaluate sequences`: several frames against one image, at one epsilon of all that leaves."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.audit.statistics import clopper_pearson
from veil.cli.common import Bar, Commands, at_least, quiet_colmap, say_table, write_json
from veil.cli.records import add_record_command, json_file, option
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.public import publish
from veil.report.tables import Name, Number, Table, fixed, interval, numbers
from veil_lab.cli.evaluate.poses.upright import extent_of
from veil_lab.cli.evaluate.scene_arguments import (
    AskedExtraction,
    AskedScenes,
    extracted_features,
    reference_place,
    stranger_features,
)
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.localization.false_acceptance import Fold, fold_without
from veil_lab.studies.localization.upright_localization import DELTA
from veil_lab.studies.sequences.localization import (
    Drift,
    Sent,
    SequenceRow,
    SequenceSetting,
    SequenceStudy,
    SequenceTrial,
    groups,
    limits_of,
    sequence_row,
)

# Largest epsilon of one feature that is looked for.
MOST_EPSILON = 12.0
EXAMPLES = """\
  veil evaluate sequences strecha/fountain-P11 lund_door --json sequences.json
  veil evaluate sequences fox --frames 1 2 4 --epsilons 81.9 --features 4000
  veil evaluate sequences strecha/fountain-P11 --epsilons 0 --nearest 3
  veil evaluate sequences lund_door --only-false --strangers photos/bsds500 --mirrored
"""


def _epsilons(text: str) -> float:
    """The epsilon of all that leaves that an argument names."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {text!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class EvaluateSequences(AskedScenes, AskedExtraction):
    """Leave neighboring photographs of each scene out of a map in turns, and localize each alone and all together as frames of
    one camera, at the same epsilon of all that leaves. A query takes one thread, and some three seconds.
    """

    left_out: int = option("neighbors that are left out of a map together (default %(default)s)", default=4, parse=at_least(2))
    frames: tuple[int, ...] = option(
        "numbers of neighbors that are asked together, 1 for one image alone (default 1 4)",
        default=(1, 4),
        parse=at_least(1),
        metavar="N",
    )
    epsilons: tuple[float, ...] = option(
        "epsilons of all that leaves of a query, at delta 1e-6; 0: positions alone (default 539.4 211.9 81.9)",
        default=(539.4, 211.9, 81.9),
        parse=_epsilons,
        metavar="EPSILON",
    )
    features: int = option(
        "features of a query, of all its frames together (default %(default)s)", default=1000, parse=at_least(8)
    )
    word_count: int = option(
        "number of words in the dictionary (default %(default)s)", default=4096, parse=at_least(2), metavar="K"
    )
    medium: bool = option("ask one image with the features that frames would send, too", default=False)
    nearest: int = option("images of the map that are known to be near (default 0)", default=0, parse=at_least(0), metavar="N")
    drift_deg: float = option(
        "turn by which the motions drift from frame to frame, in degrees (default %(default)g)", default=0.02
    )
    drift_percent: float = option("drift of a motion's length, in percent (default %(default)g)", default=0.2)
    strangers: Path | None = option("photographs of none of these places", metavar="FOLDER")
    most_strangers: int = option("strangers that are asked at most (default %(default)s)", default=400, parse=at_least(4))
    mirrored: bool = option("ask mirrored photographs of each scene", default=False)
    only_false: bool = option("ask nothing but strangers and mirrored photographs", default=False)
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate sequences` to the subparsers `protocols`."""
    summary = "several frames against one image, at one epsilon of all that leaves"
    add_record_command(protocols, "sequences", summary, EXAMPLES, EvaluateSequences, _sequences)


def _sequences(arguments: EvaluateSequences) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    settings = _settings(arguments)
    scenes = [read_scene(folder) for folder in arguments.scenes]
    strangers = list(
        stranger_features(arguments.strangers, max_features=arguments.max_features, most=arguments.most_strangers).items()
    )
    trials: list[SequenceTrial] = []
    rows: list[SequenceRow] = []
    for index, scene in enumerate(scenes):
        own = []
        with tempfile.TemporaryDirectory(prefix="veil-sequences-") as workdir:
            for study, count, number in _studies(scene, arguments, Path(workdir)):
                if not arguments.only_false:
                    own += list(study.true_trials(settings))
                asked = [setting for setting in settings if setting.frames > 1] or settings
                share = dict(strangers[index :: len(scenes)][number::count])
                if share or arguments.mirrored:
                    own += list(study.false_trials(asked, share, mirrored=arguments.mirrored and number == 0))
        trials += own
        rows += _rows(own, settings, scene.name)
        say_table(arguments, sequences_table(_rows(own, settings, scene.name)))
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    if len(scenes) > 1:
        rows += _rows(trials, settings, "all")
        say_table(arguments, sequences_table(_rows(trials, settings, "all")))
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    return 0


def _settings(arguments: EvaluateSequences) -> list[SequenceSetting]:
    """The settings asked at each epsilon: one image and frames."""
    asked: list[tuple[Sent, int]] = [("frames" if count > 1 else "one image", count) for count in arguments.frames]
    asked += [("one image, medium features", 1)] if arguments.medium else []
    return [
        SequenceSetting(
            sent=kind,
            frames=count,
            features=arguments.features,
            epsilon=epsilon_of_one(arguments.features, arguments.word_count, total),
            m=2 if total else 1,
            words=arguments.word_count,
            near=arguments.nearest,
        )
        for total in arguments.epsilons
        for kind, count in asked
    ]


def epsilon_of_one(features: int, words: int, total: float, *, m: int = 2) -> float:
    """The largest epsilon of a feature, a multiple of 0.01, with which all together have `total` at most."""
    if total == 0:
        return 0.0
    low, high = 0, round(100 * MOST_EPSILON)
    while high - low > 1:
        middle = (low + high) // 2
        mechanism = SubsetMechanism(dictionary_size=words, epsilon=middle / 100, m=m)
        low, high = (middle, high) if composed_epsilon({mechanism: features}, DELTA) <= total else (low, middle)
    return low / 100


def _studies(scene: ReferenceScene, arguments: EvaluateSequences, workdir: Path) -> Iterator[tuple[SequenceStudy, int, int]]:
    """The studies of a scene, one for each group of neighbors, with the number of groups and the number of this one."""
    place = reference_place(scene, extracted_features(scene, max_features=arguments.max_features))
    names = sorted(place.features)
    matches = match_pairs({name: publish(one) for name, one in place.features.items()}, all_pairs(names), workers=1)
    left_out = groups(names, arguments.left_out)
    drift = Drift(turn_deg=arguments.drift_deg, share=arguments.drift_percent / 100)
    with Bar(f"{scene.name}: asking") as bar:
        for number, held_out in enumerate(left_out):
            fold: Fold | None = fold_without(place, held_out, matches, workdir / str(number))
            if fold is not None:
                limits = limits_of(scene.metric, extent_of(scene))
                yield SequenceStudy(fold=fold, drift=drift, limits=limits, words=arguments.word_count), len(left_out), number
            bar(number + 1, len(left_out))


def _rows(trials: Sequence[SequenceTrial], settings: Sequence[SequenceSetting], scene: str) -> list[SequenceRow]:
    """A row for each setting that was asked."""
    own = [[trial for trial in trials if trial.setting == setting] for setting in settings]
    return [sequence_row(group, scene) for group in own if group]


def sequences_table(rows: Sequence[SequenceRow]) -> Table:
    """The table of one scene, or of all: photographs with a right pose, then false queries, where there are any."""
    asked = "frames", "features", "epsilon", "epsilon of all"
    true = "right", "95 % interval", "queries with a pose"
    false = "false accepted", "least false log10 NFA", "median, s"
    return Table(
        columns=[Number("#"), Name("scene"), Name("sent"), *numbers(*asked, *true, *false)],
        rows=[(str(number), *_cells(row)) for number, row in enumerate(rows, start=1)],
        labels=3,
    )


def _cells(row: SequenceRow) -> tuple[str, ...]:
    """The cells of a row; what was not asked is empty."""
    setting = row.setting
    true: tuple[str, ...] = ("",) * 3
    if row.photographs:
        low, high = clopper_pearson(row.right, row.photographs, confidence=0.95)
        true = f"{row.right} of {row.photographs}", interval(low, high, 0), f"{row.accepted} of {row.queries}"
    return (
        row.scene,
        setting.sent,
        str(setting.frames),
        str(setting.features),
        outward(setting.epsilon, 6),
        outward(setting.epsilon_of_all),
        *true,
        f"{row.false_accepts} of {row.false_queries}" if row.false_queries else "",
        fixed(row.least_false_log10_nfa, 1),
        fixed(row.median_seconds, 1),
    )

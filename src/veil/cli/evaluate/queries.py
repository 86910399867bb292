"""`veil evaluate queries`: are false queries refused, true ones accepted, and lines as accurate as points?"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.cli.common import Bar, add_command, add_json, at_least, picture, progress, quiet_colmap, report, say, write_json
from veil.cli.evaluate.forged import forged_answers, strange_pictures, told_forged
from veil.cli.progress import tracker
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.pictures import find_pictures, read_picture
from veil.files.scenes import ReferenceScene, read_scene
from veil.localization.by_distance import LocalizeOptions
from veil.report.queries import draw_forged, draw_queries
from veil.statistics import clopper_pearson
from veil.studies.localization.acceptance_counts import Tally, Verdict, tally
from veil.studies.localization.false_acceptance import Fold, Place, Protocol, fold_maps
from veil.studies.localization.forged_answers import Answer, counted
from veil.studies.localization.query_runner import Answers, count, examinations, examine_all
from veil.studies.localization.robustness import ALL, Cell, Strained, cells, default_loads

EXAMPLES = """\
  veil evaluate queries strecha/fountain-P11 strecha/Herz-Jesus-P8 --json queries.json --figure queries.png
  veil evaluate queries strecha/* --same-place entry-P10 castle-P19 --strangers sacre_coeur/
  veil evaluate queries lund_door fox --forged 3 --only-forged --strangers photos/ --max-features 1500 --json forged.json
"""
NEEDED_SHARE, NEEDED_FALSE, ALLOWED_RATIO = 0.99, 100, 1.3


def register(protocols: Any) -> None:
    """Add the protocol."""
    parser = add_command(
        protocols,
        "queries",
        "true, foreign and random queries from lines, and lines against points",
        "Hold out photographs of each scene in turn, map the others, and localize the held-out ones from lines and from\n"
        "points; ask the same maps about photographs of the other scenes, of a folder of strangers, and about noise, which\n"
        "must be refused. Then compare the errors of lines and points on the same matches, with planted wrong ones.\n"
        "A scene is a folder with images/ and K.txt + gt_dense_cameras/ or a COLMAP text model. Four scenes of ten\n"
        "photographs take about ten minutes on two cores.\n"
        "With --forged the first maps are also asked, in five forms, about posters, screens, collages, repeated textures,\n"
        "text, foliage, and right features in wrong places, and about true crops, zooms, blurred, dark and sparse ones.",
        EXAMPLES,
    )
    parser.add_argument("scenes", type=Path, nargs="+", metavar="SCENE", help="folders with reference cameras")
    parser.add_argument("--strangers", type=Path, metavar="FOLDER", help="photographs of none of these places")
    parser.add_argument(
        "--same-place",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME",
        help="scenes that show the same building, which are not asked about each other (may be repeated)",
    )
    parser.add_argument(
        "--folds", type=at_least(2), default=3, help="photographs are held out in this many turns (default %(default)s)"
    )
    parser.add_argument("--draws", type=at_least(1), default=3, help="of lines, a true query (default %(default)s)")
    parser.add_argument("--noise", type=at_least(0), default=10, help="noise queries of either kind, a scene (default 10)")
    parser.add_argument("--strain-draws", type=at_least(1), default=5, help="of matches, a load (default %(default)s)")
    parser.add_argument("--forged", type=at_least(1), metavar="DRAWS", help="ask forgeries too, so many of each kind")
    parser.add_argument("--only-forged", action="store_true", help="ask nothing but forgeries and their true counterparts")
    parser.add_argument(
        "--forged-features", type=at_least(100), default=800, help="of a forged query at most (default %(default)s)"
    )
    parser.add_argument("--forged-figure", type=picture, metavar="FILE", help="draw the evidence of forgeries (.png or .svg)")
    parser.add_argument("--max-features", type=at_least(100), default=4096, help="per image (default %(default)s)")
    parser.add_argument("--first-octave", type=int, default=0, help="-1 doubles the image first (default %(default)s)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes (default 2)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw errors and evidence (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_queries)


def _queries(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others_of = apart(scenes, arguments.same_place)
    protocol = Protocol(folds=arguments.folds, draws=arguments.draws, noise=arguments.noise, workers=arguments.workers)
    if arguments.only_forged and not arguments.forged:
        raise InputError("--only-forged needs --forged DRAWS: how many of each kind are to be asked")
    features = {scene.name: photographs(scene, arguments) for scene in scenes}
    answers = _forged(scenes, features, arguments) if arguments.forged else []
    if arguments.only_forged:
        return 0
    strangers = _strangers(arguments)
    verdicts: list[Verdict] = []
    strained: list[Strained] = []
    for scene in scenes:
        others = dict(strangers)
        for name in others_of[scene.name]:
            others |= {f"{name}/{photo}": item for photo, item in features[name].items()}
        place = place_of(scene, features[scene.name])
        examined = list(_answers(place, others, protocol, arguments))
        verdicts += [verdict for found in examined for verdict in found.verdicts]
        strained += [item for found in examined for item in found.strained]
        say(arguments, _line(scene.name, verdicts))
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(verdicts, strained, answers))
    if str(arguments.json) == "-":
        write_json(arguments.json, _record(verdicts, strained, answers))
    for line in ["", *_told(verdicts, tally(verdicts)), "", *_compared(cells(strained))]:
        say(arguments, line)
    if arguments.figure:
        draw_queries(arguments.figure, verdicts, strained, threshold=-protocol.localize.max_log10_nfa)
        report(arguments, arguments.figure, "the figure")
    return 0


def _forged(
    scenes: Sequence[ReferenceScene], features: Mapping[str, dict[str, Features]], arguments: argparse.Namespace
) -> list[Answer]:
    """Forgeries and their true counterparts, each answer written when it is there."""
    strangers = strange_pictures(arguments.strangers)
    answers: list[Answer] = []

    def done(answer: Answer) -> None:
        answers.append(answer)
        if str(arguments.json) != "-" and len(answers) % 25 == 0:  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record([], [], answers))

    for scene in scenes:
        forged_answers(scene, place_of(scene, features[scene.name]), strangers, arguments, done)
        own = [item for item in answers if item.place == scene.name]
        false, true = ([item for item in own if item.true == kind] for kind in (False, True))
        say(
            arguments,
            f"{scene.name}: forged queries accepted {sum(item.accepted for item in false)} of {len(false)}, "
            f"true ones {sum(item.accepted for item in true)} of {len(true)}",
        )
    for line in ["", *told_forged(answers)]:
        say(arguments, line)
    if arguments.only_forged or str(arguments.json) != "-":
        write_json(arguments.json, _record([], [], answers))
    if arguments.forged_figure:
        draw_forged(arguments.forged_figure, answers, threshold=-LocalizeOptions().max_log10_nfa)
        report(arguments, arguments.forged_figure, "the figure of forgeries")
    return answers


def _record(verdicts: Sequence[Verdict], strained: Sequence[Strained], answers: Sequence[Answer]) -> dict:
    return {
        "forged": [answer.as_json() for answer in answers],
        "forged_counts": [item.as_json() for item in counted(answers)],
        "verdicts": [verdict.as_json() for verdict in verdicts],
        "tallies": [item.as_json() for item in tally(verdicts)],
        "strained": [item.as_json() for item in strained],
        "cells": [cell.as_json() for cell in cells(strained)],
    }


def _line(name: str, verdicts: Sequence[Verdict]) -> str:
    """One scene for people."""
    parts = []
    for word, kinds in (("true", {"true"}), ("false", {"other place", "random", "shuffled"})):
        asked = [
            verdict for verdict in verdicts if verdict.place == name and verdict.kind in kinds and verdict.sight != "points"
        ]
        parts.append(f"{word} queries accepted from lines {sum(verdict.accepted for verdict in asked)} of {len(asked)}")
    return f"{name}: {', '.join(parts)}"


def apart(scenes: Sequence[ReferenceScene], groups: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """For each scene the others that show another place. Raises InputError for what cannot be evaluated."""
    names = [scene.name for scene in scenes]
    if len(set(names)) < len(names):
        raise InputError("two scenes have the same folder name, and results could not be told apart; rename one")
    for scene in scenes:
        if not scene.cam_from_world:
            raise InputError(f"{scene.name} has no reference cameras: it needs gt_dense_cameras/ or a COLMAP text model")
        if len(scene.pictures) < 4:
            raise InputError(f"{scene.name} has {len(scene.pictures)} photographs; leaving some out needs four or more")
    unknown = {name for group in groups for name in group} - set(names)
    if unknown:
        raise InputError(f"--same-place names {', '.join(sorted(unknown))}, but the scenes are {', '.join(names)}")
    together = {frozenset((a, b)) for group in groups for a in group for b in group}
    return {name: [other for other in names if other != name and frozenset((name, other)) not in together] for name in names}


def photographs(scene: ReferenceScene, arguments: argparse.Namespace) -> dict[str, Features]:
    options = SiftOptions(max_features=arguments.max_features, first_octave=arguments.first_octave)
    found = {}
    for name, path in progress(sorted(scene.pictures.items()), f"{scene.name}: extracting"):
        found[name] = extract_sift(read_picture(path, camera=scene.cameras[name]), options)
    return found


def _strangers(arguments: argparse.Namespace) -> dict[str, Features]:
    if arguments.strangers is None:
        return {}
    options = SiftOptions(max_features=arguments.max_features, first_octave=arguments.first_octave)
    paths = find_pictures(arguments.strangers)
    if not paths:
        raise InputError(f"{arguments.strangers} holds no photographs")
    return {f"strangers/{path.name}": extract_sift(read_picture(path), options) for path in progress(paths, "strangers")}


def place_of(scene: ReferenceScene, features: dict[str, Features]) -> Place:
    """With measured gravity, or the reference's vertical, or the mean of the cameras' y-axes as such."""
    down = scene.down
    if down is None:
        down = np.mean([pose.rotation[1] for pose in scene.cam_from_world.values()], axis=0)
        down /= np.linalg.norm(down)
    exact = {name: pose.rotation @ down for name, pose in scene.cam_from_world.items()}
    return Place(name=scene.name, features=features, cam_from_world=scene.cam_from_world, down={**exact, **scene.gravity})


def _answers(place: Place, others: dict[str, Features], protocol: Protocol, arguments: argparse.Namespace) -> Iterator[Answers]:
    folds: list[Fold]
    with tempfile.TemporaryDirectory(prefix="veil-queries-") as workdir, Bar(f"{place.name}: mapping") as bar:
        folds = fold_maps(place, protocol, workdir=Path(workdir), progress=bar)
    asked = examinations(folds, others, default_loads(arguments.strain_draws), protocol)
    total = count(folds, others, protocol)
    with tracker(f"{place.name}: localizing", total) as shown:
        for answers in examine_all(asked, workers=protocol.workers, prepare=quiet_colmap):
            shown.update()
            yield answers


def _told(verdicts: Sequence[Verdict], tallies: Sequence[Tally]) -> Iterator[str]:
    yield f"{'query':12} {'seen as':14} accepted     95 % interval     -log10 NFA"
    for item in tallies:
        word = "least" if item.kind == "true" else "most"
        text = f"{item.kind:12} {item.sight:14} {f'{item.accepted}/{item.total}':>8}"
        text += f"  {100 * item.low:6.2f}-{100 * item.high:6.2f} %  {word} {item.margin:.1f}"
        yield text + (f"  {item.astray} turned by more than 5 deg" if item.astray else "")
    true = [verdict for verdict in verdicts if verdict.kind == "true" and verdict.sight != "points"]
    false = [verdict for verdict in verdicts if verdict.kind != "true" and verdict.sight != "points"]
    share = sum(verdict.accepted for verdict in true) / len(true)
    wrong = sum(verdict.accepted for verdict in false)
    met = _met(share >= NEEDED_SHARE)
    yield f"true queries accepted from lines: {100 * share:.1f} % of {len(true)} (needed 99 %): {met}"
    if not false:
        yield "no false queries were asked: give more scenes, --strangers or --noise"
        return
    low, high = clopper_pearson(wrong, len(false), confidence=0.95)
    met = _met(wrong == 0) if len(false) >= NEEDED_FALSE else f"too few to tell (needed {NEEDED_FALSE})"
    yield f"false queries accepted from lines: {wrong} of {len(false)} ({100 * low:.2f}-{100 * high:.2f} %; needed 0): {met}"


def _compared(compared: Sequence[Cell]) -> Iterator[str]:
    yield f"{'matches':9} {'wrong':>6} {'seen as':14} {'pairs':>5}  points     lines      ratio  within scenes  without a pose"
    for cell in compared:
        matches = {ALL: "all >=200", -1: "together"}.get(cell.matches, str(cell.matches))
        share = f"{100 * cell.wrong_share:.0f} %" if cell.matches != -1 else "<=50 %"
        yield (
            f"{matches:9} {share:>6} {cell.sight:14} {cell.count:5}  {_number(cell.points_median):9}  "
            f"{_number(cell.lines_median):9}  {_number(cell.ratio, 2):5}  {_number(cell.ratio_within, 2):13}  "
            f"{cell.refused_points} points, {cell.refused_lines} lines" + ("" if cell.required else "  (not required)")
        )
    required = [cell for cell in compared if cell.required]
    if not required:
        yield "no query has 200 right matches: lines and points were not compared; extract more features"
        return
    for name in ("ratio", "ratio_within"):
        worst = max(value if math.isfinite(value := getattr(cell, name)) else math.inf for cell in required)
        said = "of all scenes together" if name == "ratio" else "within scenes"
        yield (
            f"median error of lines over that of points, {said}, worst of the required: {worst:.2f} (needed {ALLOWED_RATIO}): "
            + (_met(worst <= ALLOWED_RATIO))
        )


def _met(holds: bool) -> str:
    return "met" if holds else "NOT met"


def _number(value: float, digits: int = 5) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "none"

"""`veil evaluate queries`: whether false queries are refused, true ones accepted, and lines as accurate as points."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.cli.common import Bar, add_command, add_json, at_least, picture, progress, quiet_colmap, report, say, write_json
from veil.cli.engine_arguments import add_engine_arguments, opened_engine
from veil.cli.progress import tracker
from veil.errors import InputError
from veil.extraction import Extractor, extract
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.files.weights import load_network
from veil.places.poses.options import LocalizeOptions
from veil_lab.cli.evaluate.descriptors import extraction_options
from veil_lab.cli.evaluate.forged import forged_answers, strange_pictures
from veil_lab.cli.evaluate.query_tables import say_answers, say_forged
from veil_lab.cli.evaluate.scene_arguments import add_extraction, add_same_place
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.report.queries import draw_forged, draw_queries
from veil_lab.studies.localization.acceptance_counts import QueryAnswer, acceptance_counts
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, ReferencePlace, fold_maps
from veil_lab.studies.localization.forged_answers import ForgedAnswer, group_counts
from veil_lab.studies.localization.query_runner import JobResult, job_count, query_jobs, run_jobs
from veil_lab.studies.localization.robustness import (
    RobustnessTrial,
    default_levels,
    error_summaries,
)

EXAMPLES = """\
  veil evaluate queries strecha/fountain-P11 strecha/Herz-Jesus-P8 --json queries.json --figure queries.png
  veil evaluate queries strecha/* --same-place entry-P10 castle-P19 --strangers sacre_coeur/
  veil evaluate queries lund_door fox --forged 3 --only-forged --strangers photos/ --max-features 1500 --json forged.json
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate queries` to the subparsers `protocols`."""
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
    add_same_place(parser)
    parser.add_argument(
        "--folds", type=at_least(2), default=3, help="photographs are held out in so many turns (default %(default)s)"
    )
    parser.add_argument("--draws", type=at_least(1), default=3, help="draws of lines for each true query (default %(default)s)")
    parser.add_argument(
        "--noise", type=at_least(0), default=10, help="noise queries of either kind for each scene (default %(default)s)"
    )
    parser.add_argument(
        "--strain-draws", type=at_least(1), default=5, help="draws of matches at each share of wrong ones (default %(default)s)"
    )
    parser.add_argument("--forged", type=at_least(1), metavar="DRAWS", help="ask forgeries too, so many draws of each kind")
    parser.add_argument("--only-forged", action="store_true", help="ask nothing but forgeries and their true counterparts")
    parser.add_argument(
        "--forged-features", type=at_least(100), default=800, help="features of a forged query at most (default %(default)s)"
    )
    parser.add_argument("--forged-figure", type=picture, metavar="FILE", help="draw the evidence of forgeries (.png or .svg)")
    add_extraction(parser)
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes (default %(default)s)")
    add_engine_arguments(parser)
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw errors and evidence (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_queries)


def _queries(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others_of = other_places(scenes, arguments.same_place)
    protocol = QueryProtocol(folds=arguments.folds, draws=arguments.draws, noise=arguments.noise, workers=arguments.workers)
    if arguments.only_forged and not arguments.forged:
        raise InputError("--only-forged needs --forged DRAWS: how many of each kind are to be asked")
    features = {scene.name: extracted_features(scene, arguments) for scene in scenes}
    forged = _forged(scenes, features, arguments) if arguments.forged else []
    if arguments.only_forged:
        return 0
    strangers = stranger_features(arguments)
    answers: list[QueryAnswer] = []
    trials: list[RobustnessTrial] = []
    for scene in scenes:
        others = dict(strangers)
        for name in others_of[scene.name]:
            others |= {f"{name}/{photo}": item for photo, item in features[name].items()}
        place = reference_place(scene, features[scene.name])
        for result in _results(place, others, protocol, arguments):
            answers += result.answers
            trials += result.trials
        say(arguments, _line(scene.name, answers))
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(answers, trials, forged))
    if str(arguments.json) == "-":
        write_json(arguments.json, _record(answers, trials, forged))
    say_answers(arguments, answers, error_summaries(trials))
    if arguments.figure:
        draw_queries(arguments.figure, answers, trials, threshold=-protocol.localize.max_log10_nfa)
        report(arguments, arguments.figure, "the figure")
    return 0


def _forged(
    scenes: Sequence[ReferenceScene], features: Mapping[str, dict[str, Features]], arguments: argparse.Namespace
) -> list[ForgedAnswer]:
    """Answers to forged queries and their true counterparts in all scenes; they are written and drawn as arguments say."""
    strangers = strange_pictures(arguments.strangers)
    answers: list[ForgedAnswer] = []

    def done(answer: ForgedAnswer) -> None:
        """Keep one answer, and write all of them now and then."""
        answers.append(answer)
        if str(arguments.json) != "-" and len(answers) % 25 == 0:  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record([], [], answers))

    for scene in scenes:
        forged_answers(scene, reference_place(scene, features[scene.name]), strangers, arguments, done)
        own = [item for item in answers if item.place == scene.name]
        false, true = ([item for item in own if item.true == kind] for kind in (False, True))
        say(
            arguments,
            f"{scene.name}: forged queries accepted {sum(item.accepted for item in false)} of {len(false)}, "
            f"true ones {sum(item.accepted for item in true)} of {len(true)}",
        )
    say_forged(arguments, group_counts(answers))
    if arguments.only_forged or str(arguments.json) != "-":
        write_json(arguments.json, _record([], [], answers))
    if arguments.forged_figure:
        draw_forged(arguments.forged_figure, answers, threshold=-LocalizeOptions().max_log10_nfa)
        report(arguments, arguments.forged_figure, "the figure of forgeries")
    return answers


def _record(answers: Sequence[QueryAnswer], trials: Sequence[RobustnessTrial], forged: Sequence[ForgedAnswer]) -> dict:
    """The JSON record of the command."""
    return {
        "forged": [answer.as_json() for answer in forged],
        "forged_counts": [item.as_json() for item in group_counts(forged)],
        "verdicts": [answer.as_json() for answer in answers],
        "tallies": [item.as_json() for item in acceptance_counts(answers)],
        "strained": [item.as_json() for item in trials],
        "cells": [item.as_json() for item in error_summaries(trials)],
    }


def _line(name: str, answers: Sequence[QueryAnswer]) -> str:
    """The printed line of one scene."""
    parts = []
    for word, kinds in (("true", {"true"}), ("false", {"other place", "random", "shuffled"})):
        own = [item for item in answers if item.place == name and item.kind in kinds and item.observation != "points"]
        parts.append(f"{word} queries accepted from lines {sum(item.accepted for item in own)} of {len(own)}")
    return f"{name}: {', '.join(parts)}"


def other_places(scenes: Sequence[ReferenceScene], groups: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Names of the scenes that show another place than each scene, by its name; `groups` list scenes of one place.

    Raises InputError where two scenes have one name, a scene has no reference cameras or fewer than four photographs, or a
    group names an unknown scene.
    """
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


def extracted_features(
    scene: ReferenceScene, arguments: argparse.Namespace, descriptor: Extractor = "sift"
) -> dict[str, Features]:
    """Features of all photographs of a scene, by name; `arguments` have `max_features` and `first_octave`.

    Networks with keypoints of their own give as many features as SIFT may give, however small their scores are.
    """
    options = extraction_options(descriptor, arguments.max_features, arguments.first_octave)
    network, features = load_network(descriptor), {}
    for name, path in progress(sorted(scene.pictures.items()), f"{scene.name}: extracting {descriptor}"):
        features[name] = extract(read_picture(path, camera=scene.cameras[name]), descriptor, options, network)
    return features


def stranger_features(arguments: argparse.Namespace, *, most: int | None = None) -> dict[str, Features]:
    """Features of the photographs that `--strangers` names, by "strangers/file name"; with `most` so many of them, evenly.

    Raises InputError for an empty folder.
    """
    if arguments.strangers is None:
        return {}
    options = SiftOptions(max_features=arguments.max_features, first_octave=arguments.first_octave)
    paths = find_pictures(arguments.strangers)
    if not paths:
        raise InputError(f"{arguments.strangers} holds no photographs")
    paths = paths[:: -(-len(paths) // most)] if most else paths
    return {
        f"strangers/{path.name}": extract_sift(read_picture(path), options) for path in progress(paths, "extracting strangers")
    }


def reference_place(scene: ReferenceScene, features: dict[str, Features]) -> ReferencePlace:
    """The scene as a place for an evaluation, with gravity where it was measured.

    Elsewhere gravity is the reference's vertical, or where the reference has none the mean of the cameras' y-axes.
    """
    down = scene.down
    if down is None:
        down = np.mean([pose.rotation[1] for pose in scene.cam_from_world.values()], axis=0)
        down /= np.linalg.norm(down)
    exact = {name: pose.rotation @ down for name, pose in scene.cam_from_world.items()}
    known = {**exact, **scene.gravity}
    return ReferencePlace(name=scene.name, features=features, cam_from_world=scene.cam_from_world, down=known)


def _results(
    place: ReferencePlace, others: dict[str, Features], protocol: QueryProtocol, arguments: argparse.Namespace
) -> Iterator[JobResult]:
    """Results of all jobs of one place; `others` are photographs of other places."""
    folds: list[Fold]
    with tempfile.TemporaryDirectory(prefix="veil-queries-") as workdir, Bar(f"{place.name}: mapping") as bar:
        folds = fold_maps(place, protocol, workdir=Path(workdir), progress=bar)
    jobs = query_jobs(folds, others, default_levels(arguments.strain_draws), protocol)
    total = job_count(folds, others, protocol)
    with opened_engine(arguments) as engine, tracker(f"{place.name}: localizing", total) as shown:
        for result in run_jobs(jobs, engine=engine, prepare=quiet_colmap):
            shown.update()
            yield result

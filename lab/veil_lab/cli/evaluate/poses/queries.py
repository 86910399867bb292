"""`veil evaluate queries`: whether false queries are refused, true ones accepted, and lines as accurate as points."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import Bar, Commands, at_least, picture, quiet_colmap, report, say, write_json
from veil.cli.progress import tracker
from veil.cli.records import add_record_command, json_file, option
from veil.engine import open_engine
from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.places.poses.options import LocalizeOptions
from veil_lab.cli.evaluate.poses.query_tables import say_answers, say_forged
from veil_lab.cli.evaluate.scene_arguments import (
    AskedExtraction,
    AskedFolds,
    AskedSamePlaces,
    AskedScenes,
    extracted_features,
    other_places,
    reference_place,
    stranger_features,
)
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.report.queries import draw_forged, draw_queries
from veil_lab.studies.localization.acceptance_counts import QueryAnswer, acceptance_counts
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, ReferencePlace, fold_maps
from veil_lab.studies.localization.forged_answers import ForgedAnswer, form_localizer, group_counts
from veil_lab.studies.localization.forged_queries import ForgedOptions, forged_queries, true_counterparts
from veil_lab.studies.localization.query_runner import JobResult, job_count, query_jobs, run_jobs
from veil_lab.studies.localization.robustness import (
    RobustnessTrial,
    default_levels,
    error_summaries,
)

# Photographs of other places at most, of which forgeries are made.
MOST_STRANGERS = 80
EXAMPLES = """\
  veil evaluate queries strecha/fountain-P11 strecha/Herz-Jesus-P8 --json queries.json --figure queries.png
  veil evaluate queries strecha/* --same-place entry-P10 castle-P19 --strangers sacre_coeur/
  veil evaluate queries lund_door fox --forged 3 --only-forged --strangers photos/ --max-features 1500 --json forged.json
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateQueries(AskedScenes, AskedExtraction, AskedFolds, AskedSamePlaces):
    """Hold out photographs of each scene in turn, map the others, and localize the held-out ones from lines and from
    points; ask the same maps about photographs of the other scenes, of a folder of strangers, and about noise, which
    must be refused. Then compare the errors of lines and points on the same matches, with planted wrong ones.
    A scene is a folder with images/ and K.txt + gt_dense_cameras/ or a COLMAP text model. Four scenes of ten
    photographs take about ten minutes on two cores.
    With --forged the first maps are also asked, in five forms, about posters, screens, collages, repeated textures,
    text, foliage, and right features in wrong places, and about true crops, zooms, blurred, dark and sparse ones.
    """

    strangers: Path | None = option("photographs of none of these places", metavar="FOLDER")
    draws: int = option("draws of lines for each true query (default %(default)s)", default=3, parse=at_least(1))
    noise: int = option("noise queries of either kind for each scene (default %(default)s)", default=10, parse=at_least(0))
    strain_draws: int = option(
        "draws of matches at each share of wrong ones (default %(default)s)", default=5, parse=at_least(1)
    )
    forged: int | None = option("ask forgeries, too: number of draws of each kind", parse=at_least(1), metavar="DRAWS")
    only_forged: bool = option("ask nothing but forgeries and their true counterparts", default=False)
    forged_features: int = option("features of a forged query at most (default %(default)s)", default=800, parse=at_least(100))
    forged_figure: Path | None = option("draw the evidence of forgeries (.png or .svg)", parse=picture, metavar="FILE")
    workers: int = option("processes (default %(default)s)", default=2, parse=at_least(1))
    figure: Path | None = option("draw errors and evidence (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate queries` to the subparsers `protocols`."""
    summary = "true, foreign and random queries from lines, and lines against points"
    add_record_command(protocols, "queries", summary, EXAMPLES, EvaluateQueries, _queries)


def _queries(arguments: EvaluateQueries) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others_of = other_places(scenes, arguments.same_place)
    protocol = QueryProtocol(folds=arguments.folds, draws=arguments.draws, noise=arguments.noise, workers=arguments.workers)
    if arguments.only_forged and not arguments.forged:
        raise InputError("--only-forged needs --forged DRAWS: how many of each kind are to be asked")
    features = {scene.name: extracted_features(scene, max_features=arguments.max_features) for scene in scenes}
    forged = _forged(scenes, features, arguments) if arguments.forged else []
    if arguments.only_forged:
        return 0
    strangers = stranger_features(arguments.strangers, max_features=arguments.max_features)
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
    scenes: Sequence[ReferenceScene], features: Mapping[str, dict[str, Features]], arguments: EvaluateQueries
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


def strange_pictures(folder: Path | None) -> list[Picture]:
    """At most `MOST_STRANGERS` photographs of `folder`, evenly taken, which must show none of the places.

    Raises InputError where `folder` is None.
    """
    if folder is None:
        raise InputError("forgeries are made of photographs of other places, too; name a folder with --strangers")
    paths = find_pictures(folder)
    chosen = np.linspace(0, len(paths) - 1, min(MOST_STRANGERS, len(paths))).round().astype(int)
    return [read_picture(paths[index]) for index in chosen]


def forged_answers(
    scene: ReferenceScene,
    place: ReferencePlace,
    strangers: Sequence[Picture],
    arguments: EvaluateQueries,
    done: Callable[[ForgedAnswer], None],
) -> None:
    """Localize every forged and every true query in the maps of one place; `done` is called with each answer.

    `scene` and `place` are the same photographs: their files with reference poses, and their features.
    """
    options = ForgedOptions(draws=arguments.forged or 1, max_features=arguments.forged_features)
    photographs: Mapping[str, Picture] = {
        name: read_picture(scene.pictures[name], camera=scene.cameras[name]) for name in place.features
    }
    with tempfile.TemporaryDirectory(prefix="veil-forged-") as workdir, Bar(f"{scene.name}: forgeries") as bar:
        localizer = form_localizer(place, bundled_codebook(), bundled_decoys(), Path(workdir), options)
        queries = [
            *forged_queries(scene.name, photographs, strangers, options),
            *true_counterparts(scene.name, photographs, localizer.fold.held_out, options),
        ]
        for number, query in enumerate(queries, start=1):
            for answer in localizer.answers(query):
                done(answer)
            bar(number, len(queries))


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


def _results(
    place: ReferencePlace, others: dict[str, Features], protocol: QueryProtocol, arguments: EvaluateQueries
) -> Iterator[JobResult]:
    """Results of all jobs of one place; `others` are photographs of other places."""
    folds: list[Fold]
    with tempfile.TemporaryDirectory(prefix="veil-queries-") as workdir, Bar(f"{place.name}: mapping") as bar:
        folds = fold_maps(place, protocol, workdir=Path(workdir), progress=bar)
    jobs = query_jobs(folds, others, default_levels(arguments.strain_draws), protocol)
    total = job_count(folds, others, protocol)
    with open_engine("local", workers=arguments.workers) as engine, tracker(f"{place.name}: localizing", total) as shown:
        for result in run_jobs(jobs, engine=engine, prepare=quiet_colmap):
            shown.update()
            yield result

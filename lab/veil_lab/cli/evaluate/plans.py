"""`veil evaluate plans`: plans of `veil budget plan`, tried on the photographs of a scene."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.cli.common import add_command, add_json, at_least, explain, quiet_colmap, say, say_table, write_json
from veil.cli.device.plan import AskedPlans, law_cells, plans_of, plans_record
from veil.cli.records import add_record
from veil.errors import InputError
from veil.ldp.budget import outward
from veil.ldp.planning import ReleasePlan
from veil.report.tables import Name, Table, fixed, numbers
from veil_lab.cli.evaluate.upright import MapQueries, extent_of, run_jobs, scene_folds
from veil_lab.files.scenes import read_scene
from veil_lab.studies.localization.map_dictionaries import mapped, most_words
from veil_lab.studies.localization.plan_search import TriedPlan, search_plans
from veil_lab.studies.localization.upright_localization import UprightSetting, UprightTrial, sizes

EXAMPLES = """\
  veil evaluate plans castle/ --epsilon-image 200               the plans that localize best there, by trial
  veil evaluate plans castle/ --epsilon-image 200 --m 1 2 --word-count 4096 --folds 2
"""
# Every plan costs some seconds a photograph.
FEATURES, WORDS, SUBSET_SIZES = (300, 1000, 2000), (1024, 4096), (1, 2, 4)


def register(protocols: Any) -> None:
    """Add `veil evaluate plans` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "plans",
        "plans of `veil budget plan`, tried on a scene",
        "The scene's photographs are held out in turn and localized from words, keypoint positions and gravity. All plans\n"
        "are asked the photographs of the first turn, the better third those of the others.",
        EXAMPLES,
    )
    parser.add_argument("scene", type=Path, metavar="SCENE", help="folder with reference cameras")
    add_record(parser, AskedPlans)
    parser.add_argument(
        "--gravity-noise", type=float, default=0.5, metavar="DEG", help="standard deviation of gravity (default 0.5)"
    )
    parser.add_argument("--folds", type=at_least(2), default=3, help="turns of holding photographs out (default 3)")
    parser.add_argument(
        "--max-features", type=at_least(100), default=4096, help="features of a mapped photograph at most (default %(default)s)"
    )
    parser.add_argument("--first-octave", type=int, default=0, help="octave at which SIFT begins (default 0)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes (default 2)")
    add_json(parser)
    parser.set_defaults(run=_plans)


def _plans(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    plans = plans_of(AskedPlans.of(arguments), features=FEATURES, words=WORDS, subset_sizes=SUBSET_SIZES)
    results = _tried(arguments, plans)
    record = {**plans_record(AskedPlans.of(arguments), plans), "tried": [result.as_json() for result in results]}
    write_json(arguments.json, record, private=True)
    _say_tried(arguments, results)
    return 0


def _tried(arguments: argparse.Namespace, plans: list[ReleasePlan]) -> list[TriedPlan]:
    """The plans after they were tried on the photographs of the scene."""
    scene = read_scene(arguments.scene)
    folds = scene_folds(scene, arguments)
    most = min(most_words(mapped(fold)) for fold in folds)
    possible = [plan for plan in plans if plan.mechanism.dictionary_size <= most]
    if len(possible) < len(plans):
        say(arguments, f"{len(plans) - len(possible)} plans are left out: the maps give dictionaries of {most} words at most")
    if not possible:
        raise InputError(f"the maps of {scene.name} give dictionaries of {most} words at most; give smaller --word-count")

    def ask(settings: Sequence[UprightSetting], index: int) -> list[UprightTrial]:
        jobs = [
            MapQueries(fold=folds[index], settings=[setting for setting in settings if setting.words == words])
            for words in sizes(settings)
        ]
        title = f"{scene.name}: turn {index + 1} of {len(folds)}, {len(settings)} plans"
        return [trial for found in run_jobs(jobs, workers=arguments.workers, title=title) for trial in found]

    return search_plans(
        possible,
        ask,
        folds=len(folds),
        gravity_sigma_deg=arguments.gravity_noise,
        metric={scene.name: scene.metric},
        extent={scene.name: extent_of(scene)},
    )


def tried_table(results: Sequence[TriedPlan]) -> Table:
    """The table of plans that were tried; those that were not finished were asked the photographs of the first turn alone."""
    heads = "epsilon of image", "right of queries", "accepted", "astray", "seconds"
    return Table(
        columns=[*numbers("K", "m", "features", "epsilon", *heads), Name("turns")],
        rows=[
            (
                *law_cells(result.plan),
                outward(result.plan.image_epsilon, 5),
                f"{result.row.right} of {result.row.queries}",
                str(result.row.accepted),
                str(result.row.astray),
                fixed(result.row.median_seconds, 1),
                "all" if result.finished else "the first",
            )
            for result in results
        ],
        labels=3,
    )


def _say_tried(arguments: argparse.Namespace, results: list[TriedPlan]) -> None:
    """Print the table of plans that were tried, and what to type to use the best one."""
    say_table(arguments, tried_table(results))
    best, law = results[0].plan, results[0].plan.mechanism
    options = f"--features {best.features} --epsilon {law.epsilon:.3f} --m {law.m} --gravity FILE"
    say(arguments, f"best here: veil privatize --words BOOK {options}, with a BOOK of {law.dictionary_size} words")
    explain(
        arguments,
        "plans that differ by a query or two differ by chance; other places, cameras and seasons may order them anew. The "
        "epsilon covers words, not positions: these give the place away to whoever has a map",
    )

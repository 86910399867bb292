"""`veil evaluate plans`: plans of `veil budget plan`, tried on the photographs of a scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import Commands, at_least, explain, quiet_colmap, say, say_table, write_json
from veil.cli.device.plan import AskedPlans, law_cells, plans_of, plans_record
from veil.cli.records import add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.ldp.planning import ReleasePlan
from veil.ldp.rounding import outward
from veil.report.tables import Name, Table, fixed, numbers
from veil_lab.cli.evaluate.poses.upright import GRAVITY_NOISE_DEG, MapQueries, extent_of, run_jobs, scene_folds
from veil_lab.cli.evaluate.scene_arguments import AskedExtraction, AskedFolds
from veil_lab.files.scenes import read_scene
from veil_lab.studies.localization.map_dictionaries import mapped, most_words
from veil_lab.studies.localization.upright_localization import TriedPlan, UprightSetting, UprightTrial, search_plans, sizes

EXAMPLES = """\
  veil evaluate plans castle/ --epsilon-image 200               the plans that localize best there, by trial
  veil evaluate plans castle/ --epsilon-image 200 --m 1 2 --word-count 4096 --folds 2
"""
# Every plan costs some seconds a photograph.
FEATURES, WORDS, SUBSET_SIZES = (300, 1000, 2000), (1024, 4096), (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class EvaluatePlans(AskedExtraction, AskedFolds, AskedPlans):
    """The scene's photographs are held out in turn and localized from words, keypoint positions and gravity. All plans
    are asked the photographs of the first turn, the better third those of the others.
    """

    scene: Path = positional("folder with reference cameras", metavar="SCENE")
    workers: int = option("processes (default 2)", default=2, parse=at_least(1))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate plans` to the subparsers `protocols`."""
    summary = "plans of `veil budget plan`, tried on a scene"
    add_record_command(protocols, "plans", summary, EXAMPLES, EvaluatePlans, _plans)


def _plans(arguments: EvaluatePlans) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    plans = plans_of(arguments, features=FEATURES, words=WORDS, subset_sizes=SUBSET_SIZES)
    results = _tried(arguments, plans)
    record = {**plans_record(arguments, plans), "tried": [result.as_json() for result in results]}
    write_json(arguments.json, record, private=True)
    _say_tried(arguments, results)
    return 0


def _tried(arguments: EvaluatePlans, plans: list[ReleasePlan]) -> list[TriedPlan]:
    """The plans after they were tried on the photographs of the scene."""
    scene = read_scene(arguments.scene)
    folds = scene_folds(scene, folds=arguments.folds, workers=arguments.workers, max_features=arguments.max_features)
    most = min(most_words(mapped(fold)) for fold in folds)
    possible = [plan for plan in plans if plan.mechanism.dictionary_size <= most]
    if len(possible) < len(plans):
        say(arguments, f"{len(plans) - len(possible)} plans are left out: the maps give dictionaries of {most} words at most")
    if not possible:
        raise InputError(f"the maps of {scene.name} give dictionaries of {most} words at most; give smaller --word-count")

    def ask(settings: Sequence[UprightSetting], index: int) -> list[UprightTrial]:
        jobs = [
            MapQueries(fold=folds[index], settings=[setting for setting in settings if setting.words == words])
            for words, _ in sizes(settings)
        ]
        title = f"{scene.name}: turn {index + 1} of {len(folds)}, {len(settings)} plans"
        return [trial for trials in run_jobs(jobs, workers=arguments.workers, title=title) for trial in trials]

    return search_plans(
        possible,
        ask,
        folds=len(folds),
        gravity_sigma_deg=GRAVITY_NOISE_DEG,
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


def _say_tried(arguments: EvaluatePlans, results: list[TriedPlan]) -> None:
    """Print the table of plans that were tried, and what to type to use the best one."""
    say_table(arguments, tried_table(results))
    best, law = results[0].plan, results[0].plan.mechanism
    options = f"--features {best.features} --epsilon {outward(law.epsilon, 12)} --m {law.m} --gravity FILE"
    say(arguments, f"best here: veil privatize --words BOOK {options}, with a BOOK of {law.dictionary_size} words")
    explain(
        arguments,
        "plans that differ by a query or two differ by chance; other places, cameras and seasons may order them anew. The "
        "epsilon covers words, not positions: these give the place away to whoever has a map",
    )

"""`veil budget plan`: the best use of an epsilon of the image."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veil.cli.common import (
    add_command,
    add_json,
    at_least,
    explain,
    keep_old_name,
    picture,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.errors import InputError
from veil.ldp.budget import outward
from veil.ldp.planning import Place, Plan, planned
from veil.localization.options import LocalizeOptions
from veil.pipelines.protection import DELTA, MAX_POSTERIOR
from veil.report.tables import Name, Table, fixed, numbers

if TYPE_CHECKING:
    from veil.studies.localization.plan_search import TriedPlan
    from veil.studies.localization.upright_localization import UprightSetting, UprightTrial

EXAMPLES = """\
  veil budget plan --epsilon-image 200                          which K, m and number of features are best
  veil budget plan --epsilon-image 200 --word-count 16384 --m 1 2    for the bundled dictionary
  veil budget plan --epsilon-image 200 --figure plan.png
  veil budget plan --epsilon-image 200 --scene castle/          the plans that localize best there, by trial
"""
FEATURES, WORDS, SUBSET_SIZES = (50, 100, 200, 500, 1000, 2000), (1000, 4000, 16384, 65536, 256_000), (1, 2, 4, 8, 16)
# With a scene every plan costs some seconds a photograph.
TRIED_FEATURES, TRIED_WORDS, TRIED_SUBSET_SIZES = (300, 1000, 2000), (1024, 4096), (1, 2, 4)
ROWS = 12


def register(actions) -> None:  # type: ignore[no-untyped-def]
    """Add `veil budget plan` to the group's actions."""
    parser = add_command(
        actions,
        "plan",
        "which K, m and number of features are best",
        "For an epsilon of the image, the largest epsilon of a feature, and how many true words that lets through. Ranked by\n"
        "margin: expected true words less the inliers that a pose needs beside what chance calls up. Localization needs tens\n"
        "of inliers. The plan cannot know quantization (how often two views of a point fall on one word) nor what the map\n"
        "shows: expect a part of the true words as inliers, and try it with your dictionary.\n"
        "With --scene the plans are tried: its photographs are held out in turn and localized from words, keypoint positions\n"
        "and gravity. All plans are asked the photographs of the first turn, the better third those of the others.",
        EXAMPLES,
    )
    parser.add_argument(
        "--epsilon-image", type=float, required=True, metavar="E", help="epsilon that an image may spend, at --delta"
    )
    parser.add_argument("--delta", type=float, default=DELTA, help="delta of that epsilon (default %(default)g)")
    parser.add_argument(
        "--features", type=at_least(1), nargs="+", metavar="N", help="numbers of features that an image sends, to try"
    )
    parser.add_argument(
        "--word-count", type=at_least(2), nargs="+", metavar="K", help="numbers of words in the dictionary, to try"
    )
    keep_old_name(parser, "--words", "--word-count")
    parser.add_argument("--m", type=at_least(1), nargs="+", metavar="M", help="numbers of words that a feature sends, to try")
    parser.add_argument(
        "--map-features",
        type=at_least(1),
        default=Place().map_features,
        metavar="F",
        help="features of the map (default %(default)s)",
    )
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw true words against epsilon (.png or .svg)")
    parser.add_argument("--scene", type=Path, metavar="SCENE", help="folder with reference cameras, as of `veil evaluate`")
    parser.add_argument(
        "--gravity-noise",
        type=float,
        default=0.5,
        metavar="DEG",
        help="with --scene: standard deviation of gravity (default 0.5)",
    )
    parser.add_argument(
        "--folds", type=at_least(2), default=3, help="with --scene: turns of holding photographs out (default 3)"
    )
    parser.add_argument(
        "--max-features",
        type=at_least(100),
        default=4096,
        help="with --scene: features of a mapped photograph at most (default %(default)s)",
    )
    parser.add_argument("--first-octave", type=int, default=0, help="with --scene: octave at which SIFT begins (default 0)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="with --scene: processes (default 2)")
    add_json(parser)
    parser.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    tried = arguments.scene is not None
    plans = planned(
        image_epsilon=arguments.epsilon_image,
        delta=arguments.delta,
        features=sorted(set(arguments.features or (TRIED_FEATURES if tried else FEATURES))),
        words=sorted(set(arguments.word_count or (TRIED_WORDS if tried else WORDS))),
        subset_sizes=sorted(set(arguments.m or (TRIED_SUBSET_SIZES if tried else SUBSET_SIZES))),
        place=Place(map_features=arguments.map_features),
    )
    facts: dict = {"epsilon_image": arguments.epsilon_image, "delta": arguments.delta, "map_features": arguments.map_features}
    facts["plans"] = [_plan_facts(plan) for plan in plans]
    if tried:
        results = _tried(arguments, plans)
        facts["tried"] = [result.as_json() for result in results]
    write_json(arguments.json, facts, private=True)
    if tried:
        _say_tried(arguments, results)
        return 0
    say_table(arguments, plan_table(plans[:ROWS]))
    explain(arguments, *_advice(plans))
    if arguments.figure:
        from veil.report.plans import draw_plans

        draw_plans(arguments.figure, plans, image_epsilon=arguments.epsilon_image, needed=LocalizeOptions().min_inliers)
        report(arguments, arguments.figure, "the figure")
    return 0


def _tried(arguments: argparse.Namespace, plans: list[Plan]) -> list[TriedPlan]:
    """The plans after they were tried on the photographs of `--scene`."""
    from veil.cli.evaluate.upright import Job, extent_of, run_jobs, scene_folds
    from veil.files.scenes import read_scene
    from veil.studies.localization.map_dictionaries import mapped, most_words
    from veil.studies.localization.plan_search import search_plans
    from veil.studies.localization.upright_localization import sizes

    quiet_colmap()
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
            Job(fold=folds[index], settings=[setting for setting in settings if setting.words == words])
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


def plan_table(plans: Sequence[Plan]) -> Table:
    """The table of plans, the best one first."""
    law = "K", "m", "features", "epsilon", "p(true)", "p/m", "epsilon of image"
    return Table(
        columns=numbers(*law, "true words", "needed", "margin", "samples"),
        rows=[
            (
                *_law(plan),
                fixed(float(plan.mechanism.truth), 4),
                fixed(plan.mechanism.posterior, 4),
                outward(plan.image_epsilon, 5),
                fixed(plan.true_words, 1),
                str(plan.needed),
                fixed(plan.margin, 1),
                f"{plan.samples:.0e}",
            )
            for plan in plans
        ],
        labels=3,
    )


def tried_table(results: Sequence[TriedPlan]) -> Table:
    """The table of plans that were tried; those that were not finished were asked the photographs of the first turn alone."""
    heads = "epsilon of image", "right of queries", "accepted", "astray", "seconds"
    return Table(
        columns=[*numbers("K", "m", "features", "epsilon", *heads), Name("turns")],
        rows=[
            (
                *_law(result.plan),
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


def _law(plan: Plan) -> tuple[str, str, str, str]:
    """K, m, features and epsilon of a plan."""
    law = plan.mechanism
    return str(law.dictionary_size), str(law.m), str(plan.features), fixed(law.epsilon, 3)


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


def _advice(plans: list[Plan]) -> list[str]:
    """Sentences for people: what the table means, and what it does not take into account."""
    best = plans[0]
    said = [
        "true words: expected features whose true word is sent, the most inliers to hope for; needed: inliers of a pose that "
        "chance does not explain; samples: of three candidates until all are true",
        "not known here: how often two views of a point fall on one word, and what the map shows; both make inliers fewer than "
        "true words. Try the dictionary before trusting a plan",
    ]
    if not best.possible:
        said.append(
            f"no plan here is enough for a pose: the first has {best.true_words:.1f} true words and needs {best.needed}, and "
            f"{best.samples:.0e} samples. A larger epsilon of the image is needed"
        )
    elif best.mechanism.posterior > MAX_POSTERIOR:
        posterior = outward(best.mechanism.posterior, 3)
        said.append(f"warning: in the first plan a word that is sent is the true one with probability {posterior}")
    return said


def _plan_facts(plan: Plan) -> dict:
    return {
        "words": plan.mechanism.dictionary_size,
        "m": plan.mechanism.m,
        "features": plan.features,
        "epsilon": plan.mechanism.epsilon,
        "truth": plan.truth,
        "posterior": plan.mechanism.posterior,
        "image_epsilon": plan.image_epsilon,
        "true_words": plan.true_words,
        "candidates": plan.candidates,
        "needed": plan.needed,
        "margin": plan.margin,
        "samples": plan.samples if math.isfinite(plan.samples) else None,
        "possible": plan.possible,
    }

"""`veil budget plan`: the best use of an epsilon of the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from veil.cli.common import Commands, at_least, explain, picture, report, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option
from veil.device.protection import DELTA, MAX_POSTERIOR
from veil.ldp.planning import MAP_FEATURES, ReleasePlan, plan_release
from veil.ldp.rounding import outward
from veil.places.poses.options import LocalizeOptions
from veil.report.tables import Table, fixed, numbers

EXAMPLES = """\
  veil budget plan --epsilon-image 200                          which K, m and number of features are best
  veil budget plan --epsilon-image 200 --word-count 16384 --m 1 2    for the bundled dictionary
  veil budget plan --epsilon-image 200 --figure plan.png
"""
FEATURES, WORDS, SUBSET_SIZES = (50, 100, 200, 500, 1000, 2000), (1000, 4000, 16384, 65536, 256_000), (1, 2, 4, 8, 16)
ROWS = 12


@dataclass(frozen=True, kw_only=True)
class AskedPlans(Record):
    """Options that say which plans there are."""

    epsilon_image: float = option("epsilon that an image may spend, at --delta", required=True, metavar="E")
    delta: float = option("delta of that epsilon (default %(default)g)", default=DELTA)
    features: tuple[int, ...] | None = option("numbers of features that an image sends, to try", parse=at_least(1), metavar="N")
    word_count: tuple[int, ...] | None = option("numbers of words in the dictionary, to try", parse=at_least(2), metavar="K")
    m: tuple[int, ...] | None = option("numbers of words that a feature sends, to try", parse=at_least(1), metavar="M")
    map_features: int = option(
        "features of the map (default %(default)s)",
        default=MAP_FEATURES,
        parse=at_least(1),
        metavar="F",
    )


@dataclass(frozen=True, kw_only=True)
class PlanBudget(AskedPlans):
    """For an epsilon of the image, the largest epsilon of a feature, and how many true words that lets through. Ranked by
    margin: expected true words less the inliers that a pose needs beside what chance calls up. Localization needs tens
    of inliers. The plan cannot know quantization (how often two views of a point fall on one word) nor what the map
    shows: expect a part of the true words as inliers, and try it with your dictionary.
    """

    figure: Path | None = option("draw true words against epsilon (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(actions: Commands) -> None:
    """Add `veil budget plan` to the group's actions."""
    add_record_command(actions, "plan", "which K, m and number of features are best", EXAMPLES, PlanBudget, _plan)


def plans_of(
    arguments: AskedPlans, *, features: Sequence[int], words: Sequence[int], subset_sizes: Sequence[int]
) -> list[ReleasePlan]:
    """The plans that the options ask for, the best one first.

    `features`, `words` and `subset_sizes` stand for what is not given.
    """
    return plan_release(
        image_epsilon=arguments.epsilon_image,
        delta=arguments.delta,
        features=sorted(set(arguments.features or features)),
        words=sorted(set(arguments.word_count or words)),
        subset_sizes=sorted(set(arguments.m or subset_sizes)),
        map_features=arguments.map_features,
    )


class ReleasePlanJson(TypedDict):
    """A release in words that fits an epsilon."""

    words: int
    m: int
    features: int
    epsilon: float
    truth: float
    posterior: float
    image_epsilon: float
    true_words: float
    candidates: float
    needed: int
    margin: float
    samples: float | None
    possible: bool


class BudgetPlanJson(TypedDict):
    """Plans for an epsilon of the image."""

    epsilon_image: float
    delta: float
    map_features: int
    plans: list[ReleasePlanJson]


def plans_record(arguments: AskedPlans, plans: Sequence[ReleasePlan]) -> BudgetPlanJson:
    """The record of plans for machines."""
    return {
        "epsilon_image": arguments.epsilon_image,
        "delta": arguments.delta,
        "map_features": arguments.map_features,
        "plans": [_plan_facts(plan) for plan in plans],
    }


def _plan(arguments: PlanBudget) -> int:
    plans = plans_of(arguments, features=FEATURES, words=WORDS, subset_sizes=SUBSET_SIZES)
    write_json(arguments.json, plans_record(arguments, plans), private=True)
    say_table(arguments, plan_table(plans[:ROWS]))
    explain(arguments, *_advice(plans))
    if arguments.figure:
        from veil.report.plans import draw_plans

        draw_plans(arguments.figure, plans, image_epsilon=arguments.epsilon_image, needed=LocalizeOptions().min_inliers)
        report(arguments, arguments.figure, "the figure")
    return 0


def plan_table(plans: Sequence[ReleasePlan]) -> Table:
    """The table of plans, the best one first."""
    law = "K", "m", "features", "epsilon", "p(true)", "p/m", "epsilon of image"
    return Table(
        columns=numbers(*law, "true words", "needed", "margin", "samples"),
        rows=[
            (
                *law_cells(plan),
                outward(float(plan.mechanism.truth)),
                outward(plan.mechanism.posterior),
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


def law_cells(plan: ReleasePlan) -> tuple[str, str, str, str]:
    """K, m, features and epsilon of a plan."""
    law = plan.mechanism
    return str(law.dictionary_size), str(law.m), str(plan.features), outward(law.epsilon, 12)


def _advice(plans: list[ReleasePlan]) -> list[str]:
    """Sentences for people: what the table means, and what it does not take into account."""
    best = plans[0]
    advice = [
        "true words: expected features whose true word is sent, the most inliers to hope for; needed: inliers of a pose that "
        "chance does not explain; samples: of three candidates until all are true",
        "not known here: how often two views of a point fall on one word, and what the map shows; both make inliers fewer than "
        "true words. Try the dictionary before trusting a plan",
    ]
    if not best.possible:
        advice.append(
            f"no plan here is enough for a pose: the first has {best.true_words:.1f} true words and needs {best.needed}, and "
            f"{best.samples:.0e} samples. A larger epsilon of the image is needed"
        )
    elif best.mechanism.posterior > MAX_POSTERIOR:
        posterior = outward(best.mechanism.posterior, 3)
        advice.append(f"warning: in the first plan a word that is sent is the true one with probability {posterior}")
    return advice


def _plan_facts(plan: ReleasePlan) -> ReleasePlanJson:
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

"""`veil budget plan`: the best use of an epsilon of the image."""

from __future__ import annotations

import argparse
import math

from veil.cli.common import add_command, add_json, at_least, picture, report, say, write_json
from veil.ldp.budget import outward
from veil.ldp.planning import Place, Plan, planned
from veil.localization.by_distance import LocalizeOptions
from veil.pipelines.protection import DELTA, MAX_POSTERIOR

EXAMPLES = """\
  veil budget plan --epsilon-image 200                          which K, m and number of features are best
  veil budget plan --epsilon-image 200 --words 16384 --m 1 2    for the bundled dictionary
  veil budget plan --epsilon-image 200 --figure plan.png
"""
FEATURES, WORDS, SUBSET_SIZES = (50, 100, 200, 500, 1000, 2000), (1000, 4000, 16384, 65536, 256_000), (1, 2, 4, 8, 16)
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
        "shows: expect a part of the true words as inliers, and try it with your dictionary.",
        EXAMPLES,
    )
    parser.add_argument("--epsilon-image", type=float, required=True, metavar="E", help="of an image, at delta")
    parser.add_argument("--delta", type=float, default=DELTA, help="default %(default)g")
    parser.add_argument("--features", type=at_least(1), nargs="+", default=FEATURES, metavar="N", help="sent of an image")
    parser.add_argument("--words", type=at_least(2), nargs="+", default=WORDS, metavar="K", help="dictionary sizes")
    parser.add_argument("--m", type=at_least(1), nargs="+", default=SUBSET_SIZES, metavar="M", help="words sent of a feature")
    parser.add_argument(
        "--map-features", type=at_least(1), default=Place().map_features, metavar="F", help="of the map (default %(default)s)"
    )
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw true words against epsilon (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    plans = planned(
        image_epsilon=arguments.epsilon_image,
        delta=arguments.delta,
        features=sorted(set(arguments.features)),
        words=sorted(set(arguments.words)),
        subset_sizes=sorted(set(arguments.m)),
        place=Place(map_features=arguments.map_features),
    )
    facts = {"epsilon_image": arguments.epsilon_image, "delta": arguments.delta, "map_features": arguments.map_features}
    write_json(arguments.json, {**facts, "plans": [_plan_facts(plan) for plan in plans]})
    say(arguments, "      K   m  features  epsilon  p(true)      p/m  image epsilon  true words  needed   margin  samples")
    for plan in plans[:ROWS]:
        law = plan.mechanism
        say(
            arguments,
            f"{law.dictionary_size:7} {law.m:3} {plan.features:9} {law.epsilon:8.3f} {plan.truth:8.4f} {law.posterior:8.4f} "
            f"{outward(plan.image_epsilon, 5):>14} {plan.true_words:11.1f} {plan.needed:7} {plan.margin:8.1f} "
            f"{plan.samples:8.0e}",
        )
    for line in _advice(plans):
        say(arguments, line)
    if arguments.figure:
        from veil.report.plans import draw_plans

        draw_plans(arguments.figure, plans, image_epsilon=arguments.epsilon_image, needed=LocalizeOptions().min_inliers)
        report(arguments, arguments.figure, "the figure")
    return 0


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

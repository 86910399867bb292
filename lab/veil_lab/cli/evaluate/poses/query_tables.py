"""Tables that `veil evaluate queries` prints, and whether the protocol's requirements are met."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from veil.audit.statistics import clopper_pearson
from veil.cli.common import Arguments, explain, say, say_table
from veil.report.tables import Name, Number, Table, Words, fixed, interval, names, numbers, percent
from veil_lab.studies.localization.acceptance_counts import AcceptanceCount, QueryAnswer, acceptance_counts
from veil_lab.studies.localization.forged_answers import GroupCount
from veil_lab.studies.localization.robustness import ALL_MATCHES, ErrorSummary

# What the protocol requires of lines: the share of true queries that is accepted, enough false queries to say that none is,
# and the median error of lines over that of points.
NEEDED_SHARE, NEEDED_FALSE, ALLOWED_RATIO = 0.99, 100, 1.3


def say_answers(arguments: Arguments, answers: Sequence[QueryAnswer], summaries: Sequence[ErrorSummary]) -> None:
    """Print the tables of accepted queries and of errors, each with what the protocol requires."""
    say(arguments, "")
    say_table(arguments, acceptance_table(acceptance_counts(answers)))
    explain(arguments, *_accepted(answers))
    say(arguments, "")
    say_table(arguments, robustness_table(summaries))
    explain(arguments, *_robust(summaries))


def say_forged(arguments: Arguments, counts: Sequence[GroupCount]) -> None:
    """Print the tables of forged and of true queries."""
    for true, title in ((False, "forged queries"), (True, "true queries")):
        own = [item for item in counts if item.true == true]
        if own:
            say(arguments, "")
            say_table(arguments, forged_table(own, title))


def acceptance_table(counts: Sequence[AcceptanceCount]) -> Table:
    """The table of accepted queries, by what they are and how they are seen."""
    nearest = Number("-log10 NFA, least if true, else most")
    return Table(
        columns=[
            *names("query", "seen as"),
            *numbers("accepted", "95 % interval"),
            nearest,
            Number("turned by more than 5 deg"),
        ],
        rows=[
            (
                item.kind,
                item.observation,
                f"{item.accepted}/{item.total}",
                interval(item.low, item.high, 2),
                fixed(item.margin, 1),
                str(item.astray),
            )
            for item in counts
        ],
        labels=2,
    )


def robustness_table(summaries: Sequence[ErrorSummary]) -> Table:
    """The table of lines against points."""
    errors = "median error, points", "median error, lines", "ratio", "ratio in scenes", "no pose, points", "no pose, lines"
    together = {ALL_MATCHES: "all >=200", -1: "together"}
    return Table(
        columns=[*names("matches", "wrong", "seen as"), *numbers("pairs", *errors), Words("required", least=8)],
        rows=[
            (
                together.get(row.matches, str(row.matches)),
                f"{100 * row.wrong_share:.0f} %" if row.matches != -1 else "<=50 %",
                row.observation,
                str(row.count),
                _number(row.points_median),
                _number(row.lines_median),
                _number(row.ratio, 2),
                _number(row.ratio_within, 2),
                str(row.refused_points),
                str(row.refused_lines),
                "yes" if row.required else "no",
            )
            for row in summaries
        ],
        labels=3,
    )


def forged_table(counts: Sequence[GroupCount], title: str) -> Table:
    """The table of forged or of true queries, by their groups."""
    heads = "accepted", "95 % interval", "turned by more than 5 deg", "refused though beyond chance"
    return Table(
        columns=[Name(title, least=24), *numbers(*heads)],
        rows=[
            (
                item.group,
                f"{item.accepted}/{item.total}",
                interval(item.low, item.high, 2),
                str(item.astray),
                str(item.doubted),
            )
            for item in counts
        ],
    )


def _accepted(answers: Sequence[QueryAnswer]) -> Iterator[str]:
    """Whether the protocol's two requirements on accepted queries are met."""
    true = [answer for answer in answers if answer.kind == "true" and answer.observation != "points"]
    false = [answer for answer in answers if answer.kind != "true" and answer.observation != "points"]
    share = sum(answer.accepted for answer in true) / len(true)
    wrong = sum(answer.accepted for answer in false)
    met = _met(share >= NEEDED_SHARE)
    yield f"true queries accepted from lines: {percent(share)} % of {len(true)} (needed 99 %): {met}"
    if not false:
        yield "no false queries were asked: give more scenes, --strangers or --noise"
        return
    low, high = clopper_pearson(wrong, len(false), confidence=0.95)
    met = _met(wrong == 0) if len(false) >= NEEDED_FALSE else f"too few to tell (needed {NEEDED_FALSE})"
    yield f"false queries accepted from lines: {wrong} of {len(false)} ({interval(low, high, 2)} %; needed 0): {met}"


def _robust(summaries: Sequence[ErrorSummary]) -> Iterator[str]:
    """Whether the protocol's requirement on errors is met."""
    required = [row for row in summaries if row.required]
    if not required:
        yield "no query has 200 right matches: lines and points were not compared; extract more features"
        return
    for name in ("ratio", "ratio_within"):
        worst = max(value if math.isfinite(value := getattr(row, name)) else math.inf for row in required)
        scope = "of all scenes together" if name == "ratio" else "within scenes"
        yield (
            f"median error of lines over that of points, {scope}, worst of the required: {worst:.2f} (needed {ALLOWED_RATIO}): "
            + (_met(worst <= ALLOWED_RATIO))
        )


def _met(holds: bool) -> str:
    return "met" if holds else "NOT met"


def _number(value: float, digits: int = 5) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "none"

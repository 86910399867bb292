"""`veil budget show` and `set`: the epsilon that was spent, and its limits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from veil.cli.common import Commands, add_command, at_least, say, say_table, write_json
from veil.cli.device import plan
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.device.protection import DELTA
from veil.files.device.home import home
from veil.files.device.ledger import BudgetChange, Entry, Ledger, read_budgets, read_ledger
from veil.ldp.budget import LIMITED, Budget, BudgetUnit, Charge, total
from veil.ldp.composition import composed_epsilon
from veil.ldp.rounding import inward, outward
from veil.report.tables import Name, Remark, Row, Table, numbers

SHOW_EXAMPLES = """\
  veil budget show                          every image's epsilon, the session's, and what is left
  veil budget show --object 20 --json -     an object of 20 features, for machines
"""
SET_EXAMPLES = """\
  veil budget set image 100                 no image may lose more than epsilon 100 at delta 1e-6
  veil budget set session 1000 --delta 1e-9
  veil budget set point 40                  what one point may lose to a video of it, all photographs together
  veil budget set image none                removes the budget of images
"""


def _limit(text: str) -> float | None:
    """The epsilon of a budget; None for "none" (an argparse type)."""
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number or none, got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class ShowBudget(Record):
    """Epsilon at delta of everything in the ledger: for a feature, an object, each image and the session. The plain sum
    over features holds with delta 0. Releases of subspaces have no epsilon and are listed as no proof.
    """

    delta: float = option("delta at which epsilons are told (default %(default)g)", default=DELTA)
    object: int = option("features of an object (default 50)", default=50, parse=at_least(1), metavar="G")
    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class SetBudget(Record):
    """A hard limit of epsilon for each image, for a point that all photographs show, or for all that the ledger holds
    (the session). A release of words that would exceed it is refused. Subspaces are outside of it: they have no epsilon.
    """

    unit: BudgetUnit = positional(
        "what has the limit: each image, a point that every photograph in the ledger shows, or the session",
        metavar="unit",
    )
    epsilon: float | None = positional("the most that may be spent, or none to remove the budget", parse=_limit)
    delta: float = option("delta at which epsilons are told (default %(default)g)", default=DELTA)
    json: Path | None = json_file()


def register(commands: Commands) -> None:
    """Add `veil budget` with its actions to the parser's commands."""
    parser = add_command(
        commands,
        "budget",
        "what was spent of epsilon, and what may be",
        "The ledger adds up the epsilon of words that were released, and refuses what would exceed a budget.",
        SHOW_EXAMPLES + SET_EXAMPLES + plan.EXAMPLES,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_record_command(actions, "show", "what was spent", SHOW_EXAMPLES, ShowBudget, _show)
    add_record_command(actions, "set", "set or remove a budget", SET_EXAMPLES, SetBudget, _set)
    plan.register(actions)


class ComposedJson(TypedDict):
    """Epsilon of charges at delta, and their plain sum."""

    epsilon: float | None
    basic: float | None


class SpentReleaseJson(TypedDict):
    """A release in words."""

    words: int
    epsilon: float | None
    m: int
    features: int
    file: str
    fresh: bool
    released_at: float


class SpentImageJson(TypedDict):
    """Releases of an image, with its epsilons and what is left of its budget."""

    name: str
    releases: list[SpentReleaseJson]
    feature: ComposedJson | None
    object: ComposedJson | None
    image: ComposedJson | None
    left: float | None
    no_proof: int


class _SessionSize(TypedDict):
    images: int
    features: int


class SessionJson(_SessionSize, ComposedJson):
    """Epsilon of all images in words."""


class BudgetInForceJson(TypedDict):
    """A budget, with what was spent and is left of it."""

    unit: BudgetUnit
    epsilon: float | None
    delta: float | None
    spent: float | None
    left: float | None


class BudgetChangeJson(TypedDict):
    """A budget that was set or cleared."""

    unit: BudgetUnit
    epsilon: float | None
    delta: float | None
    set_at: float


class ShowBudgetJson(TypedDict):
    """What was spent of epsilon, and what may be."""

    delta: float
    object_features: int
    images: list[SpentImageJson]
    point: ComposedJson | None
    session: SessionJson
    no_proof: int
    budgets: list[BudgetInForceJson]
    changes: list[BudgetChangeJson]


def _show(arguments: ShowBudget) -> int:
    path = home() / "ledger.sqlite"
    known = path.exists()  # a look must not make a ledger
    entries, changes = (read_ledger(path), read_budgets(path)) if known else ([], [])
    budgets = _in_force(changes)
    images = [_image_facts(arguments, of_one, budgets.get("image")) for of_one in _by_image(entries)]
    session = _charges(entries)
    facts: ShowBudgetJson = {
        "delta": arguments.delta,
        "object_features": arguments.object,
        "images": images,
        "session": {
            "images": sum(bool(image["releases"]) for image in images),
            "features": sum(charge.features for charge in session),
            **_epsilons(session, arguments.delta),
        },
        "point": _epsilons(session, arguments.delta, of_each=1) if session else None,
        "no_proof": sum(entry.mechanism is None for entry in entries),
        "budgets": [_budget_facts(budget, entries) for budget in budgets.values()],
        "changes": [_change_facts(change) for change in changes],
    }
    write_json(arguments.json, facts, private=True)
    _tell(arguments, facts)
    return 0


def _image_facts(arguments: ShowBudget, entries: list[Entry], budget: Budget | None) -> SpentImageJson:
    """The record of one image's releases, with its epsilons and what is left of its budget."""
    charges = _charges(entries)
    return {
        "name": entries[-1].name,
        "releases": [
            {
                "words": entry.mechanism.dictionary_size,
                "epsilon": entry.mechanism.epsilon,
                "m": entry.mechanism.m,
                "features": entry.features,
                "file": f"{entry.released_as}.veil",
                "fresh": entry.fresh,
                "released_at": entry.released_at,
            }
            for entry in entries
            if entry.mechanism is not None
        ],
        # An image without words has no epsilon, which is not an epsilon of 0.
        "feature": _epsilons(charges, arguments.delta, of_each=1) if charges else None,
        "object": _epsilons(charges, arguments.delta, of_each=arguments.object) if charges else None,
        "image": _epsilons(charges, arguments.delta) if charges else None,
        "left": None if budget is None else budget.left(charges),
        "no_proof": sum(entry.mechanism is None for entry in entries),
    }


def _epsilons(charges: list[Charge], delta: float, of_each: int | None = None) -> ComposedJson:
    """Epsilon of charges at delta, and their plain sum; of at most `of_each` features of every release, if given."""
    spent = total(charges, of_each=of_each)
    return {"epsilon": composed_epsilon(spent, delta), "basic": composed_epsilon(spent)}


def _budget_facts(budget: Budget, entries: list[Entry]) -> BudgetInForceJson:
    """The record of a budget, with what was spent and is left of it; of images, those of the one that spent most."""
    groups = _by_image(entries) if budget.unit == "image" else [entries]
    most = max((budget.spent(_charges(group)) for group in groups), default=0.0)
    least = min((budget.left(_charges(group)) for group in groups), default=budget.epsilon)
    return {"unit": budget.unit, "epsilon": budget.epsilon, "delta": budget.delta, "spent": most, "left": least}


def _change_facts(change: BudgetChange) -> BudgetChangeJson:
    budget = change.budget
    epsilon, delta = (None, None) if budget is None else (budget.epsilon, budget.delta)
    return {"unit": change.unit, "epsilon": epsilon, "delta": delta, "set_at": change.set_at}


def _charges(entries: list[Entry]) -> list[Charge]:
    return [entry.charge for entry in entries if entry.charge is not None]


def _by_image(entries: list[Entry]) -> list[list[Entry]]:
    """The releases in one list for each image."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.image_digest, []).append(entry)
    return list(groups.values())


def _in_force(changes: list[BudgetChange]) -> dict[BudgetUnit, Budget]:
    """The budgets in force after all changes, by unit."""
    last = {change.unit: change.budget for change in changes}
    return {unit: budget for unit, budget in last.items() if budget is not None}


def _tell(arguments: ShowBudget, facts: Mapping[str, Any]) -> None:
    if facts["images"]:
        say_table(arguments, image_table(facts["images"], facts["object_features"]))
    session = facts["session"]
    say(
        arguments,
        f"session: {session['features']} features in words of {session['images']} images, epsilon "
        f"{outward(session['epsilon'])} at delta {facts['delta']:g} (plain sum {outward(session['basic'])})",
    )
    if facts["point"]:
        releases = sum(len(image["releases"]) for image in facts["images"])
        say(
            arguments,
            f"a point that all {releases} releases in words show: epsilon {outward(facts['point']['epsilon'])} (plain sum "
            f"{outward(facts['point']['basic'])}); once a map stands, whoever holds it knows which features see one point",
        )
    if facts["no_proof"]:
        say(arguments, f"outside of every epsilon: {facts['no_proof']} releases of subspaces, of which nothing is proved")
    for budget in facts["budgets"]:
        most = "the most of one " if budget["unit"] == "image" else ""
        say(
            arguments,
            f"budget of {LIMITED[budget['unit']]}: epsilon {outward(budget['epsilon'], 6)} at delta {budget['delta']:g}; "
            f"spent {most}{outward(budget['spent'])}, left {inward(budget['left'])}",
        )
    if not facts["budgets"]:
        say(arguments, "no budget is set: `veil budget set` makes the ledger refuse what would exceed one")


def image_table(images: Sequence[Mapping[str, Any]], object_features: int) -> Table:
    """The table of the ledger's images: what was released of each, and its epsilons."""
    rows: list[Row] = []
    for image in images:
        for index, release in enumerate(image["releases"]):
            last = index == len(image["releases"]) - 1
            sent = str(release["features"]), str(release["words"]), str(release["m"]), repr(release["epsilon"])
            rows.append((image["name"] if index == 0 else "", *sent, *(_spent(image) if last else [""] * 4)))
        if image["no_proof"]:
            more = ", which no epsilon covers" if image["releases"] else ""
            rows.append(Remark(labels=(image["name"],), text=f"{image['no_proof']} of subspaces: no proof{more}"))
    sent_heads = "features", "K", "m", "epsilon"
    heads = "epsilon of a feature", f"of {object_features} features", "of the image", "plain sum"
    return Table(columns=[Name("image", least=12), *numbers(*sent_heads, *heads)], rows=rows)


def _spent(image: Mapping[str, Any]) -> list[str]:
    """Epsilon of a feature, an object and the image, and the sum over the image's features."""
    spent = [image[unit]["epsilon"] for unit in ("feature", "object", "image")]
    return [outward(value) for value in (*spent, image["image"]["basic"])]


class BudgetJson(TypedDict):
    """A budget."""

    epsilon: float
    delta: float


class SetBudgetJson(TypedDict):
    """A budget now and before."""

    unit: BudgetUnit
    budget: BudgetJson | None
    before: BudgetJson | None


def _set(arguments: SetBudget) -> int:
    unit, epsilon = arguments.unit, arguments.epsilon
    budget = None if epsilon is None else Budget(unit=unit, epsilon=epsilon, delta=arguments.delta)
    ledger = Ledger(home())
    before = ledger.set_budget(unit, budget)
    record: SetBudgetJson = {"unit": unit, "budget": _plain(budget), "before": _plain(before)}
    write_json(arguments.json, record, private=True)
    say(arguments, f"the budget of {LIMITED[unit]} is {_said(budget)}; it was {_said(before)}")
    if before is not None and (budget is None or budget.epsilon > before.epsilon or budget.delta > before.delta):
        say(arguments, f"warning: what was promised before, {_said(before)}, no longer holds")
    if budget is not None:
        _tell_exceeded(arguments, budget, ledger.entries())
    return 0


def _tell_exceeded(arguments: SetBudget, budget: Budget, entries: list[Entry]) -> None:
    """Print whether earlier releases exceed a new budget, and how many are outside of it."""
    groups = _by_image(entries) if budget.unit == "image" else [entries]
    spent = [(budget.spent(_charges(group)), group[-1].name) for group in groups if group]
    over = [one for one in spent if one[0] > budget.epsilon]
    if over and budget.unit != "image":
        say(arguments, f"note: {outward(over[0][0])} is spent already: no more words can be released")
    elif over:
        most, name = max(over)
        say(
            arguments,
            f"note: {len(over)} images have spent more already (the most {name}, {outward(most)}): no more words of "
            "them can be released",
        )
    outside = sum(entry.mechanism is None for entry in entries)
    if outside:
        say(
            arguments,
            f"note: {outside} releases of subspaces are outside of it: they have no epsilon, and no budget limits them",
        )


def _plain(budget: Budget | None) -> BudgetJson | None:
    return None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta}


def _said(budget: Budget | None) -> str:
    return "none" if budget is None else f"epsilon {outward(budget.epsilon, 6)} at delta {budget.delta:g}"

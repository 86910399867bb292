"""The demo's comparison of one photograph in four ways: subspaces, lines, words, and tiles by each exit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from veil.ldp.composition import composed_epsilon
from veil.ldp.guarantee import NoProof
from veil.ldp.rounding import outward
from veil.places.poses.answer import Localization, NoPose
from veil.trials.held_out import DELTA, TrialOutcome
from veil.trials.tile_exits import ExitOutcome, ExitStudy

WHERE = {
    "region": "tiles, all downloaded",
    "two servers": "tiles, from two servers",
    "one server": "tiles, from one server",
    "hintless": "tiles, from one server without a hint",
}


def four_ways(outcomes: Sequence[TrialOutcome], strangers: Sequence[TrialOutcome], tiles: ExitStudy, extent: float) -> dict:
    """Content of the page for the first photograph: a row for each way, and what each server learned.

    Seconds are medians over all photographs, as the first call of each way compiles its code. `extent` is the size of the
    scene in reference units.
    """
    name = outcomes[0].query.name
    shown = [outcome for outcome in outcomes if outcome.query.name == name and _is_shown(outcome)]
    fetched = [outcome for outcome in tiles.queries if outcome.query.name == name]
    manifest = tiles.made.manifest
    return {
        "name": name,
        "rows": [
            *(_sent(outcome, outcomes, strangers, extent) for outcome in shown),
            *(_fetched(outcome, tiles, extent) for outcome in fetched),
        ],
        "tiles": len(manifest),
        "asked": manifest.asked,
        "tile_kb": f"{manifest.tile_bytes / 1e3:.0f} kB",
        "all_kb": f"{tiles.made.records.size / 1e3:.0f} kB",
        "promises": [(WHERE[outcome.answer.exit], _promise(outcome)) for outcome in fetched],
        "prepare": [f"{o.answer.prepare_s:,.1f} s" for o in fetched if o.answer.exit in ("one server", "hintless")],
    }


def _is_shown(outcome: TrialOutcome) -> bool:
    """Whether a variant is one of the ways: raw features, veil's default, the same in lines, words; all on the public map."""
    profile = outcome.variant.profile
    return outcome.variant.distance != "s2s" and (profile is None or profile.name == "hardened")


def _sent(outcome: TrialOutcome, outcomes: Sequence[TrialOutcome], strangers: Sequence[TrialOutcome], extent: float) -> dict:
    """The row of one form that was sent."""
    variant = outcome.variant
    alike = [o for o in outcomes if o.variant == variant]
    others = [o.pose for o in strangers if o.variant == variant]
    name = "lines" if variant.lines else "subspaces" if variant.profile else "words" if variant.mechanism else "raw features"
    return {
        "way": name,
        "is_raw": name == "raw features",
        "where": "on the server",
        "once": "",
        "up": _kb(outcome.upload_bytes),
        "down": "the pose",
        "device": f"{median(o.device_seconds for o in alike):.2f} s",
        "server": f"{median(o.seconds for o in alike):.2f} s",
        "error": _error(outcome.pose, outcome.position_error, extent),
        "refused": _refused(others),
        "learned": _learned(outcome, name),
    }


def _fetched(outcome: ExitOutcome, tiles: ExitStudy, extent: float) -> dict:
    """The row of tiles by one exit."""
    answer = outcome.answer
    alike = [o.answer for o in tiles.queries if o.answer.exit == answer.exit]
    others = [o.answer.pose for o in tiles.strangers if o.answer.exit == answer.exit]
    asked = tiles.made.manifest.asked
    return {
        "way": WHERE[answer.exit],
        "is_raw": False,
        "where": "on the device",
        "once": _kb(answer.once_bytes),
        "up": _kb(answer.up_bytes),
        "down": _kb(answer.down_bytes),
        "device": f"{median(o.device_s for o in alike):.2f} s",
        "server": f"{median(o.server_s for o in alike):.2f} s",
        "error": _error(answer.pose, outcome.position_error, extent),
        "refused": _refused(others),
        "learned": {
            "region": "that the map was downloaded, once; nothing of this photograph or where it was taken",
            "two servers": f"that {asked} tiles were asked for, and when; not which, while one of the two shares nothing",
            "one server": f"that {asked} tiles were asked for, and when; not which, under learning with errors",
            "hintless": f"that {asked} tiles were asked for, and when; not which, under ring learning with errors",
        }[answer.exit],
    }


def _learned(outcome: TrialOutcome, name: str) -> str:
    """Knowledge of the server about a form that was sent."""
    count, inliers = len(outcome.query.features), outcome.pose.inliers
    if name == "raw features":
        return f"descriptors and positions of {count:,} features, which can be inverted into the photograph; the pose"
    if name == "subspaces":
        return f"positions in the clear; descriptors among decoys, those of {inliers} that match; the pose"
    if name == "lines":
        return f"a line for each position, and the positions of {inliers} features that match, with their descriptors; the pose"
    mechanism = outcome.variant.mechanism
    assert mechanism is not None
    image = composed_epsilon({mechanism: count}, DELTA)
    bound = "without bound" if math.isinf(image) else f"{outward(image)} of the photograph"
    feature = outward(mechanism.epsilon, 6)
    return f"positions in the clear; random words, with an epsilon of {feature} a feature, {bound}; the pose"


def _promise(outcome: ExitOutcome) -> str:
    """Promise of a fetch, as a sentence."""
    guarantee = outcome.answer.guarantee
    return guarantee.reason if isinstance(guarantee, NoProof) else guarantee.sentence


def _error(answer: Localization | NoPose, error: float | None, extent: float) -> str:
    """The position error as the table shows it."""
    if isinstance(answer, NoPose) or error is None:
        return "no pose"
    return f"{100 * error / extent:.2f} %"


def _refused(others: Sequence[Localization | NoPose]) -> str:
    """How many photographs of other places were refused."""
    return f"{sum(isinstance(answer, NoPose) for answer in others)} of {len(others)}" if others else ""


def _kb(count: int) -> str:
    """A number of bytes as the table shows it."""
    return f"{count / 1e3:,.0f} kB" if count >= 1000 else f"{count} B"

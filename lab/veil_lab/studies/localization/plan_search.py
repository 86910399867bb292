"""Search among plans of releases in words by localizing with them: what arithmetic cannot know is measured.

Every plan spends at most the epsilon of the image that is asked for (`veil.ldp.planning`). All are tried on the photographs
that a first map leaves out, and the better third on those of the other maps (successive halving, Jamieson and Talwalkar 2016),
so that most time goes to plans that are worth it. The number of features, K, m and epsilon are chosen together.

Theory: release.md#plans-that-were-tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from veil.errors import InputError
from veil.ldp.planning import ReleasePlan
from veil_lab.studies.localization.upright_localization import UprightRow, UprightSetting, UprightTrial, upright_row

# Share of the plans that go on after the first map, as one in a number, and the least number of them.
ONE_IN, LEAST = 3, 4


@dataclass(frozen=True, kw_only=True)
class TriedPlan:
    """A plan with what became of it: `row` sums up its queries; `finished` tells whether all photographs were asked."""

    plan: ReleasePlan
    row: UprightRow
    finished: bool

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "words": self.plan.mechanism.dictionary_size,
            "m": self.plan.mechanism.m,
            "features": self.plan.features,
            "epsilon": self.plan.mechanism.epsilon,
            "image_epsilon": self.plan.image_epsilon,
            "queries": self.row.queries,
            "right": self.row.right,
            "accepted": self.row.accepted,
            "astray": self.row.astray,
            "median_seconds": self.row.median_seconds,
            "finished": self.finished,
        }


def setting_of(plan: ReleasePlan, *, gravity_sigma_deg: float) -> UprightSetting:
    """The plan as a setting of the study of queries with gravity."""
    law = plan.mechanism
    return UprightSetting(
        features=plan.features,
        epsilon=law.epsilon,
        m=law.m,
        words=law.dictionary_size,
        gravity_sigma_deg=gravity_sigma_deg,
    )


def search_plans(
    plans: Sequence[ReleasePlan],
    ask: Callable[[Sequence[UprightSetting], int], Sequence[UprightTrial]],
    *,
    folds: int,
    gravity_sigma_deg: float,
    metric: Mapping[str, bool],
    extent: Mapping[str, float],
) -> list[TriedPlan]:
    """Plans with their results, the best first: those that were asked everything, by share of right poses, then by time.

    - `ask`: trials of the settings with the photographs that map `index` leaves out; each setting is asked at least one.
    - `folds`: number of maps. `metric` and `extent` are those of `upright_row`.

    Raises InputError without a plan or a map.
    """
    if not plans or folds < 1:
        raise InputError("a search among plans needs at least one plan and one map")
    settings = {setting_of(plan, gravity_sigma_deg=gravity_sigma_deg): plan for plan in plans}
    trials: dict[UprightSetting, list[UprightTrial]] = {setting: [] for setting in settings}

    def rows(of: Sequence[UprightSetting]) -> list[UprightRow]:
        found = [upright_row(trials[setting], "all", metric, extent) for setting in of]
        return sorted(found, key=lambda row: (-row.right / row.queries, row.median_seconds, row.setting.features))

    going = list(settings)
    for index in range(folds):
        if index == 1:
            going = [row.setting for row in rows(going)[: max(LEAST, -(-len(going) // ONE_IN))]]
        for trial in ask(going, index):
            trials[trial.setting].append(trial)
    dropped = [setting for setting in settings if setting not in going]
    return [
        TriedPlan(plan=settings[row.setting], row=row, finished=finished)
        for part, finished in ((going, True), (dropped, False))
        for row in rows(part)
    ]

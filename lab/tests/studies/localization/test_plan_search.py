"""The search among plans: planted plans that are better or worse, and the command on bundled photographs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from veil.cli import main
from veil.errors import InputError
from veil.ldp.planning import ReleasePlan, plan_release
from veil.places.poses.options import UprightOptions, WordOptions
from veil_lab.studies.localization import upright_localization
from veil_lab.studies.localization.upright_localization import (
    LEAST,
    TriedPlan,
    UprightSetting,
    UprightTrial,
    search_plans,
    setting_of,
)
from worlds.edges import door_scene
from worlds.schemas import validate

PLANS = plan_release(image_epsilon=50.0, delta=1e-6, features=[50, 100, 200], words=[64, 256], subset_sizes=[1, 2, 4])


def searched(share: dict[UprightSetting, int], asked: list[tuple[int, set[UprightSetting]]]) -> list[TriedPlan]:
    """The search where each setting has `share` of 8 queries right in every turn; `asked` takes what was asked."""

    def ask(settings: Sequence[UprightSetting], index: int) -> list[UprightTrial]:
        asked.append((index, set(settings)))
        return [
            UprightTrial(
                setting=setting,
                scene="place",
                query=str(query),
                kind="true",
                accepted=query < share[setting],
                log10_nfa=-50.0,
                position=0.1 if query < share[setting] else None,
                rotation_deg=0.1 if query < share[setting] else None,
                seconds=2.0,
            )
            for setting in settings
            for query in range(8)
        ]

    return search_plans(PLANS, ask, folds=3, gravity_sigma_deg=0.5, metric={"place": True}, extent={"place": 1.0})


def of(plan: ReleasePlan) -> UprightSetting:
    return setting_of(plan, gravity_sigma_deg=0.5)


def test_the_better_third_goes_on_and_the_best_comes_first() -> None:
    """Planted: plan i of 18 has i // 3 of 8 queries right, and two are alike at the top."""
    asked: list[tuple[int, set[UprightSetting]]] = []
    share = {of(plan): min(index // 3, 5) for index, plan in enumerate(PLANS)}
    results = searched(share, asked)
    assert [index for index, _ in asked] == [0, 1, 2] and asked[0][1] == set(share)
    assert asked[1][1] == asked[2][1] == {of(plan) for plan in PLANS[-6:]}
    assert len(results) == len(PLANS) and {of(item.plan) for item in results} == set(share)
    assert [item.finished for item in results] == [True] * 6 + [False] * 12
    assert [item.row.queries for item in results] == [24] * 6 + [8] * 12
    for part in (results[:6], results[6:]):
        rights = [item.row.right / item.row.queries for item in part]
        assert rights == sorted(rights, reverse=True)
    assert results[0].row.right == 15 and results[-1].row.right == 0


def test_so_few_plans_are_all_asked_everything() -> None:
    settings = [of(plan) for plan in PLANS[:LEAST]]
    results = search_plans(
        PLANS[:LEAST],
        lambda asked, _: [
            UprightTrial(setting=one, scene="p", query="q", kind="true", accepted=False, log10_nfa=None, position=None,
                         rotation_deg=None, seconds=None)
            for one in asked
        ],
        folds=2,
        gravity_sigma_deg=0.5,
        metric={"p": True},
        extent={"p": 1.0},
    )  # fmt: skip
    assert {of(item.plan) for item in results} == set(settings) and all(
        item.finished and item.row.queries == 2 for item in results
    )
    with pytest.raises(InputError, match="at least one plan"):
        search_plans([], lambda *_: [], folds=2, gravity_sigma_deg=0.5, metric={}, extent={})


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_command_tries_plans_on_a_scene(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: a plan that sends 600 features at an epsilon of 300 of the image localizes the door; 20 features do not."""
    fewer = WordOptions(upright=UprightOptions(samples=60_000, kept=40, refined=10, compared=2))
    monkeypatch.setattr(upright_localization, "WordOptions", lambda: fewer)
    scene, out = door_scene(tmp_path), tmp_path / "plan.json"
    place = (scene, "--folds", 2, "--workers", 1, "--max-features", 600, "--json", out)
    asked = ("--epsilon-image", 300, "--features", 20, 600, "--word-count", 512, 500_000, "--m", 2)
    assert main(["evaluate", "plans", *map(str, (*place, *asked))]) == 0
    said = capsys.readouterr().out
    assert "2 plans are left out" in said and "best here: veil privatize --words BOOK --features 600" in said
    written = json.loads(out.read_text())
    validate("evaluate-plans", written)
    best, worst = written["tried"]
    assert best["features"] == 600 and best["right"] >= 4 and best["astray"] == 0 and best["image_epsilon"] <= 300
    assert worst["features"] == 20 and worst["right"] == 0
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "plans", *map(str, (scene, "--epsilon-image", 300, "--folds", 1))])
    assert stop.value.code == 2
    few = (*place, "--max-features", 300, "--epsilon-image", 300, "--word-count", 500_000, "--m", 2)
    assert main(["evaluate", "plans", *map(str, few)]) == 1
    assert "give smaller --word-count" in capsys.readouterr().err

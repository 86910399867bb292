"""`veil budget`: what it shows against `veil.ldp.composition`, what it says of changes, and plans that can be typed in."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from veil.cli import main
from veil.errors import ReleaseRefused
from veil.files.device.home import home
from veil.files.device.ledger import Ledger
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import inward, outward
from worlds.ledgers import ENTRY
from worlds.schemas import validate

LAW = SubsetMechanism(dictionary_size=8000, epsilon=4.0, m=2)
OTHER = replace(LAW, epsilon=2.0)
ONE = replace(ENTRY, name="one.jpg", parameters="words", features=200, message_digest="b1", mechanism=LAW)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    """The JSON on standard output of `veil budget ... --json -`."""
    capsys.readouterr()
    assert run("budget", *arguments, "--json", "-") == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def spent() -> Ledger:
    """One image in words twice, one in words and as subspaces, one as subspaces alone."""
    ledger = Ledger(home())
    ledger.record(ONE)
    ledger.record(replace(ONE, features=30, mechanism=OTHER, message_digest="b2"), allow_second=True)
    two = replace(ONE, image_digest="cc" * 32, name="two.jpg", features=40, message_digest="b3")
    ledger.record(two)
    ledger.record(replace(two, mechanism=None, message_digest="b4", fresh=True), allow_second=True)
    ledger.record(replace(ONE, image_digest="dd" * 32, name="three.jpg", mechanism=None, message_digest="b5"))
    return ledger


def test_every_unit_is_composed_over_what_it_holds(spent: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted by hand: a feature of the first image was drawn once by each law, an object of 50 has 50 and 30 of them."""
    facts = printed(capsys, "show", "--delta", 1e-7)
    validate("budget-show", facts)
    one, two, three = facts["images"]
    for unit, draws in (
        (one["feature"], {LAW: 1, OTHER: 1}),
        (one["object"], {LAW: 50, OTHER: 30}),
        (one["image"], {LAW: 200, OTHER: 30}),
        (two["feature"], {LAW: 1}),
        (two["object"], {LAW: 40}),
        (two["image"], {LAW: 40}),
        (facts["session"], {LAW: 240, OTHER: 30}),
    ):
        assert unit["epsilon"] == composed_epsilon(draws, 1e-7)
        assert unit["basic"] == composed_epsilon(draws)
    assert (facts["session"]["images"], facts["session"]["features"]) == (2, 270)
    assert [image["no_proof"] for image in (one, two, three)] == [0, 1, 1] and facts["no_proof"] == 2
    assert three["releases"] == [] and three["image"] is None
    assert printed(capsys, "show", "--object", 10)["images"][1]["object"]["epsilon"] == composed_epsilon({LAW: 10}, 1e-6)


def test_people_see_no_proof_and_never_a_zero_for_it(spent: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("budget", "show") == 0
    lines = capsys.readouterr().out.splitlines()
    begins = {name: next(k for k, line in enumerate(lines) if line.startswith(name)) for name in ("one.jpg", "two", "three")}
    one = " ".join(lines[begins["one.jpg"] : begins["two"]])
    assert outward(composed_epsilon({LAW: 200, OTHER: 30}, 1e-6)) in one
    assert "1 of subspaces: no proof, which no epsilon covers" in " ".join(lines)
    three = lines[begins["three"]]
    assert three.endswith("1 of subspaces: no proof") and "epsilon" not in three
    assert "outside of every epsilon: 2 releases of subspaces" in "\n".join(lines)
    assert "no budget is set" in lines[-1]


def test_what_is_left_of_a_budget(spent: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """At the budget's own delta, whatever delta is shown."""
    assert run("budget", "set", "image", 100, "--delta", 1e-5) == 0
    assert run("budget", "set", "session", 50) == 0
    facts = printed(capsys, "show", "--delta", 1e-9)
    validate("budget-show", facts)
    image, session = facts["budgets"]
    most = composed_epsilon({LAW: 200, OTHER: 30}, 1e-5)
    assert (image["spent"], session["spent"]) == (most, composed_epsilon({LAW: 240, OTHER: 30}, 1e-6))
    assert image["left"] == facts["images"][0]["left"] == pytest.approx(100 - most) and image["left"] <= 100 - most
    assert session["left"] == 0.0
    assert facts["images"][2]["left"] == pytest.approx(100)
    assert run("budget", "show") == 0
    said = capsys.readouterr().out
    assert f"spent the most of one {outward(most)}, left {inward(100 - most)}" in said


def test_changing_a_budget_says_what_it_breaks(spent: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: object) -> str:
        assert run("budget", "set", *arguments) == 0
        return capsys.readouterr().out

    assert "it was none" in said("image", 100)
    lowered = said("image", 45)
    assert "it was epsilon 100 at delta 1e-06" in lowered and "no longer holds" not in lowered
    most = composed_epsilon({LAW: 200, OTHER: 30}, 1e-6)
    assert most > 45
    assert f"1 images have spent more already (the most one.jpg, {outward(most)})" in lowered
    assert "2 releases of subspaces are outside of it" in lowered
    assert "warning: what was promised before, epsilon 45 at delta 1e-06, no longer holds" in said("image", 46)
    assert "no longer holds" in said("image", 46, "--delta", 1e-5)
    assert "no longer holds" not in said("image", 46, "--delta", 1e-7)
    assert "is spent already: no more words can be released" in said("session", 1)
    assert "no longer holds" in said("session", "none")
    cleared = said("session", "none")
    assert "is none; it was none" in cleared and "no longer holds" not in cleared
    validate("budget-show", shown := printed(capsys, "show"))
    changes = shown["changes"]
    assert [(change["unit"], change["epsilon"]) for change in changes] == [
        *(("image", epsilon) for epsilon in (100.0, 45.0, 46.0, 46.0, 46.0)),
        *(("session", 1.0), ("session", None), ("session", None)),
    ]
    validate("budget-set", changed := printed(capsys, "set", "session", 5))
    assert changed == {
        "unit": "session",
        "budget": {"epsilon": 5.0, "delta": 1e-6},
        "before": None,
    }


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (["set", "image", "nan"], "finite and >= 0"),
        (["set", "session", "inf"], "finite and >= 0"),
        (["set", "image", "1", "--delta", "0"], "between 1e-15 and 1"),
        (["plan", "--epsilon-image", "inf"], "finite and >= 0"),
        (["plan", "--epsilon-image", "5", "--delta", "2"], "delta must lie between"),
        (["plan", "--epsilon-image", "5", "--word-count", "4", "--m", "4"], "no subset size is less"),
    ],
)
def test_impossible_numbers_change_nothing(choices: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("budget", *choices) == 1
    assert words in capsys.readouterr().err
    assert not (home() / "ledger.sqlite").exists()


@pytest.mark.parametrize("choices", [["set"], ["set", "image"], ["set", "feature", "1"], ["set", "image", "much"], []])
def test_wrong_usage(choices: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run("budget", *choices)
    assert stop.value.code == 2


def test_looking_makes_no_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    facts = printed(capsys, "show")
    assert facts["images"] == [] and facts["session"]["epsilon"] == 0.0
    assert not home().exists()


def test_an_infinite_epsilon_is_null_for_machines_and_a_word_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Ledger(home()).record(replace(ONE, mechanism=replace(LAW, epsilon=math.inf)))
    assert printed(capsys, "show")["session"]["epsilon"] is None
    assert run("budget", "set", "session", 5) == 0
    assert run("budget", "show") == 0
    said = capsys.readouterr().out
    (row,) = (line for line in said.splitlines() if line.startswith(ONE.name))
    assert row.split()[-4:] == ["infinite"] * 4 and "spent infinite, left 0" in said


@pytest.mark.slow
def test_a_plan_can_be_typed_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed epsilons compose to at most the given budget (oracle: `composed_epsilon`), and the figure is a PNG."""
    arguments = ("plan", "--epsilon-image", 300, "--features", 100, 1000, "--word-count", 16384, "--m", 1, 2)
    validate("budget-plan", record := printed(capsys, *arguments))
    plans = record["plans"]
    assert len(plans) == 4
    assert run("budget", *arguments, "--figure", tmp_path / "plan.png") == 0
    said = capsys.readouterr().out
    for plan in plans:
        assert f"{plan['epsilon']:.3f}" in said
        law = SubsetMechanism(dictionary_size=plan["words"], epsilon=float(f"{plan['epsilon']:.3f}"), m=plan["m"])
        assert composed_epsilon({law: plan["features"]}, 1e-6) == plan["image_epsilon"] <= 300
    assert "how often two views of a point fall on one word" in said and "no plan here" not in said
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["plan", "plan.txt", "plan.jpg"])
def test_a_figure_of_an_unknown_format_is_wrong_usage(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is computed: without an ending an empty file would be left."""
    with pytest.raises(SystemExit) as stopped:
        run("budget", "plan", "--epsilon-image", 5, "--figure", tmp_path / name)
    assert stopped.value.code == 2 and "must end in .png or .svg" in capsys.readouterr().err
    assert not list(tmp_path.glob("plan*"))


@pytest.mark.slow
def test_a_hopeless_epsilon_is_called_hopeless(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("budget", "plan", "--epsilon-image", 5) == 0
    assert "no plan here is enough for a pose" in capsys.readouterr().out
    assert run("budget", "plan", "--epsilon-image", 20000, "--features", 2000, "--word-count", 16384, "--m", 1) == 0
    assert "is the true one with probability" in capsys.readouterr().out


def test_a_video_is_refused_by_the_budget_of_a_point(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: five photographs of one point fit, the sixth does not, also for a ledger that is opened anew.

    Broken twin: the budget of the image, which each photograph keeps, lets all of them through.
    """
    law = replace(LAW, epsilon=1.0)
    limit = composed_epsilon({law: 5}, 1e-6)
    assert run("budget", "set", "image", 1000) == 0 and run("budget", "set", "point", limit) == 0
    frames = [
        replace(ONE, image_digest=f"{number:02x}" * 32, name=f"{number}.jpg", message_digest=f"f{number}", mechanism=law)
        for number in range(6)
    ]
    for frame in frames[:5]:
        Ledger(home()).record(frame)
    with pytest.raises(ReleaseRefused, match=r"5.jpg: the budget of a point .* nothing was released"):
        Ledger(home()).record(frames[5])
    facts = printed(capsys, "show")
    validate("budget-show", facts)
    assert facts["point"] == {"epsilon": composed_epsilon({law: 5}, 1e-6), "basic": 5.0}
    assert [budget["unit"] for budget in facts["budgets"] if budget["left"] < 1e-9] == ["point"]
    assert run("budget", "set", "point", "none") == 0
    Ledger(home()).record(frames[5])
    assert run("budget", "show") == 0 and "a point that all 6 releases in words show" in capsys.readouterr().out

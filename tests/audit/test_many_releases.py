"""Audits of several releases: workers of an engine find what one process finds, and the time is added up."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from veil.attacks.attack import Attempt, Skipped
from veil.attacks.registry import ATTACKS, TIME_SHARES
from veil.attacks.target import Effort, Knowledge
from veil.attacks.time_budget import TimeBudget
from veil.audit.run import Examined, examine
from veil.cli import main
from veil.device.auditing import AuditOptions, run_audit
from veil.engine.local import LocalEngine
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.features import write_features
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize_words
from veil.wire.message import Message
from worlds.recorded_steps import RecordedSteps
from worlds.releases import CHANCE, released, taken

KNOWLEDGE = Knowledge(codebook=bundled_codebook(), decoys=bundled_codebook(), database=bundled_decoys())
QUICK = [attack for attack in ATTACKS if attack.name in ("lattice", "nearest", "intersection", "clustering", "order")]


@pytest.fixture(scope="module")
def releases(door: dict[str, Features]) -> dict[str, Message]:
    """Releases of two photographs of one place, so that the intersection attack has something to find."""
    return {name: released(taken(item, np.arange(30)), Profile.paper(4))[0] for name, item in list(door.items())[:2]}


def outcomes(examined: list[Examined]) -> list[tuple[str, list[tuple[str, str, list[int], bytes]]]]:
    """The outcome of each attack for each release, without the time that it took."""
    by_release = []
    for item in examined:
        own = []
        for tried in item.tried:
            attempt = tried.outcome
            if isinstance(attempt, Skipped):
                own.append((tried.attack.name, attempt.why, list[int](), b""))
                continue
            points = attempt.estimates.points.tobytes() if attempt.estimates is not None else repr(attempt.notes).encode()
            own.append((tried.attack.name, attempt.label, attempt.rows.tolist(), points))
        by_release.append((item.name, own))
    return by_release


@pytest.mark.slow
def test_workers_find_what_one_process_finds(releases: dict[str, Message]) -> None:
    """Second method: one release after another in this process. Attacks are the caller's, not copies of them."""
    effort = Effort(features=12, structural=6, threads=1)
    alone, told = RecordedSteps(), RecordedSteps()
    here = examine(releases, {}, KNOWLEDGE, effort=effort, attacks=QUICK, progress=alone)
    alone.require_time_left(last=0.8)
    assert len(alone.told) == sum(len(item.tried) for item in here)
    budget = TimeBudget(math.inf, turns=2, shares=TIME_SHARES)
    with LocalEngine(2) as engine:
        there = examine(releases, {}, KNOWLEDGE, effort=effort, attacks=QUICK, time=budget, engine=engine, progress=told)
    assert outcomes(there) == outcomes(here)
    assert any(isinstance(tried.outcome, Attempt) for item in there for tried in item.tried)
    assert all(tried.attack in QUICK for item in there for tried in item.tried)
    assert sorted(step for step, _, _ in told.told) == sorted(releases)
    assert [item[1:] for item in told.told] == [(1, 2), (2, 2)]
    assert {name: spent.wanted for name, spent in budget.spent.items()} and budget.used_seconds > 0


def test_parts_of_a_budget_are_added_up() -> None:
    """Oracle: sums by hand, with a clock that each look moves by a second."""
    seconds = iter(range(1000))
    whole = TimeBudget(90.0, turns=3, shares={"a": 2.0, "b": 1.0})
    for _ in range(2):
        part = TimeBudget(30.0, turns=1, shares={"a": 2.0, "b": 1.0}, clock=lambda: float(next(seconds)))
        part.begin_turn()
        part.run("a", np.arange(5), lambda piece: piece, 0)
        part.charge(4.0)
        whole.add(part)
    spent = whole.spent["a"]
    assert spent.wanted == spent.attacked == 10 and spent.share_seconds == 60.0
    assert whole.used_seconds == pytest.approx(2 * part.used_seconds) and spent.seconds == pytest.approx(
        2 * part.spent["a"].seconds
    )


@pytest.mark.slow
def test_the_command_attacks_several_releases_at_a_time(door: dict[str, Features], tmp_path: Path) -> None:
    """Second method: the record of the same command with one worker, but for seconds."""
    names = list(door)[:2]
    write_features(tmp_path / "f.h5", [(name, taken(door[name], np.arange(40))) for name in names])
    assert main(["privatize", str(tmp_path / "f.h5"), "-o", str(tmp_path / "up"), "--for", "map"]) == 0
    records = []
    for workers in (1, 2):
        given = [
            "audit",
            str(tmp_path / "up"),
            "--attacked-features",
            "8",
            "--max-seconds",
            "0",
            "--pictures",
            "0",
            "--only",
            "lattice",
            "nearest",
        ]
        out = ["-o", str(tmp_path / "a.html"), "--json", str(tmp_path / "a.json"), "--workers", str(workers)]
        assert main([*given, *out]) == 0
        record = json.loads((tmp_path / "a.json").read_text())
        records.append([{**row, "seconds": 0} for row in record["attacks"]])
    assert records[0] == records[1] and records[0]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("order", [(2.0, 5.0), (5.0, 2.0)])
def test_the_largest_epsilon_is_measured_whichever_release_comes_first(
    door: dict[str, Features], order: tuple[float, float]
) -> None:
    """Broken twin: the mechanism of the first release, whose bound of 2 would pass for that of 5."""
    book = bundled_codebook()
    messages: dict[str, Message] = {}
    for epsilon, (name, features) in zip(order, door.items(), strict=False):
        law = SubsetMechanism(dictionary_size=len(book), epsilon=epsilon, m=2)
        few = taken(features, np.arange(30))
        messages[name] = privatize_words(few, mechanism=law, dictionary=book, randomness=CHANCE).upload
    measured = run_audit(messages, options=AuditOptions(attacks=(), features=2)).measured
    assert measured is not None and 3.0 < measured.low < 5.0

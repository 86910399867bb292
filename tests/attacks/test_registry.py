"""Completeness of the list of attacks: it names every module of attacks, and the audit runs every entry or says why not."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import veil.attacks
from veil.attacks.attack import FAMILIES, Attempt, CannotRun, Skipped, attempted, run_attack
from veil.attacks.claims import Estimates
from veil.attacks.distribution.nearest import nearest_neighbor
from veil.attacks.registry import ATTACKS, TIME_SHARES, estimated, inapplicable, named, unbounded
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.audit.ground_truth import find_truth
from veil.audit.run import examine, findings, not_looked_at
from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.report.audit import TITLES
from veil.wire.message import Message
from worlds.releases import planted_map, released, taken

# Modules of veil.attacks that are no attacks, with what they hold.
PARTS = {
    "attack": "types of attacks and outcomes",
    "claims": "types of claims",
    "target": "types of what an attack sees",
    "time_budget": "time of the attacks",
    "pieces": "answers that are joined from pieces",
    "registry": "the list itself",
    "on_subspaces": "entries of the list",
    "learned": "entries of the list",
    "on_words": "entries of the list",
    "on_lines": "entries of the list",
    "answered_objects": "an attack on the answers of a map, and on no release",
}
KNOWLEDGE = Knowledge(codebook=bundled_codebook(), decoys=bundled_codebook(), database=bundled_decoys())


def test_every_module_of_the_room_is_in_the_list() -> None:
    room = Path(str(files(veil.attacks)))
    modules = {".".join(path.relative_to(room).with_suffix("").parts) for path in room.rglob("*.py") if path.stem != "__init__"}
    listed = {module for attack in ATTACKS for module in attack.modules}
    assert listed | set(PARTS) == modules
    assert not listed & set(PARTS)


def test_the_list_is_consistent() -> None:
    """Names are unique on each kind of release; every family has a title on the page; shares are those of the list."""
    assert len({(attack.surface, attack.name) for attack in ATTACKS}) == len(ATTACKS)
    assert {attack.family for attack in ATTACKS} == set(FAMILIES) == set(TITLES)
    assert all(attack.assumes and attack.modules for attack in ATTACKS)
    assert sum(TIME_SHARES.values()) == sum(attack.time_share for attack in ATTACKS)
    with pytest.raises(KeyError, match="psychic"):
        named("psychic")


@pytest.mark.slow
@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("kind", ["subspaces", "words"])
def test_the_audit_runs_every_attack_or_says_why_not(door: dict[str, Features], kind: str, lines: bool) -> None:
    features = taken(next(iter(door.values())), np.arange(30))
    message, _ = released(features, Profile.paper(4) if kind == "subspaces" else None, lines=lines)
    truth = find_truth(message, {"a": features}, KNOWLEDGE.codebook)
    effort = Effort(features=5, structural=3)
    told = findings(examine({"a": message}, {"a": truth}, KNOWLEDGE, effort=effort))
    elsewhere = not_looked_at([message])
    assert len(told) + len(elsewhere) == len(ATTACKS)
    for finding in told:
        assert finding.skipped or finding.notes or finding.score is not None
    assert all(elsewhere.values())
    ran = {finding.attack for finding in told if not finding.skipped}
    lifted = {"lattice", "vertex", "nearest", "database", "clustering", "intersection"}
    assert (lifted if kind == "subspaces" else {"posterior"}) <= ran and ("line density" in ran) == lines


@pytest.mark.slow
def test_a_broken_twin_that_is_forgotten_is_seen(door: dict[str, Features]) -> None:
    """An audit over a list that lacks an attack neither runs it nor says why."""
    message, _ = released(taken(next(iter(door.values())), np.arange(12)), Profile.paper(4))
    short = [attack for attack in ATTACKS if attack.name != "inliers"]
    told = findings(examine({"a": message}, {}, KNOWLEDGE, effort=Effort(features=4), attacks=short))
    assert len(told) + len(not_looked_at([message])) == len(ATTACKS) - 1


def target(message: Message, **known: object) -> Target:
    return Target(
        image=ReleasedImage.of(message),
        rows=np.arange(len(message)),
        knowledge=replace(KNOWLEDGE, **known),  # type: ignore[arg-type]
        time=unbounded(),
    )


@pytest.mark.slow
def test_an_attack_is_the_function_that_it_names(door: dict[str, Features]) -> None:
    """Second method: the attack called by hand claims what the list's entry does."""
    message, _ = released(taken(next(iter(door.values())), np.arange(20)), Profile.paper(4))
    seen = target(message)
    (attack,) = named("nearest, projected")
    attempt = run_attack(attack, seen)
    assert isinstance(message.form, Subspaces) and attempt.estimates is not None
    by_hand = nearest_neighbor(message.form, KNOWLEDGE.database_in(message.form.space))
    np.testing.assert_array_equal(attempt.estimates.points, by_hand.points)
    estimates, decoys = estimated("nearest, projected", seen)
    np.testing.assert_array_equal(estimates.points, by_hand.points)
    assert decoys is None
    with pytest.raises(TypeError, match="'oracle' does not estimate descriptors"):
        estimated("oracle", seen)


@pytest.mark.slow
def test_what_an_attack_lacks_is_said(door: dict[str, Features]) -> None:
    message, _ = released(taken(next(iter(door.values())), np.arange(20)), Profile.hardened(quantized=True))
    (lattice, database, inliers) = named("lattice", "database", "inliers")
    for attack, change, why in (
        (lattice, {"codebook": None}, "was not given"),
        (database, {"decoys": None}, "pool is secret"),
        (inliers, {}, "no map of the place"),
    ):
        outcome = attempted(attack, target(message, **change))
        assert isinstance(outcome, Skipped) and why in outcome.why
    with pytest.raises(CannotRun):
        run_attack(inliers, target(message))
    faces = next(attack for attack in ATTACKS if attack.name == "attributes")
    assert "not of faces" in inapplicable(faces, ReleasedImage.of(message))
    assert isinstance(attempted(faces, target(message)), Skipped)
    assert isinstance(attempted(database, target(message, decoys=KNOWLEDGE.decoys)), Skipped | Attempt)
    with pytest.raises(InputError):
        examine({}, {}, KNOWLEDGE)


@pytest.mark.slow
@pytest.mark.parametrize("public", [True, False])
def test_whoever_localizes_a_release_learns_the_features_that_match(door: dict[str, Features], public: bool) -> None:
    """Planted truth: a map that sees the very features of the query at known points. The estimates of those that agree with the
    pose are nearer to the descriptors than any attack without a map comes; a map of another place gives nothing."""
    features = taken(next(iter(door.values())), np.arange(150))
    message, order = released(features, Profile.paper(4))
    scene = planted_map(features, public=public)
    outcome = attempted(named("inliers")[0], target(message, scene=scene))
    assert isinstance(outcome, Attempt) and isinstance(outcome.claim, Estimates)
    truth = publish(features).vectors[order].astype(np.float64)
    known = outcome.claim.decided
    error = np.linalg.norm(outcome.claim.points - truth, axis=1)[known]
    assert known.mean() > 0.8 and math.isclose(outcome.details["matched"], known.mean())
    assert np.median(error) < (1e-3 if public else 0.05)  # half precision, and the angles between subspaces
    assert not outcome.claim.certified.any()
    other = planted_map(replace(features, descriptors=features.descriptors[::-1].copy()), public=public)
    lost = attempted(named("inliers")[0], target(message, scene=other))
    assert isinstance(lost, Skipped) and "does not localize" in lost.why and not lost.left_out

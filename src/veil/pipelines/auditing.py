"""The audit of one's own releases: every attack that veil knows, measured against the originals if they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from veil.attacks.attack import Attack
from veil.attacks.registry import ATTACKS, TIME_SHARES
from veil.attacks.target import Effort, Knowledge
from veil.attacks.time_budget import AUDIT_SECONDS, TimeBudget
from veil.audit.audit_result import Outcome
from veil.audit.epsilon import EpsilonBound, measured
from veil.audit.ground_truth import Truth, find_truth
from veil.audit.on_pictures import Reconstruction, reconstructions
from veil.audit.policy import Rule, breaches, least_features
from veil.audit.run import Examined, epsilons, examine, findings, not_looked_at
from veil.audit.verdict import judge
from veil.errors import RangeError
from veil.features import Features
from veil.files.client import LEDGER, read_ledger
from veil.forms import Subsets
from veil.inversion.maps import Inverts, Kind
from veil.ldp.budget import total
from veil.ldp.composition import composed_epsilon
from veil.pipelines.attacker import Attacker
from veil.wire.message import Message

DELTA = 1e-6
# Of the time, for the attacks whose answers are drawn as pictures; they also get what the others leave.
PICTURES_SHARE = 0.2
STRUCTURAL = ("structural", "lattice", "vertex")
LIFTED = (*STRUCTURAL, "distribution", "intersection", "nearest", "nearest, projected", "database", "clustering")
ReadPhotograph = Callable[[str], np.ndarray | None]
Tell = Callable[[str], None]


@runtime_checkable
class Steps(Protocol):
    """What shows progress: `steps("attacking")` is a context whose value is called with the name of each step."""

    def __call__(self, what: str) -> AbstractContextManager[Tell]: ...


def silent(what: str) -> AbstractContextManager[Tell]:
    """Progress that nobody watches."""
    return nullcontext(lambda step: None)


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How much is attacked, for how long, and what fails an audit.

    `features` are attacked at most over all releases (None: as many as usual, or as the rules need), drawn by `seed`, within
    `seconds` of the processor (infinite: no limit). Of the first `pictured` releases pictures are reconstructed, by networks.
    `rules` fail an audit, `attacks` are those that are tried. Raises RangeError for a time that is not positive.
    """

    features: int | None = None
    seconds: float = float(AUDIT_SECONDS)
    seed: int = 0
    threads: int = 2
    pictured: int = 0
    rules: Sequence[Rule] = ()
    attacks: Sequence[Attack] = ATTACKS

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise RangeError(f"seconds must be positive (inf: no limit), got {self.seconds!r}")

    @property
    def effort(self) -> Effort:
        """As many features as are asked for, else as the rules need."""
        usual = Effort(seed=self.seed, threads=self.threads)
        if self.features is not None:
            return replace(usual, features=self.features)
        every, structural = least_features(self.rules, LIFTED), least_features(self.rules, STRUCTURAL)
        return replace(usual, features=max(usual.features, every), structural=max(usual.structural, structural))


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """What an audit came to (`outcome`), and each release with what was tried on it (`examined`)."""

    outcome: Outcome
    examined: Sequence[Examined]


def run_audit(
    releases: Mapping[str, Message],
    *,
    originals: Mapping[str, Features] | None = None,
    attacker: Attacker | None = None,
    options: AuditOptions | None = None,
    networks: Mapping[Kind, Inverts] | None = None,
    read_photograph: ReadPhotograph = lambda name: None,
    ledger: Path | None = None,
    facts: Mapping[str, object] | None = None,
    steps: Steps = silent,
) -> Audit:
    """Attack one's own `releases` with everything that is known.

    With `originals` (features by the name of their photograph) every attack is measured, without them only what an attack
    certifies by itself counts. `networks` draw pictures of what was recovered, beside the photographs that `read_photograph`
    returns. `ledger` is the client's folder, whose words add up to the epsilon of the session; `facts` go into the record.
    A share is what known attacks reach, a lower bound of what leaks: an audit can find a release broken, never safe.
    Raises InputError for no release, releases of several kinds, or originals of other photographs.
    """
    options, attacker = options or AuditOptions(), attacker or Attacker()
    knowledge = attacker.knowledge(list(releases.values()))
    truths = {} if originals is None else _truths(releases, originals, knowledge, steps)
    effort, pictured = options.effort, options.pictured if networks else 0
    allowed = TimeBudget(options.seconds * (1 - PICTURES_SHARE), turns=len(releases), shares=TIME_SHARES)
    with steps("attacking") as tell:
        examined = examine(releases, truths, knowledge, effort=effort, attacks=options.attacks, time=allowed, progress=tell)
    found = findings(examined, knowledge.codebook)
    spent = epsilons(releases.values(), DELTA) | _session(ledger)
    left = max(options.seconds - allowed.used_seconds, PICTURES_SHARE * options.seconds)
    rest = TimeBudget(left, turns=max(1, pictured), shares=TIME_SHARES)
    pictures: list[Reconstruction] = []
    with steps("pictures") as tell:
        for item in examined[:pictured]:
            has_original = originals is not None and item.truth is not None
            name = item.truth.image if item.truth is not None else ""
            pictures += reconstructions(
                item,
                knowledge,
                networks or {},
                effort=effort,
                features=originals.get(name) if has_original and originals is not None else None,
                photograph=read_photograph(name) if has_original else None,
                time=rest,
                progress=tell,
            )
    outcome = Outcome(
        messages=list(releases),
        facts=facts or {},
        findings=found,
        not_looked_at=not_looked_at(releases.values()),
        pictures=pictures,
        epsilons=spent,
        delta=DELTA,
        measured=_measured_epsilon(releases),
        verdict=judge(found, spent, DELTA),
        rules=options.rules,
        breaches=breaches(options.rules, found, spent),
        have_originals=bool(truths),
        time=allowed,
        picture_time=rest,
    )
    return Audit(outcome=outcome, examined=examined)


def _truths(
    releases: Mapping[str, Message], originals: Mapping[str, Features], knowledge: Knowledge, steps: Steps
) -> dict[str, Truth]:
    found = {}
    with steps("recognizing") as tell:
        for name, message in releases.items():
            found[name] = find_truth(message, originals, knowledge.codebook)
            tell(name)
    return found


def _session(folder: Path | None) -> dict[str, float]:
    """Epsilon of all that the client's ledger holds; nothing if there is none."""
    if folder is None or not (folder / LEDGER).is_file():
        return {}
    charges = [entry.charge for entry in read_ledger(folder / LEDGER) if entry.charge]
    if not charges:
        return {}
    if any(math.isinf(charge.mechanism.epsilon) for charge in charges):
        return {"session": math.inf}
    return {"session": composed_epsilon(total(charges), DELTA)}


def _measured_epsilon(releases: Mapping[str, Message]) -> EpsilonBound | None:
    """What runs of the mechanism show of the first release's epsilon; None where there is none, or no bound."""
    form = next(iter(releases.values())).form
    if not isinstance(form, Subsets) or math.isinf(form.mechanism.epsilon):
        return None
    return measured(form.mechanism)

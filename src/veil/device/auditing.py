"""The audit of one's own releases: every known attack is run, and measured against the originals if they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veil.attacks.attack import Attack
from veil.attacks.registry import ATTACKS, TIME_SHARES
from veil.attacks.target import Effort, Knowledge
from veil.attacks.time_budget import AUDIT_SECONDS, TimeBudget
from veil.audit.audit_result import Audit
from veil.audit.epsilon import EpsilonBound, measured
from veil.audit.ground_truth import Truth, find_truth
from veil.audit.laws import broken_laws
from veil.audit.on_pictures import DrawnPicture, reconstructions
from veil.audit.policy import Rule, breaches, least_features
from veil.audit.recovered import most_recovered
from veil.audit.run import epsilons, examine, findings, not_looked_at
from veil.audit.verdict import judge
from veil.device.attacker import Attacker, knowledge_of
from veil.engine import Engine, open_engine
from veil.errors import RangeError
from veil.features import Features
from veil.files.attack_networks import bundled_inverter, read_weights
from veil.files.device.ledger import LEDGER, read_ledger
from veil.forms import Subsets
from veil.inversion.forward import PlainInverter
from veil.inversion.maps import Inverts, Kind
from veil.ldp.budget import total
from veil.ldp.composition import composed_epsilon
from veil.one_line import one_line
from veil.progress import StepCount, StepProgress, Steps, silent
from veil.wire.message import Message

DELTA = 1e-6
# Share of the time for the attacks whose answers are drawn as pictures; they also get what the others leave.
PICTURES_SHARE = 0.2
STRUCTURAL = ("structural", "lattice", "vertex")
LIFTED = (*STRUCTURAL, "distribution", "intersection", "nearest", "nearest, projected", "database", "clustering")
ReadPhotograph = Callable[[str], np.ndarray | None]


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit: how much is attacked, for how long, and what fails it.

    - `features`: largest number of features to attack, over all releases; None: 400, or as many as the rules need.
    - `seconds`: of processor time that the attacks share (infinite: no limit; docs/theory/audit.md#time).
    - `seed`: draws the features that are attacked.
    - `threads`: of the structural attacks.
    - `pictured`: number of releases, the first ones, of which networks reconstruct pictures.
    - `rules`: what fails the audit, as `Rule.parse` reads them.
    - `attacks`: those that are tried.

    Raises RangeError for a time that is not positive.
    """

    features: int | None = None
    seconds: float = float(AUDIT_SECONDS)
    seed: int = 0
    threads: int = 2
    pictured: int = 0
    rules: Sequence[Rule] = ()
    attacks: Sequence[Attack] = ATTACKS

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise RangeError(f"seconds must be positive (inf: no limit), got {self.seconds!r}")


def _effort(options: AuditOptions) -> Effort:
    """Number of features, seed and threads of the attacks: the features asked for, else as many as the rules need."""
    usual = Effort(seed=options.seed, threads=options.threads)
    if options.features is not None:
        return replace(usual, features=options.features)
    every, structural = least_features(options.rules, LIFTED), least_features(options.rules, STRUCTURAL)
    return replace(usual, features=max(usual.features, every), structural=max(usual.structural, structural))


def inverters_of(weights: Sequence[Path | str]) -> dict[Kind, Inverts]:
    """The networks that draw pictures, by what they read: the bundled one for raw SIFT, and those of files.

    `weights` are files that `veil lab train inversion` wrote. Raises FileFormatError for another file.
    """
    given = [read_weights(Path(path)) for path in weights]
    return {item.kind: PlainInverter(item) for item in (bundled_inverter(), *given)}


def run_audit(
    releases: Mapping[str, Message],
    *,
    originals: Mapping[str, Features] | None = None,
    attacker: Attacker | None = None,
    options: AuditOptions | None = None,
    inverters: Sequence[Path | str] = (),
    read_photograph: ReadPhotograph = lambda name: None,
    ledger: Path | str | None = None,
    facts: Mapping[str, object] | None = None,
    engine: str = "local",
    workers: int | None = 1,
    steps: Steps[StepProgress] = silent,
) -> Audit:
    """Attack one's own releases with every known attack, and report what each recovers (docs/theory/audit.md).

    A share is what known attacks reach, a lower bound of what leaks: an audit can find a release broken, never safe.

    - `releases`: one or more messages by name, all of one kind and space.
    - `originals`: raw features by the name of their photograph. With them every attack is measured; without them only what an
      attack certifies by itself counts.
    - `attacker`: what the attacker has; by default everything that is public.
    - `options`: extent, time and rules of the audit.
    - `inverters`: files that `veil lab train inversion` wrote, whose networks draw pictures of what was recovered beside the
      bundled one, which reads raw SIFT.
    - `read_photograph`: gives the photograph of a name as uint8 RGB (height, width, 3), to compare pictures with; None if it is
      not at hand.
    - `ledger`: folder of the client's ledger, whose words add up to the epsilon of the session.
    - `facts`: entries about the release that are copied into the record.
    - `engine`, `workers`: where several releases are attacked at a time, each with an equal part of the time, and in how many
      processes (None: one for each core). "local": on this machine, and with one worker in this process; "dask" or
      "dask:ADDRESS": on a cluster (docs/reference/engine.md). Pictures are drawn in this process.
    - `steps`: shows progress, see `Steps`.

    Raises InputError for no releases, or releases of several kinds, a database that does not fit them, or originals of other
    photographs.
    """
    options, attacker = options or AuditOptions(), attacker or Attacker()
    knowledge = knowledge_of(attacker, list(releases.values()))
    truths = {} if originals is None else _truths(releases, originals, knowledge, steps)
    effort, pictured = _effort(options), options.pictured
    networks = inverters_of(inverters) if pictured else {}
    allowed = TimeBudget(options.seconds * (1 - PICTURES_SHARE), turns=len(releases), shares=TIME_SHARES)
    with _opened(engine, workers) as opened, steps("attacking") as tell:
        examined = examine(
            releases, truths, knowledge, effort=effort, attacks=options.attacks, time=allowed, engine=opened, progress=tell
        )
    measured_findings = findings(examined)
    spent = epsilons(releases.values(), DELTA) | _session(None if ledger is None else Path(ledger))
    left = max(options.seconds - allowed.used_seconds, PICTURES_SHARE * options.seconds)
    rest = TimeBudget(left, turns=max(1, pictured), shares=TIME_SHARES)
    pictures: list[DrawnPicture] = []
    with steps("pictures") as tell:
        count = StepCount(tell, len(examined[:pictured]))
        for item in examined[:pictured]:
            original = None if originals is None or item.truth is None else item.truth.image
            pictures += reconstructions(
                item,
                knowledge,
                networks,
                effort=effort,
                features=None if originals is None or original is None else originals.get(original),
                photograph=None if original is None else read_photograph(original),
                time=rest,
                progress=count.part(1.0),
            )
    return Audit(
        messages=list(releases),
        facts=facts or {},
        findings=measured_findings,
        not_looked_at=not_looked_at(releases.values()),
        pictures=pictures,
        epsilons=spent,
        delta=DELTA,
        measured=_measured_epsilon(releases),
        verdict=judge(
            measured_findings,
            spent,
            DELTA,
            remarks=[
                *_remarks(options.attacks, truths.values(), originals or {}, knowledge),
                *(f"A law of attacks is broken, by chance or a fault of veil: {broken}." for broken in broken_laws(examined)),
            ],
        ),
        rules=options.rules,
        breaches=breaches(options.rules, measured_findings, spent),
        originals={name: truth.image for name, truth in truths.items()},
        recovered={item.name: best for item in examined if (best := most_recovered(item)) is not None},
        time=allowed.as_record(),
        picture_time=rest.as_record(),
    )


def _opened(engine: str, workers: int | None) -> AbstractContextManager[Engine | None]:
    """The engine that `engine` and `workers` name; None for this process."""
    return nullcontext() if engine == "local" and workers == 1 else open_engine(engine, workers=workers)


def _remarks(
    attacks: Sequence[Attack], truths: Iterable[Truth], originals: Mapping[str, Features], knowledge: Knowledge
) -> list[str]:
    """Sentences on attacks that nobody asked for, and on photographs that the attacker's networks have learned by heart."""
    remarks = []
    if not_run := list(dict.fromkeys(attack.name for attack in ATTACKS if attack not in attacks)):
        remarks.append(f"{len(not_run)} attacks were not asked for, and may recover more: {', '.join(not_run)}.")
    if knowledge.learned is not None:
        seen = [truth.image for truth in truths if knowledge.learned.training.has_seen(originals[truth.image].image_digest)]
        if seen:
            remarks.append(
                f"The networks of the attacks that learn were trained on {len(seen)} of the photographs "
                f"({', '.join(seen[:3])}): of these they recover more than of others."
            )
    return remarks


def _truths(
    releases: Mapping[str, Message], originals: Mapping[str, Features], knowledge: Knowledge, steps: Steps[StepProgress]
) -> dict[str, Truth]:
    """The originals behind each release, by its name. Raises InputError if a release is of another photograph."""
    truths = {}
    with steps("recognizing") as tell:
        count = StepCount(tell, len(releases))
        for name, message in releases.items():
            count.begin(name)
            truths[name] = find_truth(message, originals, knowledge.codebook)
    return truths


def _session(folder: Path | None) -> dict[str, float]:
    """Epsilon of all words that the client's ledger lists, under "session"; empty if there is no ledger or it lists none."""
    if folder is None or not (folder / LEDGER).is_file():
        return {}
    charges = [entry.charge for entry in read_ledger(folder / LEDGER) if entry.charge]
    if not charges:
        return {}
    if any(math.isinf(charge.mechanism.epsilon) for charge in charges):
        return {"session": math.inf}
    return {"session": composed_epsilon(total(charges), DELTA)}


def _measured_epsilon(releases: Mapping[str, Message]) -> EpsilonBound | None:
    """Lower bound of the largest epsilon among the releases, measured by runs of its mechanism.

    None without words, or where an epsilon is infinite.
    """
    mechanisms = [message.form.mechanism for message in releases.values() if isinstance(message.form, Subsets)]
    largest = max(mechanisms, key=lambda mechanism: mechanism.epsilon, default=None)
    return None if largest is None or math.isinf(largest.epsilon) else measured(largest)

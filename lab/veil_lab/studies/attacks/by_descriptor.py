"""Study of attacks by descriptor: every attack of the list on releases of SIFT and of learned features, in the same forms.

Photographs are released as Dusmanu et al. 2021 lift them, in the hardened form, and in words, with books that are made from the
attacker's photographs. What an attack needs beside the release it is given: the attacker's own descriptors, uploads of other
photographs, a second release, and a second view of each attacked photograph. Attacks that cannot be run on a kind of descriptor
say why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from veil.attacks.attack import Attack
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.on_subspaces import SUBSPACE_ATTACKS
from veil.attacks.on_words import WORD_ATTACKS
from veil.attacks.registry import TIME_SHARES
from veil.attacks.target import Effort, Knowledge, PublicPhotograph, ReleasedImage
from veil.attacks.time_budget import TimeBudget
from veil.attacks.words.cooccurrence import PhotographInWords, learn_neighbors
from veil.audit.finding import Finding
from veil.audit.ground_truth import find_truth
from veil.audit.run import examine, findings, work_of
from veil.errors import RangeError
from veil.features import Features
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.selection import Selection
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.wire.message import Upload
from veil_lab.studies.attacks.descriptor_material import DescribedPhotographs, StudyBooks, in_eight_bits, in_subspaces, in_words

# Why an attack is not run.
NO_GRID = "float descriptors of full precision lie on no grid; the row of 8 bits has the same attack where they do"
EIGHT_BITS = "these descriptors have 8 bits as they are"
NO_DENSITY = "needs a learned density, which is trained for the hardened form alone, and where it is asked for"
NO_MAP = "needs a map of the place, which photographs of different places do not give: the study of forms has one"
NO_VIEW = "needs a second view of the photograph"
SECRET_POOL = "the pool of decoys is the client's secret; the row below has it known"

FormName = Literal["paper", "8 bits", "hardened", "words"]
# Work of making the releases of one form, in the unit of `veil.audit.run.work_of`.
RELEASE_WORK = 1.0


@dataclass(frozen=True, kw_only=True)
class DescriptorStudy:
    """Options of the study.

    `features` are attacked, of all photographs together, `structural` of them by structural attacks behind a PCA. Of each
    photograph `most` features leave. `m` is the dimension of the paper's subspaces; the hardened form has its own. `epsilons`
    are those of a feature in words. `seconds` of processor time are given to the attacks on each form. `seed` draws features
    and releases. Raises RangeError for values outside their range.
    """

    features: int = 400
    structural: int = 60
    most: int = 1000
    m: int = 4
    epsilons: tuple[float, ...] = (4.0,)
    seconds: float = 600.0
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("features", "structural", "most", "threads"):
            if not getattr(self, name) >= 1:
                raise RangeError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if not self.m >= 2:
            raise RangeError(f"m must be at least 2, got {self.m!r}")
        if not self.seconds > 0 or not all(epsilon >= 0 for epsilon in self.epsilons):
            raise RangeError(f"seconds must be positive and no epsilon negative, got {self.seconds!r} and {self.epsilons!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class DescriptorRow:
    """Shares that one attack recovered from one form of one descriptor, or why it was not run (`finding.skipped`)."""

    descriptor: str
    form: str
    attack: str
    finding: Finding

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {"descriptor": self.descriptor, "form": self.form, "name": self.attack, "finding": self.finding.as_json()}


def attack_rows(
    descriptor: str,
    photographs: DescribedPhotographs,
    books: StudyBooks,
    study: DescriptorStudy | None = None,
    *,
    model: LearnedModel | None = None,
    progress: StepProgress = ignore_steps,
) -> list[DescriptorRow]:
    """Rows of every attack on every form of one descriptor, called `descriptor`.

    `model` are the networks that the attacker trained for the space of the hardened form; None: attacks by a learned density
    are not run. `progress` is called with a sentence for each step.
    """
    study = study or DescriptorStudy()
    count = StepCount(progress, _work(photographs, study, model))
    lab = _Lab(descriptor=descriptor, photographs=photographs, books=books.with_runs(), study=study, count=count)
    own = Selection(features=study.most, min_distance_px=0.0)
    rows = lab.subspaces(f"paper, m = {study.m}", Profile.paper(study.m), own, known_pool=True)
    rows += lab.eight_bits(Profile.paper(study.m), own)
    usual = Profile.hardened(quantized=photographs.is_quantized, compress=True)
    rows += lab.subspaces("hardened", usual, replace(Selection(), features=study.most), model=model)
    for epsilon in study.epsilons:
        rows += lab.words(f"words, eps {epsilon:g}", epsilon)
    return rows


def _reasons(photographs: DescribedPhotographs, known_pool: bool, model: LearnedModel | None) -> dict[str, str]:
    """Attacks on subspaces that are not run, each with the reason."""
    reasons = {"inliers": NO_MAP}
    if not known_pool:
        reasons["database"] = SECRET_POOL
    if not photographs.is_quantized:
        reasons["lattice"] = NO_GRID
    if model is None:
        reasons |= {"modes": NO_DENSITY, "context": NO_DENSITY}
    if not photographs.views:
        reasons |= {"matched views": NO_VIEW, "matched photographs": NO_VIEW}
    return reasons


def _work(photographs: DescribedPhotographs, study: DescriptorStudy, model: LearnedModel | None) -> float:
    """Work of all attacks on all forms, and of their releases, in the unit of `veil.audit.run.work_of`."""

    def on_subspaces(known_pool: bool, networks: LearnedModel | None) -> float:
        # Without the pool the database attack is not run as it is, but once more with the pool known.
        left_out = set(_reasons(photographs, known_pool, networks)) - {"database"}
        return work_of(attack for attack in SUBSPACE_ATTACKS if attack.name not in left_out)

    work = on_subspaces(True, None) + on_subspaces(False, model)
    if not photographs.is_quantized:
        work += work_of(attack for attack in SUBSPACE_ATTACKS if attack.name == "lattice")
    work += len(study.epsilons) * work_of(attack for attack in WORD_ATTACKS if attack.name != "votes")
    return len(photographs.attacked) * work + RELEASE_WORK * (2 + len(study.epsilons))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lab:
    """One descriptor's photographs and books, on which attacks are run."""

    descriptor: str
    photographs: DescribedPhotographs
    books: StudyBooks
    study: DescriptorStudy
    count: StepCount

    def subspaces(
        self, form: str, profile: Profile, selection: Selection, *, known_pool: bool = False, model: LearnedModel | None = None
    ) -> list[DescriptorRow]:
        """Rows of the attacks on subspaces."""

        def made(features: Features, case: str) -> Upload:
            return in_subspaces(features, self.books, profile, selection=selection, case=f"{self.descriptor} {form} {case}")

        self.count.begin(f"{form}: releasing", RELEASE_WORK)
        releases, seconds, views, others = self._released(made)
        knowledge = self._knowledge(others, known_pool=known_pool, model=model)
        reasons = _reasons(self.photographs, known_pool, model)
        own = replace(knowledge, others=seconds)
        seen = replace(knowledge, others=views, place={n: _public(item) for n, item in self.photographs.views.items()})
        alone = {"repeat": own, "matched views": seen, "matched photographs": seen}
        rows = []
        together = [a for a in SUBSPACE_ATTACKS if a.name not in alone and a.name not in reasons]
        outcomes = self._findings(form, releases, knowledge, together)
        for attack in SUBSPACE_ATTACKS:
            if attack.name in reasons:
                rows.append(self._skipped(form, attack, reasons[attack.name]))
            elif attack.name in alone:
                rows.append(self._row(form, attack, self._findings(form, releases, alone[attack.name], [attack])[attack.name]))
            else:
                rows.append(self._row(form, attack, outcomes[attack.name]))
            if attack.name == "database" and not known_pool:
                public = replace(knowledge, decoys=self.books.decoys)
                known = self._findings(form, releases, public, [attack])[attack.name]
                rows.append(replace(self._row(form, attack, known), attack="database, pool known"))
        return rows

    def eight_bits(self, profile: Profile, selection: Selection) -> list[DescriptorRow]:
        """The row of the lattice attack on the same descriptors, as an extractor stores them that rounds them to 8 bits."""
        form, (lattice,) = "paper, 8 bits", (attack for attack in SUBSPACE_ATTACKS if attack.name == "lattice")
        if self.photographs.is_quantized:
            return [self._skipped(form, lattice, EIGHT_BITS)]
        rounded = {name: in_eight_bits(item) for name, item in self.photographs.attacked.items()}
        releases = {
            name: in_subspaces(item, self.books, profile, selection=selection, case=f"{self.descriptor} {form} {name}")
            for name, item in rounded.items()
        }
        knowledge = self._knowledge({}, known_pool=True)
        return [self._row(form, lattice, self._findings(form, releases, knowledge, [lattice], rounded)["lattice"])]

    def words(self, form: str, epsilon: float) -> list[DescriptorRow]:
        """Rows of the attacks on words."""
        dictionary, study = self.books.dictionary, self.study

        def made(features: Features, case: str) -> Upload:
            case = f"{self.descriptor} {form} {case}"
            return in_words(features, dictionary, epsilon=epsilon, most=study.most, case=case)

        self.count.begin(f"{form}: releasing", RELEASE_WORK)
        releases, seconds, _, others = self._released(made)
        taught = [
            PhotographInWords(keypoints=item.keypoints.astype(np.float64), words=dictionary.nearest(publish(item).vectors))
            for item in self.photographs.owned
        ]
        neighbors = learn_neighbors(taught, dictionary, seed=study.seed)
        knowledge = replace(self._knowledge(others, known_pool=False), neighbors=neighbors)
        rows = []
        for attack in WORD_ATTACKS:
            if attack.name == "votes":
                rows.append(self._skipped(form, attack, NO_MAP))
                continue
            given = replace(knowledge, others=seconds) if attack.name == "repeat" else knowledge
            rows.append(self._row(form, attack, self._findings(form, releases, given, [attack])[attack.name]))
        return rows

    def _released(
        self, made: Callable[[Features, str], Upload]
    ) -> tuple[dict[str, Upload], dict[str, ReleasedImage], dict[str, ReleasedImage], dict[str, ReleasedImage]]:
        """Releases of the attacked photographs, and as the server has them: second ones, those of second views, and others."""
        attacked, views = self.photographs.attacked, self.photographs.views
        releases = {name: made(item, name) for name, item in attacked.items()}
        seconds = {f"{name}, again": ReleasedImage.of(made(item, f"{name}, again")) for name, item in attacked.items()}
        seen = {f"{name}, view": ReleasedImage.of(made(item, f"{name}, view")) for name, item in views.items()}
        others = {name: ReleasedImage.of(made(item, name)) for name, item in self.photographs.others.items()}
        return releases, seconds, seen, others

    def _knowledge(
        self, others: Mapping[str, ReleasedImage], *, known_pool: bool, model: LearnedModel | None = None
    ) -> Knowledge:
        """Knowledge of the attacker; with `known_pool` the words that the paper's decoys come from, which are public."""
        books = self.books
        decoys = books.dictionary if known_pool else None
        return Knowledge(codebook=books.dictionary, decoys=decoys, database=books.database, others=others, learned=model)

    def _findings(
        self,
        form: str,
        releases: Mapping[str, Upload],
        knowledge: Knowledge,
        attacks: Sequence[Attack],
        originals: Mapping[str, Features] | None = None,
    ) -> dict[str, Finding]:
        """Findings of `attacks`, by their names."""
        study, dictionary = self.study, self.books.dictionary
        truths = {
            name: find_truth(message, {name: (originals or self.photographs.attacked)[name]}, dictionary)
            for name, message in releases.items()
        }
        examined = examine(
            releases,
            truths,
            knowledge,
            effort=Effort(features=study.features, structural=study.structural, seed=study.seed, threads=study.threads),
            attacks=attacks,
            time=TimeBudget(study.seconds, turns=len(releases), shares=TIME_SHARES),
            progress=self.count.part(len(releases) * work_of(attacks), f"{form}: "),
        )
        outcomes = findings(examined)
        return {attack.name: finding for attack, finding in zip(attacks, outcomes, strict=True)}

    def _row(self, form: str, attack: Attack, finding: Finding) -> DescriptorRow:
        return DescriptorRow(descriptor=self.descriptor, form=form, attack=attack.name, finding=finding)

    def _skipped(self, form: str, attack: Attack, why: str) -> DescriptorRow:
        """The row of an attack that is not run."""
        finding = Finding(attack=attack.name, family=attack.family, assumes=attack.assumes, skipped=why)
        return self._row(form, attack, finding)


def _public(features: Features) -> PublicPhotograph:
    return PublicPhotograph(points=publish(features), keypoints=features.keypoints)

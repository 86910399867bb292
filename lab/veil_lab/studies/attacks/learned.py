"""Study of the attacks that learn: what modes of a density and context recover from one upload, with controls.

Photographs are released in the hardened profile under a new secret, with decoys from a pool that the attacker does not have.
Each is attacked alone. As a control, the subspaces of all photographs are exchanged at random while positions stay: modes are
the same then, and context has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import numpy as np
from jaxtyping import Float64

from veil.attacks.attack import Attack, Attempt, attempted
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.registry import named
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.audit.ground_truth import in_space
from veil.codebooks.codebook import Codebook
from veil.codebooks.decoys import in_runs
from veil.errors import InputError
from veil.features import Features
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import EVERYTHING, ChosenFeatures, Selection
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.randomness import seeded
from veil.wire.codec_subspaces import as_sent
from veil.wire.message import Upload
from veil_lab.studies.attacks.pooled_shares import pooled_shares

WITHIN = (0.1, 0.2, 0.4)
ATTACKS = ("nearest, projected", "modes", "context")
MIXED = "context, subspaces exchanged among the photographs"
HIDDEN = ("same photograph", "whole photograph")


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedSetup:
    """Inputs of the study: the codebook, the client's secret `pool`, the attacker's `database` and `model`.

    `selection` says what leaves of each photograph, and `chosen` of some by their name, chosen one by one. `runs` is the number
    of runs in which the pool is used (None: as `veil privatize` does), and `features` how many are attacked of each photograph
    (None: all that were sent). The attacker has so many `others` of the releases of the same folder, those next in their order.
    """

    codebook: Codebook
    pool: Codebook
    database: Codebook
    model: LearnedModel
    selection: Selection = EVERYTHING
    chosen: Mapping[str, ChosenFeatures] = field(default_factory=dict)
    runs: int | None = None
    features: int | None = None
    seed: int = 0
    others: int = 0


@dataclass(frozen=True, kw_only=True)
class LearnedRow:
    """Shares of all attacked features that one attack recovered within 0.1, 0.2 and 0.4, with 95 % intervals over photographs.

    `photographs` and `features` count what was attacked, and `sent` is the mean number that left of a photograph. `low` and
    `high` are ends of bootstrap intervals, as features of one photograph are not independent. `by_photograph` has the shares of
    each, in the order in which they were given.
    """

    attack: str
    photographs: int
    features: int
    sent: float
    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    by_photograph: tuple[tuple[float, ...], ...]

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "photographs": self.photographs,
            "features": self.features,
            "sent": self.sent,
            "shares": list(self.shares),
            "low": list(self.low),
            "high": list(self.high),
            "by_photograph": [list(shares) for shares in self.by_photograph],
        }


def learned_study(
    victims: Mapping[str, Features], setup: LearnedSetup, *, progress: StepProgress = ignore_steps
) -> Iterator[LearnedRow]:
    """Rows of all attacks on the photographs `victims`, and of the control. Raises InputError without any photograph."""
    if not victims:
        raise InputError("there is no photograph to attack; give one or more")
    count = StepCount(progress, 2 * len(victims))  # each photograph is attacked twice, with about the same work
    released = {name: _released(name, item, setup) for name, item in victims.items()}
    distances: dict[str, list[np.ndarray]] = {name: [] for name in (*ATTACKS, *map(_hidden, HIDDEN), MIXED)}
    for name, (image, truth) in released.items():
        count.begin(name)
        others = _beside(name, released, setup.others)
        for attack, errors in _errors(name, image, truth, setup, ATTACKS, others).items():
            distances.setdefault(attack, []).append(errors)
    for name, (image, truth) in _mixed(released, setup.seed).items():
        count.begin(f"{name}, mixed")
        distances[MIXED].append(_errors(name, image, truth, setup, ("modes", "context"), {})["context"])
    sent = float(np.mean([len(truth) for _, truth in released.values()]))
    for attack, parts in distances.items():
        if parts:  # networks that came without a transformer give none for it
            yield _row(attack, parts, sent, setup.seed)


def _released(name: str, features: Features, setup: LearnedSetup) -> tuple[ReleasedImage, Float64[np.ndarray, "_ dim"]]:
    """Release of a photograph as a server gets it, and the descriptors of its features without any dither."""
    profile = Profile.hardened(quantized=features.is_quantized)
    draws = (setup.selection.features or len(features)) * profile.decoy_count
    pool = in_runs(setup.pool, draws) if setup.runs is None else replace(setup.pool, slices=setup.runs)
    made = privatize(
        features,
        profile=profile,
        compression=setup.codebook.compression,
        decoys=pool,
        randomness=seeded(f"learned {name}"),
        selection=setup.chosen.get(name, setup.selection),
    )
    assert isinstance(made.upload, Upload) and isinstance(made.upload.form, Subspaces)
    form = as_sent(made.upload.form, profile.dtype)
    truth = in_space(features, form.space, setup.codebook)[made.order]
    return ReleasedImage(form=form, camera=features.camera, keypoints=made.upload.keypoints), truth


def _mixed(
    released: Mapping[str, tuple[ReleasedImage, np.ndarray]], seed: int
) -> dict[str, tuple[ReleasedImage, Float64[np.ndarray, "_ dim"]]]:
    """The same releases with their subspaces exchanged at random; positions stay."""
    forms = [image.form for image, _ in released.values()]
    assert all(isinstance(form, Subspaces) for form in forms)
    origin = np.concatenate([form.origin for form in forms if isinstance(form, Subspaces)])
    basis = np.concatenate([form.basis for form in forms if isinstance(form, Subspaces)])
    truths = np.concatenate([truth for _, truth in released.values()])
    order = np.random.default_rng(seed).permutation(len(truths))
    mixed, start = {}, 0
    for name, (image, _) in released.items():
        assert isinstance(image.form, Subspaces)
        rows = order[start : start + len(image.form)]
        start += len(rows)
        mixed[name] = (replace(image, form=replace(image.form, origin=origin[rows], basis=basis[rows])), truths[rows])
    return mixed


def _errors(
    name: str,
    image: ReleasedImage,
    truth: np.ndarray,
    setup: LearnedSetup,
    attacks: Sequence[str],
    others: Mapping[str, ReleasedImage],
) -> dict[str, Float64[np.ndarray, "attacked"]]:
    """Distances of the estimates of each attack to the truth, for the attacked features of one photograph."""
    knowledge = Knowledge(codebook=setup.codebook, decoys=None, database=setup.database, learned=setup.model, others=others)
    effort = Effort(features=setup.features or len(truth), seed=setup.seed)
    target = Target(image=image, rows=effort.rows(len(truth), name), knowledge=knowledge, effort=effort)
    distances = {attack.name: _distances(attack, target, truth) for attack in named(*attacks)}
    if attacks == ATTACKS:
        hidden = replace(target, image=replace(image, keypoints=None))
        hidden.cache.update(target.cache)  # modes do not depend on positions
        for attack in named(*(name for name in HIDDEN if name != "whole photograph" or setup.model.whole is not None)):
            distances[_hidden(attack.name)] = _distances(attack, hidden, truth)
    if others:
        views, together = named("matched views", "matched candidates")
        attempted(views, target)  # whose partners the other takes
        distances[f"{together.name}, {1 + len(others)} uploads"] = _distances(together, target, truth)
    return distances


def _beside(name: str, released: Mapping[str, tuple[ReleasedImage, np.ndarray]], count: int) -> dict[str, ReleasedImage]:
    """The `count` releases that come next in the folder of one, the first ones after the last; none if there are fewer."""
    folder = [other for other in released if PurePosixPath(other).parent == PurePosixPath(name).parent]
    at = folder.index(name)
    after = [*folder[at + 1 :], *folder[:at]][:count]
    return {other: released[other][0] for other in after} if len(after) == count else {}


def _hidden(attack: str) -> str:
    """Name of the row of an attack that needs no positions, and is given none."""
    return f"{attack}, positions hidden"


def _distances(attack: Attack, target: Target, truth: np.ndarray) -> Float64[np.ndarray, "attacked"]:
    """Distances of an attack's estimates to the truth. Raises InputError if it cannot be run."""
    outcome = attempted(attack, target)
    if not isinstance(outcome, Attempt) or outcome.estimates is None:
        raise InputError(f"{attack.name} cannot be run: {getattr(outcome, 'why', 'it estimates no descriptors')}")
    return np.linalg.norm(outcome.estimates.points - truth[outcome.rows], axis=1)


def _row(attack: str, errors: Sequence[np.ndarray], sent: float, seed: int) -> LearnedRow:
    counts = np.array([len(item) for item in errors])
    hits = np.array([[(item <= limit).sum() for limit in WITHIN] for item in errors])
    pooled = pooled_shares(hits, counts, seed=seed)
    return LearnedRow(
        attack=attack,
        photographs=len(errors),
        features=int(counts.sum()),
        sent=sent,
        shares=pooled.shares,
        low=pooled.low,
        high=pooled.high,
        by_photograph=tuple(tuple(float(share) for share in item) for item in hits / counts[:, None]),
    )

"""Types of an attack and of its outcome on one release: an `Attempt`, or `Skipped` with the reason why there is none.

`veil.attacks.registry.ATTACKS` lists every attack that veil knows; the audit and the studies iterate it. An attack sees a
`Target`, which holds what a server sees and what the attacker has beside it, never the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int64

from veil.attacks.claims import CannotRun, Claim, Estimates, Lists, NamedWords
from veil.attacks.target import Target
from veil.errors import Remedy, VeilError
from veil.one_line import one_line

Family = Literal["structural", "distribution", "intersection", "repeat", "views", "matches", "positions", "order", "words"]
FAMILIES: tuple[Family, ...] = get_args(Family)
# Kind of data that an attack looks at: descriptors in subspaces, positions in lines, words, the order of a message, faces.
Surface = Literal["subspaces", "lines", "words", "positions", "order", "faces"]
# Quantity that an attack estimates: descriptors, positions in pixels, words, the pose of the camera, whether the order has a
# meaning, classes of faces.
Units = Literal["descriptor", "px", "word", "pose", "order", "class"]

RELEASE_ALONE = "nothing but the release"
OWN_PHOTOGRAPHS = "photographs of its own"


@dataclass(frozen=True, kw_only=True, eq=False)
class Attack:
    """One known attack, an entry of `ATTACKS`: where it looks, what it needs, what it estimates, and how it is run.

    - `name`: as reports and the rules of an audit call it.
    - `surface`: the part of a release that it looks at: "subspaces", "lines", "words", "positions" in the clear, the
      "order" of the features, or "faces".
    - `family`: group of related attacks, one of `FAMILIES`; rules may name it as well.
    - `assumes`: in words, what the attacker needs beside the release.
    - `units`: what it estimates: descriptors, positions ("px"), words, the pose, what the order means, or classes of faces.
    - `modules`: modules of `veil.attacks` that hold its algorithm; the first of them describes it and cites its source.
    - `time_share`: its part of an audit's processor time (0: it compares all features with each other and is not cut).
    """

    name: str
    surface: Surface
    family: Family
    assumes: str
    units: Units
    modules: tuple[str, ...]
    _run: Callable[[Target], Attempt]
    time_share: float = 0.0

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class Attempt:
    """Outcome of an attack that was run: its claim about the features `rows` of a release.

    `label` is the attack's name for reports, with the size of this run where that matters ("oracle of 100"). `left_out` counts
    the features that were to be attacked too, but for which time was short. `seconds` is processor time. `assumes`, if not
    empty, replaces that of the attack. `notes` are sentences for the reader, `details` the numbers behind them. `decoys` lists
    for each feature the points that the attack takes for decoys; None where it does not look for decoys.
    """

    label: str
    rows: Int64[np.ndarray, "_"]
    claim: Claim
    left_out: int = 0
    seconds: float = 0.0
    assumes: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    decoys: Lists | None = None

    @property
    def estimates(self) -> Estimates | None:
        """Point estimates of the claim, one for each of `rows`; None if the claim holds no points."""
        if isinstance(self.claim, NamedWords):
            return self.claim.estimates
        return self.claim if isinstance(self.claim, Estimates) else None


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Outcome of an attack that was not run, `why`, and the `remedy`; time was too short for `left_out` features."""

    label: str
    why: str
    left_out: int = 0
    remedy: tuple[Remedy, ...] = ()


def run_attack(attack: Attack, target: Target) -> Attempt:
    """Outcome of `attack` on one release. Raises CannotRun, or another VeilError, if it cannot be run there."""
    return attack._run(target)


def attempted(attack: Attack, target: Target) -> Attempt | Skipped:
    """Outcome of `attack` on one release: its attempt, or the reason why it cannot be run there."""
    try:
        return run_attack(attack, target)
    except CannotRun as error:
        return Skipped(label=attack.name, why=error.cause, left_out=error.features, remedy=error.remedy)
    except VeilError as error:  # this attack cannot work on this form; the others still run
        return Skipped(label=attack.name, why=error.cause, remedy=error.remedy)

"""What one attack on one release came to: shares of features with intervals, or why nothing was tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.attacks.attack import Family

# A descriptor within this of the truth is recovered; the others are the distances of the field's tables.
EXACT = 1e-3
WITHIN = (0.02, 0.1, 0.4, 0.6)
WITHIN_PX = (1.0, 5.0, 20.0)
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Share:
    """`count` of `total` features, with the Clopper-Pearson interval of the share at 95 %."""

    count: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share itself; 0 of nothing is 0."""
        return self.count / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """An attack's estimates against the originals. Undecided features count as not recovered in every share.

    Distances are those of descriptors in the space that was lifted, or pixels for positions. `identified`: the estimate's
    nearest neighbor among all original descriptors of the release is the right one (for words: the true word was named).
    `within` maps a threshold to its share. `errors` holds every distance, NaN where undecided; `false_certificates` counts
    features that the attack certified and got wrong.
    """

    unit: Literal["descriptor", "px", "word"]
    exact: Share | None
    within: Mapping[float, Share]
    mean_distance: float | None
    median_distance: float | None
    identified: Share | None
    false_certificates: int
    errors: Float64[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """One attack on one release.

    `assumes` says what the attacker needs besides the release; `hypothetical` marks an oracle, which nobody has and which
    counts in no verdict. `skipped` says why the attack was not run, or "". Of `wanted` features `features` were attacked: fewer
    where time was short. `seconds` are the processor's. `undecided` features got no estimate; `certified`
    ones the attacker *knows* to have recovered, without the originals. `score` is None where the originals were not given.
    `notes` are facts for the reader (applicability, noise against its bound).
    """

    attack: str
    family: Family
    assumes: str
    hypothetical: bool = False
    features: int = 0
    wanted: int = 0
    undecided: int = 0
    certified: Share | None = None
    score: Score | None = None
    seconds: float = 0.0
    skipped: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def cut_short(self) -> bool:
        """Whether features were left out for want of time."""
        return self.features < self.wanted

    @property
    def recovered(self) -> Share | None:
        """The share that counts in verdicts and policies: within 0.1 (5 px, the right word) of the truth, or certified where
        the originals are unknown."""
        if self.score is None:
            return self.certified
        return {
            "descriptor": self.score.within.get(0.1),
            "px": self.score.within.get(5.0),
            "word": self.score.identified,
        }[self.score.unit]

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        score = self.score
        descriptors = score is not None and score.unit != "px"
        within: dict[str, float | None] = {f"within_{limit:g}": None for limit in WITHIN}
        intervals: dict[str, list[float]] = {}
        if score is not None and descriptors:
            within |= {f"within_{limit:g}": share.value for limit, share in score.within.items()}
        if score is not None:
            ending = "" if descriptors else "px"
            named = {f"within_{limit:g}{ending}": share for limit, share in score.within.items()}
            others = (("exact", score.exact), ("identified", score.identified))
            named |= {name: share for name, share in others if share is not None}
            intervals = {name: [share.low, share.high] for name, share in named.items()}
        if self.certified is not None:
            intervals["certified"] = [self.certified.low, self.certified.high]
        return {
            "attack": self.attack,
            "family": self.family,
            "assumes": self.assumes,
            "features": self.features,
            "wanted": self.wanted,
            "undecided": self.undecided,
            "certified": None if self.certified is None else self.certified.value,
            "false_certificates": None if score is None else score.false_certificates,
            "exact": _value(None if score is None else score.exact),
            **within,
            "within_px": {f"{k:g}": s.value for k, s in score.within.items()}
            if score is not None and not descriptors
            else None,
            "mean_distance": None if score is None else score.mean_distance,
            "median_distance": None if score is None else score.median_distance,
            "identified": _value(None if score is None else score.identified),
            "interval": intervals,
            "seconds": self.seconds,
            "skipped": self.skipped,
            "notes": list(self.notes),
            "details": dict(self.details),
        }


def _value(share: Share | None) -> float | None:
    return None if share is None else share.value

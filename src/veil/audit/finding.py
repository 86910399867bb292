"""Records of what an attack recovered: shares of features with confidence intervals, or the reason why it was not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypedDict

import numpy as np
from jaxtyping import Float64

from veil.attacks.attack import Family
from veil.errors import Remedy
from veil.json_records.values import Limits
from veil.ldp.rounding import interval_ends
from veil.one_line import one_line

ErrorUnit = Literal["descriptor", "px", "word"]
# Distance to the truth within which a descriptor is exact, and the distances of the literature's tables.
EXACT = 1e-3
WITHIN = (0.02, 0.1, 0.2, 0.4, 0.6)
WITHIN_PX = (1.0, 5.0, 20.0)
# Distances to the truth within which a descriptor, or a position, counts as recovered in verdicts and policies.
RECOVERED_WITHIN, RECOVERED_WITHIN_PX = 0.1, 5.0
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Share:
    """Share of features, `count` of `total`, with its Clopper-Pearson interval (`low`, `high`) at 95 %."""

    count: int
    total: int
    low: float
    high: float

    __repr__ = one_line

    @property
    def value(self) -> float:
        """Share as a number between 0 and 1; 0 if `total` is 0."""
        return self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> str:
        """The interval in percent, as "3.1 to 4.2", its ends rounded outward."""
        return " to ".join(interval_ends(self.low, self.high))

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({self.interval})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """Comparison of an attack's estimates with the originals.

    `exact`, `within` and `identified` are shares by how near an estimate is, `mean_distance` and `median_distance` are of those
    that were made. Undecided features count as not recovered in every share.

    `within` gives, by distance, the share of features whose estimate is nearer to the truth than that. Distances are those of
    descriptors in the space that was lifted, or pixels for positions (`unit` "px"). `recovered` is the
    share that counts in verdicts and policies: features within 0.1 (5 px) of the truth, or whose right word was named.
    `identified` is the share whose estimate has the right one as its nearest neighbor among all original descriptors of the
    audited releases (for words: whose true word was named). `errors` holds every distance, NaN where undecided;
    `false_certificates` counts features that the attack certified and got wrong.
    """

    unit: ErrorUnit
    recovered: Share
    exact: Share | None
    within: Mapping[float, Share]
    mean_distance: float | None
    median_distance: float | None
    identified: Share | None
    false_certificates: int
    errors: Float64[np.ndarray, "_"]

    __repr__ = one_line

    @property
    def shares(self) -> dict[str, Share]:
        """Measured shares by their names in rules and records: within_0.1 (of positions within_5px), exact and identified."""
        ending = "px" if self.unit == "px" else ""
        shares = {f"within_{limit:g}{ending}": share for limit, share in self.within.items()}
        optional = (("exact", self.exact), ("identified", self.identified))
        return shares | {name: share for name, share in optional if share is not None}


Interval = Annotated[list[float], Limits(fewest_items=2, most_items=2)]
_WithinJson = TypedDict(
    "_WithinJson",
    {
        "within_0.02": float | None,
        "within_0.1": float | None,
        "within_0.2": float | None,
        "within_0.4": float | None,
        "within_0.6": float | None,
    },
)


class FindingJson(_WithinJson):
    """What one attack recovered."""

    attack: str
    family: Family
    assumes: str
    features: int
    wanted: int
    undecided: int
    certified: float | None
    false_certificates: int | None
    exact: float | None
    within_px: Mapping[str, float] | None
    mean_distance: float | None
    median_distance: float | None
    identified: float | None
    interval: Mapping[str, Interval]
    seconds: float
    skipped: str
    notes: list[str]
    details: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """Result of one `attack` over all audited releases; rules may name its `family`, too.

    `assumes` says what the attacker needs besides the release; `hypothetical` marks an oracle, which nobody has and which
    counts in no verdict. `skipped` says why the attack was not run, or "", and `remedy` what lets it run. Of `wanted` features
    `features` were attacked: fewer where time was short. `seconds` is processor time. `undecided` counts the features without
    an estimate; `certified` is the share that the attacker *knows* to have recovered, without the originals: of the features,
    or of whole releases (`unit`), whose place it found. `score` is None where the originals were not
    given. `notes` are facts for the reader (applicability, noise against its bound), `details` the numbers behind them.
    """

    attack: str
    family: Family
    assumes: str
    hypothetical: bool = False
    features: int = 0
    wanted: int = 0
    undecided: int = 0
    unit: Literal["feature", "release"] = "feature"
    certified: Share | None = None
    score: Score | None = None
    seconds: float = 0.0
    skipped: str = ""
    remedy: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)

    __repr__ = one_line

    @property
    def cut_short(self) -> bool:
        """Whether features were left out for want of time."""
        return self.features < self.wanted

    @property
    def recovered(self) -> Share | None:
        """Share that counts in verdicts and policies: that of the score, or what is certified where originals are unknown."""
        return self.certified if self.score is None else self.score.recovered

    def as_json(self) -> FindingJson:
        """Stable JSON record, as docs/reference/json.md describes it."""
        score = self.score
        within: Mapping[float, Share] = {}
        within_px: dict[str, float] | None = None
        intervals: dict[str, list[float]] = {}
        if score is not None:
            intervals = {name: [share.low, share.high] for name, share in score.shares.items()}
            if score.unit == "px":
                within_px = {f"{limit:g}": share.value for limit, share in score.within.items()}
            else:
                within = score.within
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
            "within_0.02": _value(within.get(0.02)),
            "within_0.1": _value(within.get(0.1)),
            "within_0.2": _value(within.get(0.2)),
            "within_0.4": _value(within.get(0.4)),
            "within_0.6": _value(within.get(0.6)),
            "within_px": within_px,
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

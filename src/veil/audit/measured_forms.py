"""Measured forms: what `veil evaluate forms` found about each form of a photograph, for tables and for sentences.

One record, `forms.json`, is the source of the tables in docs/choose.md and README, which `veil evaluate forms` prints, and of
what `veil inspect` says of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from veil.audit.finding import Finding
from veil.errors import InputError, Remedy
from veil.ldp.rounding import interval_ends

Unit = Literal["descriptor", "px", "word", "release"]
# Shares of a finding that tables show, by its unit.
SHOWN: Mapping[str, tuple[str, ...]] = {
    "descriptor": ("within_0.1", "within_0.2", "within_0.4"),
    "px": ("within_5px", "within_20px"),
    "word": ("identified",),
}


@dataclass(frozen=True, kw_only=True)
class MeasuredAttack:
    """Shares that one attack recovered of one form, with a number of uploads of the place.

    `unit` says of what: descriptors within 0.1 / 0.2 / 0.4, positions within 5 / 20 pixels, right words, or releases that were
    placed. `total` features or releases of `photographs` photographs were attacked. `low` and `high` are the ends of 95 %
    intervals of the shares over photographs; a single photograph has none. An `oracle` needs what no attacker has.
    """

    attack: str
    uploads: int
    unit: Unit
    shares: tuple[float, ...]
    total: int
    oracle: bool = False
    photographs: int = 1
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "uploads": self.uploads,
            "unit": self.unit,
            "shares": list(self.shares),
            "total": self.total,
            "oracle": self.oracle,
            "photographs": self.photographs,
            "low": list(self.low),
            "high": list(self.high),
        }

    @property
    def interval(self) -> str:
        """The 95 % intervals over photographs, in percent, their ends rounded outward; "-" without any."""
        return " / ".join(" to ".join(interval_ends(*ends, 0)) for ends in zip(self.low, self.high, strict=True)) or "-"

    @property
    def cell(self) -> str:
        """The cell of a table, in percent."""
        if self.unit == "release":
            return f"{round(self.shares[0] * self.total)} of {self.total} placed"
        text = " / ".join(f"{100 * share:.0f}" for share in self.shares)
        return text + {"descriptor": "", "px": " px", "word": " words"}[self.unit]

    @property
    def amount(self) -> str:
        """How much was recovered, without what it was: the first share where positions or words are meant."""
        if self.unit == "release":
            return f"{round(self.shares[0] * self.total)} of {self.total}"
        return f"{self.cell} %" if self.unit == "descriptor" else f"{100 * self.shares[0]:.0f} %"

    @property
    def told(self) -> str:
        """Words for what was recovered."""
        match self.unit:
            case "release":
                return f"the place of {self.amount} photographs"
            case "px":
                return f"{self.amount} of the positions within 5 px"
            case "word":
                return f"{self.amount} of the words"
            case "descriptor":
                return f"{self.amount} of the descriptors within 0.1 / 0.2 / 0.4"


@dataclass(frozen=True, kw_only=True)
class MeasuredForm:
    """Number of localized photographs, costs and recovered shares of one form.

    Of `queries` photographs `localized` were accepted and right, and `wrong` accepted and far off. `features` and
    `upload_bytes` are means of a message, `epsilon_image` is None without an epsilon.
    """

    form: str
    queries: int
    localized: int
    wrong: int
    features: float
    upload_bytes: float
    epsilon_image: float | None
    attacks: tuple[MeasuredAttack, ...]

    def best(self, unit: Unit, uploads: int) -> MeasuredAttack | None:
        """The attack that recovered most of one unit from a number of uploads, oracles left out; None if there is none."""
        known = [item for item in self.attacks if item.unit == unit and item.uploads == uploads and not item.oracle]
        return max(known, key=lambda item: item.shares, default=None)

    @property
    def told(self) -> str:
        """Shares that the best attacks recovered from one upload and, where any of them is larger, from several."""
        parts = []
        for unit in ("descriptor", "px", "word", "release"):
            one = self.best(unit, 1)
            if one is None:
                continue
            part = f"{one.told} ({one.attack})"
            more = [item for item in self.attacks if item.unit == unit and item.uploads > 1 and not item.oracle]
            several = max(more, key=lambda item: sum(item.shares), default=None)
            if several is not None and several.amount != one.amount and _tops(several, one):
                part += f", {several.amount} from {several.uploads} uploads ({several.attack})"
            parts.append(part)
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The stable record of docs/reference/json.md."""
        return {
            "form": self.form,
            "queries": self.queries,
            "localized": self.localized,
            "wrong": self.wrong,
            "features": self.features,
            "upload_bytes": self.upload_bytes,
            "epsilon_image": self.epsilon_image,
            "attacks": [item.as_json() for item in self.attacks],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> MeasuredForm:
        """Reads what `as_json` wrote. Raises InputError for anything else."""
        try:
            tuples = ("shares", "low", "high")
            attacks = tuple(
                MeasuredAttack(**{**item, **{name: tuple(item[name]) for name in tuples}}) for item in record["attacks"]
            )
            return cls(**{**record, "attacks": attacks})
        except (KeyError, TypeError) as error:
            raise InputError(
                f"this is no record of measured forms ({error})", remedy=Remedy("make", "record of measured forms")
            ) from None


def _tops(several: MeasuredAttack, one: MeasuredAttack) -> bool:
    """Whether several uploads gave more than one within any of the distances."""
    return any(share > alone for share, alone in zip(several.shares, one.shares, strict=True))


def measured_attacks(findings: Sequence[Finding], uploads: int) -> Iterator[MeasuredAttack]:
    """Recovered shares of the findings of an audit, without attacks that were not run."""
    for finding in findings:
        if finding.skipped:
            continue
        if finding.unit == "release" and finding.certified is not None:
            shares, total = (finding.certified.value,), finding.certified.total
            yield MeasuredAttack(attack=finding.attack, uploads=uploads, unit="release", shares=shares, total=total)
        elif finding.score is not None:
            known = finding.score.shares
            yield MeasuredAttack(
                attack=finding.attack,
                uploads=uploads,
                unit=finding.score.unit,
                shares=tuple(round(known[name].value, 4) for name in SHOWN[finding.score.unit]),
                total=finding.features,
                oracle=finding.hypothetical,
            )

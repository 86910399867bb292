"""Pictures from attacked subspaces, from raw descriptors and by direct inversion (Pittaluga and Zhuang 2023, Table 1).

One network trained on raw descriptors inverts whatever attacks recover; direct inversion has its own. Photographs must be kept
out of the training of both, and of the codebooks; nothing here can check that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from jaxtyping import UInt8

from veil.attacks.attack import Attack as KnownAttack
from veil.attacks.claims import Estimates
from veil.attacks.distribution.clustering import ClusterOptions
from veil.attacks.registry import named
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target, Tuning
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.forms import Points, Subspaces
from veil.inversion.maps import Frame, Inverts, SparseMap, back_projected, points_map, subspaces_map
from veil.inversion.quality import quality
from veil.mechanisms.profile import Profile, paper
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.progress import Progress
from veil.randomness import seeded
from veil.statistics import mean_interval

RAW, DIRECT = "raw", "direct"
# The order of [P23] Table 1, best first.
ORDER = (RAW, "database", "clustering", DIRECT, "nearest")
DIMS = (2, 4, 8, 16)

COMPANIONS = 10
# So many other subspaces are compared with that none is left out.
ALL = 1 << 40

# What an attack sees: the form of one image, and those of some others, lifted alike.
Attack = Callable[[Subspaces, Sequence[Subspaces]], Estimates]


@dataclass(frozen=True, kw_only=True, eq=False)
class Photograph:
    """A photograph that nothing was trained on, with its features."""

    name: str
    rgb: UInt8[np.ndarray, "_ _ 3"]
    features: Features

    @property
    def frame(self) -> Frame:
        """The square that is inverted."""
        return Frame(width=self.rgb.shape[1], height=self.rgb.shape[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Inverted:
    """One reconstruction: `features` pixels of the map had any, `decided` is the share of features that the attack decided.

    `m` is 0 for raw descriptors. `distance` is the mean distance of decided estimates to the true descriptors, None for direct
    inversion, which estimates none.
    """

    name: str
    attack: str
    m: int
    features: int
    decided: float
    distance: float | None
    mae: float
    ssim: float
    psnr: float
    rgb: UInt8[np.ndarray, "256 256 3"]

    def as_json(self) -> dict:
        """The stable record, without the picture."""
        return {
            "name": self.name,
            "attack": self.attack,
            "m": self.m,
            "features": self.features,
            "decided": self.decided,
            "distance": self.distance,
            "mae": self.mae,
            "ssim": self.ssim,
            "psnr": self.psnr,
        }


def known_attacks(words: Points, public: Points, *, seed: int) -> dict[str, Attack]:
    """The attacks of [P23] Table 1: `words` are those that decoys were drawn from, `public` is another database (their V).

    The nearest entry is not projected, as in [P23].
    """
    knowledge = Knowledge(codebook=None, decoys=words, database=public)
    effort = Effort(seed=seed, auxiliary=ALL)

    def run(attack: KnownAttack, form: Subspaces, others: Sequence[Subspaces]) -> Estimates:
        seen = {f"{place}": ReleasedImage(form=other) for place, other in enumerate(others)}
        target = Target(
            image=ReleasedImage(form=form),
            rows=np.arange(len(form)),
            knowledge=replace(knowledge, others=seen),
            effort=effort,
            tuning=Tuning(clusters=ClusterOptions()),
        )
        estimates = attack.run(target).estimates
        assert estimates is not None
        return estimates

    return {attack.name: partial(run, attack) for attack in named("database", "clustering", "nearest")}


def study(
    photographs: Sequence[Photograph],
    attacks: Mapping[str, Attack],
    *,
    raw: Inverts,
    direct: Inverts | None,
    codebook: Codebook,
    decoys: Codebook,
    case: str,
    dims: Sequence[int] = DIMS,
    profile: Callable[[int], Profile] = paper,
    companions: int = COMPANIONS,
    progress: Progress | None = None,
) -> list[Inverted]:
    """Every photograph raw, and for each m through each attack and direct inversion; `case` seeds the lifting.

    An attack on one photograph also sees the subspaces of the `companions` that follow it, around the end of the list.
    Raises InputError for networks of another kind, or no photographs.
    """
    if not photographs or raw.kind != "raw" or (direct is not None and direct.kind != "subspaces"):
        raise InputError("the study needs photographs, a network for raw descriptors, and one for subspaces or none")
    total, found = len(photographs) * (1 + len(dims)), []
    for photograph in photographs:
        truth = publish(photograph.features).vectors
        seen = points_map(photograph.frame, photograph.features.keypoints, truth)
        found.append(_measured(photograph, RAW, 0, raw, seen, decided=1.0, distance=0.0))
        _tell(progress, len(found), total)
    for turn, m in enumerate(dims):
        forms = [
            lift(
                photograph.features,
                profile=profile(m),
                compression=codebook.compression,
                decoys=decoys,
                randomness=seeded(f"{case} {photograph.name} {m}"),
            ).form
            for photograph in photographs
        ]
        for place, photograph in enumerate(photographs):
            others = (forms[place + 1 :] + forms[:place])[:companions]
            for name, attack in attacks.items():
                found.append(_attacked(photograph, name, raw, attack(forms[place], others), forms[place], codebook))
            if direct is not None:
                seen = subspaces_map(photograph.frame, photograph.features.keypoints, forms[place])
                found.append(_measured(photograph, DIRECT, m, direct, seen, decided=1.0, distance=None))
            _tell(progress, len(photographs) * (turn + 1) + place + 1, total)
    return found


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _attacked(
    photograph: Photograph, name: str, raw: Inverts, estimates: Estimates, form: Subspaces, codebook: Codebook
) -> Inverted:
    points = back_projected(estimates.points, form.space, codebook)
    decided = estimates.decided
    gap = np.linalg.norm(points[decided] - publish(photograph.features).vectors[decided], axis=1)
    seen = points_map(photograph.frame, photograph.features.keypoints, points)
    distance = float(gap.mean()) if len(gap) else float("nan")
    return _measured(photograph, name, form.m, raw, seen, decided=float(decided.mean()), distance=distance)


def _measured(
    photograph: Photograph, attack: str, m: int, network: Inverts, seen: SparseMap, *, decided: float, distance: float | None
) -> Inverted:
    rgb = network.invert([seen])[0]
    found = quality(photograph.frame.crop(photograph.rgb), rgb)
    return Inverted(
        name=photograph.name,
        attack=attack,
        m=m,
        features=len(seen),
        decided=decided,
        distance=distance,
        mae=found.mae,
        ssim=found.ssim,
        psnr=found.psnr,
        rgb=rgb,
    )


@dataclass(frozen=True, kw_only=True)
class Row:
    """Means over photographs of one attack at one m, a row of [P23] Table 1; `interval` is the 95 % one of the mean SSIM."""

    attack: str
    m: int
    pictures: int
    mae: float
    ssim: float
    psnr: float
    interval: tuple[float, float]
    decided: float
    distance: float | None

    def as_json(self) -> dict:
        """The stable record."""
        return {
            "attack": self.attack,
            "m": self.m,
            "pictures": self.pictures,
            "mae": self.mae,
            "ssim": self.ssim,
            "psnr": self.psnr,
            "interval": self.interval,
            "decided": self.decided,
            "distance": self.distance,
        }


def rows(found: Sequence[Inverted]) -> list[Row]:
    """A row for each attack and m, in the order of the table."""
    cases = dict.fromkeys((item.attack, item.m) for item in found)
    table = [_row([item for item in found if (item.attack, item.m) == case]) for case in cases]
    rank = {attack: place for place, attack in enumerate(ORDER)}
    return sorted(table, key=lambda row: (row.m, rank.get(row.attack, len(ORDER))))


def _row(items: Sequence[Inverted]) -> Row:
    distances = [item.distance for item in items if item.distance is not None and np.isfinite(item.distance)]
    return Row(
        attack=items[0].attack,
        m=items[0].m,
        pictures=len(items),
        mae=float(np.mean([item.mae for item in items])),
        ssim=float(np.mean([item.ssim for item in items])),
        psnr=float(np.mean([item.psnr for item in items])),
        interval=_interval(np.array([item.ssim for item in items])),
        decided=float(np.mean([item.decided for item in items])),
        distance=float(np.mean(distances)) if distances else None,
    )


def _interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of a mean; from -1 to 1 where a single picture says nothing of its spread."""
    return mean_interval(values.astype(np.float64), confidence=0.95) if len(values) > 1 else (-1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """SSIM of `better` minus that of `worse` at one m, photograph by photograph: mean, 95 % interval, share above 0.

    The order of [P23] Table 1 holds for certain where the interval lies above 0, and is contradicted where it lies below.
    """

    m: int
    better: str
    worse: str
    mean: float
    interval: tuple[float, float]
    wins: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "m": self.m,
            "better": self.better,
            "worse": self.worse,
            "mean": self.mean,
            "interval": self.interval,
            "wins": self.wins,
        }


def gaps(found: Sequence[Inverted]) -> list[Gap]:
    """For each m, neighbors in the order of the table, photograph by photograph."""
    every = {(item.attack, item.m, item.name): item.ssim for item in found}
    every |= {(RAW, m, name): ssim for (attack, _, name), ssim in every.items() if attack == RAW for m in {i.m for i in found}}
    answer = []
    for m in sorted({item.m for item in found} - {0}):
        present = [attack for attack in ORDER if any(key[:2] == (attack, m) for key in every)]
        for better, worse in pairwise(present):
            names = sorted({key[2] for key in every if key[:2] == (better, m) and (worse, m, key[2]) in every})
            difference = np.array([every[better, m, name] - every[worse, m, name] for name in names])
            answer.append(
                Gap(
                    m=m,
                    better=better,
                    worse=worse,
                    mean=float(difference.mean()),
                    interval=_interval(difference),
                    wins=float((difference > 0).mean()),
                )
            )
    return answer

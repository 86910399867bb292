"""Study of inversion: pictures from attacked subspaces, from raw descriptors and by direct inversion.

It gives the rows of [P23] Table 1, and by ways of lifting those of [D21] Fig. 3 and Table 4. One network trained on raw
descriptors inverts whatever attacks recover; direct inversion has one network for each way of lifting. Photographs must be
kept out of the training of all, and of the codebooks; nothing here can check that. [D21]: Dusmanu et al. 2021. [P23]: Pittaluga
and Zhuang 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product

import numpy as np
from jaxtyping import UInt8

from veil.attacks.claims import Estimates
from veil.attacks.distribution.clustering import ClusteringOptions
from veil.attacks.registry import ALL_AUXILIARY, estimated
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target, Tuning
from veil.audit.statistics import mean_interval
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.forms import Points, Subspaces
from veil.inversion.maps import Frame, Inverts, SparseMap, back_projected, points_map, subspaces_map
from veil.inversion.quality import quality
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.progress import Progress
from veil.randomness import seeded

RAW, DIRECT = "raw", "direct"
# The order of [P23] Table 1, best first.
ORDER = (RAW, "database", "clustering", DIRECT, "nearest")
ATTACKS = ("database", "clustering", "nearest")
DIMS = (2, 4, 8, 16)
# The lifting of [P23] Table 1.
SUB_HYBRID: Strategy = "sub-hybrid"
# Attacks that look for decoys: there are none in random lifting.
OF_DECOYS = ("database", "clustering")

COMPANIONS = 10  # other photographs whose subspaces an attack sees
# Estimates of descriptors from the subspaces of one image, and those of some other images that were lifted alike.
Attack = Callable[[Subspaces, Sequence[Subspaces]], Estimates]


@dataclass(frozen=True, kw_only=True, eq=False)
class UntrainedPhotograph:
    """A photograph on which nothing was trained: its name, its pixels and its features."""

    name: str
    rgb: UInt8[np.ndarray, "_ _ 3"]
    features: Features

    @property
    def frame(self) -> Frame:
        """The square part of the photograph that is inverted."""
        return Frame(width=self.rgb.shape[1], height=self.rgb.shape[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Inverted:
    """One reconstructed picture, with its errors (mae, ssim, psnr) against the photograph.

    `attack` names what the network got its descriptors from; `lifting` is "none" and `m` is 0 for raw descriptors. `features`
    pixels of the network's input had any features, and the attack decided the share `decided` of the photograph's features.
    `distance` is the mean distance of decided estimates to the true descriptors, None for direct inversion, which has none.
    """

    name: str
    lifting: str
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
            "lifting": self.lifting,
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
    """The database, clustering and nearest-neighbor attacks of [P23] Table 1, by name.

    `words` are those that decoys were drawn from, `public` is another database (V in [P23]). The nearest entry is not
    projected, as in [P23]. `seed` is that of what the attacks draw.
    """
    knowledge = Knowledge(codebook=None, decoys=words, database=public)
    effort = Effort(seed=seed, auxiliary=ALL_AUXILIARY)

    def run(name: str, form: Subspaces, others: Sequence[Subspaces]) -> Estimates:
        """Estimates of the attack `name` from the subspaces `form`, which has seen `others`."""
        seen = {f"{place}": ReleasedImage(form=other) for place, other in enumerate(others)}
        target = Target(
            image=ReleasedImage(form=form),
            rows=np.arange(len(form)),
            knowledge=replace(knowledge, others=seen),
            effort=effort,
            tuning=Tuning(clusters=ClusteringOptions()),
        )
        return estimated(name, target)[0]

    return {name: partial(run, name) for name in ATTACKS}


def inversion_study(
    photographs: Sequence[UntrainedPhotograph],
    attacks: Mapping[str, Attack],
    *,
    raw: Inverts,
    direct: Mapping[Strategy, Inverts],
    codebook: Codebook,
    decoys: Codebook,
    case: str,
    liftings: Sequence[Strategy] = (SUB_HYBRID,),
    dims: Sequence[int] = DIMS,
    companions: int = COMPANIONS,
    progress: Progress | None = None,
) -> list[Inverted]:
    """Reconstructions of every photograph from raw descriptors, and after each attack and directly for each lifting and m.

    `raw` is the network for raw descriptors, `direct` those for subspaces, by their way of lifting.
    Photographs are lifted by the profile `paper` with each of `liftings` and each m of `dims`, and decoys from `decoys`; `case`
    seeds the lifting. Random lifting has no decoys, and no attack is run that looks for any. An attack on one photograph also
    sees the subspaces of the `companions` photographs that follow it, around the end of the list. Raises InputError for
    networks of another kind, or no photographs.
    """
    if not photographs or raw.kind != "raw" or any(network.kind != "subspaces" for network in direct.values()):
        raise InputError("the study needs photographs, a network for raw descriptors, and others for subspaces alone")
    total, pictures = len(photographs) * (1 + len(liftings) * len(dims)), []
    for photograph in photographs:
        truth = publish(photograph.features).vectors
        sparse = points_map(photograph.frame, photograph.features.keypoints, truth)
        pictures.append(inverted(photograph, raw, sparse, attack=RAW, distance=0.0))
        _tell(progress, len(pictures), total)
    for turn, (lifting, m) in enumerate(product(liftings, dims)):
        profile = Profile.paper(m, lifting)
        possible = {name: attack for name, attack in attacks.items() if profile.decoy_count or name not in OF_DECOYS}
        forms = [
            lift(
                photograph.features,
                profile=profile,
                compression=codebook.compression,
                decoys=decoys,
                randomness=seeded(f"{case} {photograph.name} {m}"),
            ).form
            for photograph in photographs
        ]
        for place, photograph in enumerate(photographs):
            others = (forms[place + 1 :] + forms[:place])[:companions]
            for name, attack in possible.items():
                estimates = attack(forms[place], others)
                pictures.append(
                    _from_estimates(photograph, raw, estimates, forms[place], codebook, attack=name, lifting=lifting)
                )
            if lifting in direct:
                sparse = subspaces_map(photograph.frame, photograph.features.keypoints, forms[place])
                pictures.append(inverted(photograph, direct[lifting], sparse, lifting=lifting, attack=DIRECT, m=m))
            _tell(progress, len(photographs) * (turn + 1) + place + 1, total)
    return pictures


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _from_estimates(
    photograph: UntrainedPhotograph,
    raw: Inverts,
    estimates: Estimates,
    form: Subspaces,
    codebook: Codebook,
    *,
    lifting: str,
    attack: str,
) -> Inverted:
    """The picture that the network `raw` makes of the descriptors that the attack `attack` estimated."""
    points = back_projected(estimates.points, form.space, codebook)
    decided = estimates.decided
    gap = np.linalg.norm(points[decided] - publish(photograph.features).vectors[decided], axis=1)
    return inverted(
        photograph,
        raw,
        points_map(photograph.frame, photograph.features.keypoints, points),
        lifting=lifting,
        attack=attack,
        m=form.m,
        decided=float(decided.mean()),
        distance=float(gap.mean()) if len(gap) else float("nan"),
    )


def inverted(
    photograph: UntrainedPhotograph,
    network: Inverts,
    sparse: SparseMap,
    *,
    attack: str,
    m: int = 0,
    lifting: str = "none",
    decided: float = 1.0,
    distance: float | None = None,
) -> Inverted:
    """The picture that `network` makes of the map `sparse`, with its errors; the other arguments are fields of `Inverted`."""
    rgb = network.invert([sparse])[0]
    errors = quality(photograph.frame.crop(photograph.rgb), rgb)
    return Inverted(
        name=photograph.name,
        lifting=lifting,
        attack=attack,
        m=m,
        features=len(sparse),
        decided=decided,
        distance=distance,
        mae=errors.mae,
        ssim=errors.ssim,
        psnr=errors.psnr,
        rgb=rgb,
    )


@dataclass(frozen=True, kw_only=True)
class InversionRow:
    """Mean results of one attack on one lifting at one m over all photographs, as a row of [P23] Table 1 or [D21] Table 4.

    `interval` is the 95 % interval of the mean SSIM; other fields are those of `Inverted`.
    """

    lifting: str
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
            "lifting": self.lifting,
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


def rows(pictures: Sequence[Inverted]) -> list[InversionRow]:
    """Rows of mean results, one for each lifting, m and attack. Attacks have the order of [P23] Table 1."""
    cases = dict.fromkeys((item.lifting, item.m, item.attack) for item in pictures)
    table = [mean_row([item for item in pictures if (item.lifting, item.m, item.attack) == case]) for case in cases]
    of_lifting = {lifting: place for place, lifting in enumerate(dict.fromkeys(row.lifting for row in table))}
    of_attack = {attack: place for place, attack in enumerate(ORDER)}
    return sorted(table, key=lambda row: (of_lifting[row.lifting], row.m, of_attack.get(row.attack, len(ORDER))))


def mean_row(items: Sequence[Inverted]) -> InversionRow:
    """The row of the pictures of one attack on one lifting at one m."""
    distances = [item.distance for item in items if item.distance is not None and np.isfinite(item.distance)]
    return InversionRow(
        lifting=items[0].lifting,
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
    """The 95 % interval of the mean of `values`; from -1 to 1 for a single one, which says nothing of their spread."""
    return mean_interval(values.astype(np.float64), confidence=0.95) if len(values) > 1 else (-1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Difference of SSIM between two attacks on one lifting at one m, photograph by photograph: `better` minus `worse`.

    `mean` and its 95 % `interval` are over the photographs, `wins` is the share of them where the difference is above 0. The
    order of [P23] Table 1 holds for certain where the interval lies above 0, and is contradicted where it lies below.
    """

    lifting: str
    m: int
    better: str
    worse: str
    mean: float
    interval: tuple[float, float]
    wins: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "lifting": self.lifting,
            "m": self.m,
            "better": self.better,
            "worse": self.worse,
            "mean": self.mean,
            "interval": self.interval,
            "wins": self.wins,
        }


def gaps(pictures: Sequence[Inverted]) -> list[Gap]:
    """Differences of SSIM for each lifting and m between attacks that are neighbors in the order of [P23] Table 1."""
    raw = {item.name: item.ssim for item in pictures if item.attack == RAW}
    differences = []
    for lifting, m in dict.fromkeys((item.lifting, item.m) for item in pictures if item.attack != RAW):
        cell = [item for item in pictures if (item.lifting, item.m) == (lifting, m)]
        ssim = {RAW: raw, **{attack: {i.name: i.ssim for i in cell if i.attack == attack} for attack in ORDER[1:]}}
        for better, worse in pairwise([attack for attack in ORDER if ssim[attack]]):
            names = sorted(ssim[better].keys() & ssim[worse].keys())
            difference = np.array([ssim[better][name] - ssim[worse][name] for name in names])
            differences.append(
                Gap(
                    lifting=lifting,
                    m=m,
                    better=better,
                    worse=worse,
                    mean=float(difference.mean()),
                    interval=_interval(difference),
                    wins=float((difference > 0).mean()),
                )
            )
    return differences

"""Study of defenses: for each way to lift, how much attacks recover from it, and how well it still matches.

Every defense is a profile, a codebook made for it, and a precision of the release. Attacks know all three, but not the decoys
where the pool is called secret. Errors are those of descriptors in the space that was lifted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from veil.attacks.claims import Estimates
from veil.attacks.distribution.database import GapOptions
from veil.attacks.intersection.shared_decoys import MeetingOptions
from veil.attacks.registry import ALL_AUXILIARY, estimated, named
from veil.attacks.structural.lattice import LatticeOptions
from veil.attacks.structural.vertex import VertexOptions
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target, Tuning
from veil.audit.ground_truth import in_space
from veil.audit.score import share
from veil.codebooks.codebook import Codebook
from veil.codebooks.compression import PCA_DIM, fit_pca
from veil.features import Features, unit_length
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil.trials.form_answers import Distance
from veil.wire.codec_subspaces import as_sent
from veil_lab.studies.matching.homographies import ImageSequence, MatchingCase, evaluate

WITHIN = (0.1, 0.4)  # distances to the true descriptor within which recoveries are counted
DISTANCES: tuple[Distance, ...] = ("p2s", "s2s")
# Name of each attack of the table, its name in the table, and what the attacker knows of real decoys.
ATTACKED = (
    ("lattice", "lattice", "secret pool"),
    ("vertex", "vertex", "secret pool"),
    ("nearest, projected", "nearest", "secret pool"),
    ("intersection", "intersection, secret pool", "secret pool"),
    ("database", "database, public pool", "public pool"),
)


@dataclass(frozen=True, kw_only=True)
class Defense:
    """A way to lift: a profile, and the number of axes that its PCA keeps (`reduced`; None: no compression)."""

    name: str
    profile: Profile
    reduced: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Shares of `features` descriptors that one attack recovered.

    `within` are the shares within 0.1 and within 0.4 of the truth, `upper` is the upper end of the 95 % interval of the first.
    `exact` is the share within 0.001, `certified` the share that the attack claims to have proved.
    """

    attack: str
    features: int
    within: tuple[float, float]
    upper: float
    exact: float
    certified: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "features": self.features,
            "within": self.within,
            "upper": self.upper,
            "exact": self.exact,
            "certified": self.certified,
        }


@dataclass(frozen=True, kw_only=True)
class DefenseRow:
    """Results of one defense: mean matching accuracy at 3 px, and what each attack recovers.

    Accuracies are those of raw descriptors in the defense's space (`raw`), of points against subspaces (`p2s`) and of
    subspaces against subspaces (`s2s`).
    """

    defense: Defense
    raw: float
    p2s: float
    s2s: float
    recoveries: tuple[Recovery, ...]

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        profile = self.defense.profile
        return {
            "defense": self.defense.name,
            "strategy": profile.strategy,
            "m": profile.m,
            "decoys": profile.decoys,
            "dither_steps": profile.dither_steps,
            "reduced": self.defense.reduced,
            "dtype": profile.dtype,
            "mma3": {"raw": self.raw, "p2s": self.p2s, "s2s": self.s2s},
            "attacks": [item.as_json() for item in self.recoveries],
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class DescriptorPools:
    """Descriptors that a study needs beside the victims': centroids, real decoys, the attacker's database, and training data.

    Decoys and database are disjoint; `training` holds descriptors of 8-bit values, on which PCAs are fitted.
    """

    centroids: Codebook
    decoys: Codebook
    database: Codebook
    training: Float64[np.ndarray, "_ dim"]

    @staticmethod
    def split(centroids: Codebook, pool: Codebook) -> DescriptorPools:
        """The pools from `pool`, a codebook of real 8-bit descriptors: decoys are its first half.

        The second half is the attacker's database, and PCAs are fitted on it, too.
        """
        half = len(pool) // 2
        known = pool.stored[half:]
        return DescriptorPools(
            centroids=centroids,
            decoys=replace(pool, stored=pool.stored[:half], slices=max(1, pool.slices // 2)),
            database=replace(pool, stored=known, slices=1),
            training=known.astype(np.float64),
        )


def default_defenses(m: int = 4) -> list[Defense]:
    """The defenses of lab/results/defenses.md: each step alone, then steps together; `m` is the dimension of subspaces."""

    def plain(name: str, reduced: int | None = None, **changes: object) -> Defense:
        """The paper's sub-hybrid lifting with Gaussian directions and some values changed."""
        usual = Profile.paper(m, "sub-hybrid")
        profile = replace(usual, name=name, directions="gaussian", compress=reduced is not None, **changes)  # type: ignore[arg-type]
        return Defense(name=name, profile=profile, reduced=reduced)

    def safe(name: str, m: int = m, reduced: int = PCA_DIM, strategy: Strategy = "sub-adversarial") -> Defense:
        """The hardened profile with some values changed."""
        profile = replace(Profile.hardened(quantized=True), name=name, m=m, strategy=strategy)
        return Defense(name=name, profile=profile, reduced=reduced)

    steps = [1.0, 4.0, 8.0, 16.0, 32.0]
    real = replace(Profile.paper(m, "sub-hybrid"), directions="gaussian", decoys="descriptors")
    return [
        Defense(name="paper", profile=Profile.paper(m)),
        plain("float16", dtype="float16"),
        *(plain(f"dither {step:g}", dither_steps=step) for step in steps),
        *(plain(f"PCA-{reduced}", reduced) for reduced in (112, 96, 80, 64, 48, 32)),
        Defense(name="real decoys, half", profile=replace(real, name="real decoys, half")),
        Defense(name="real decoys, all", profile=replace(real, name="real decoys, all", strategy="sub-adversarial")),
        safe(f"PCA-{PCA_DIM}, dither 4, real, half", strategy="sub-hybrid"),
        safe("hardened"),
        *(safe(f"hardened m={other}", m=other) for other in (2, 8) if other != m),
        *(safe(f"hardened, PCA-{reduced}", reduced=reduced) for reduced in (64, 32)),
    ]


def codebook_for(defense: Defense, pools: DescriptorPools) -> Codebook:
    """The public codebook of a defense: its PCA, where there is one, is fitted on descriptors that went through its dither."""
    if defense.reduced is None:
        return pools.centroids
    steps = defense.profile.dither_steps
    random = np.random.default_rng([defense.reduced, round(8 * steps)])
    dithered = pools.training + steps * random.random(pools.training.shape)
    pca = fit_pca(unit_length(dithered), defense.reduced)
    return replace(pools.centroids, pca=pca, dither_steps=steps)


def released(features: Features, defense: Defense, codebook: Codebook, pools: DescriptorPools, case: str) -> Subspaces:
    """Subspaces of one photograph as a server gets them, rounded to the precision of the wire; `case` seeds the draws."""
    decoys = pools.decoys if defense.profile.decoys == "descriptors" else codebook
    form = lift(
        features, profile=defense.profile, compression=codebook.compression, decoys=decoys, randomness=seeded(case)
    ).form
    return as_sent(form, defense.profile.dtype)


@dataclass(frozen=True, kw_only=True)
class DefenseEffort:
    """Limits of the structural attacks behind a PCA, where they search a hundred times as long.

    They attack `structural` features, with `restarts` of the vertex attack and `tours` of the lattice attack (None: its
    default), on `threads` threads.
    """

    structural: int = 200
    restarts: int = 20
    tours: int | None = None
    threads: int = 1


def recoveries(
    victims: Sequence[Features],
    defense: Defense,
    codebook: Codebook,
    pools: DescriptorPools,
    *,
    case: str,
    effort: DefenseEffort,
) -> list[Recovery]:
    """Recoveries by every attack of the table from the features of `victims`, which are attacked photograph by photograph.

    `codebook` is that of `codebook_for`; `case` seeds the draws of lifting.
    """
    forms = [released(item, defense, codebook, pools, f"{case} {k}") for k, item in enumerate(victims)]
    truths = [in_space(item, form.space, codebook) for item, form in zip(victims, forms, strict=True)]
    is_compressed = defense.reduced is not None
    restarts = effort.restarts if is_compressed else VertexOptions().restarts
    lattice = LatticeOptions.of(forms[0].space)
    if is_compressed and effort.tours is not None:
        lattice = replace(lattice, tours=effort.tours)
    tuning = Tuning(
        lattice=lattice,
        vertex=VertexOptions(restarts=restarts, threads=effort.threads),
        gap=GapOptions(counts=(defense.profile.decoy_count,)),
        meeting=MeetingOptions.for_space(forms[0].space),
    )
    # Every attacker knows decoys that are centroids, which are public with the codebook; a pool of real decoys is not.
    is_real = defense.profile.decoys == "descriptors"
    usual = Knowledge(codebook=codebook, decoys=None if is_real else codebook, database=pools.database)
    public = replace(usual, decoys=pools.decoys if is_real else codebook)
    images = {f"{k}": ReleasedImage(form=form) for k, form in enumerate(forms)}
    rows_of_table = []
    for name, label, knowledge in ATTACKED:
        is_limited = is_compressed and named(name)[0].family == "structural"
        few = effort.structural if is_limited else None
        rows = [np.arange(len(form))[: None if few is None else -(-few // len(forms))] for form in forms]
        known = public if knowledge == "public pool" else usual
        estimates = []
        for (key, image), part in zip(images.items(), rows, strict=True):
            target = Target(
                image=image,
                rows=part,
                knowledge=replace(known, others={other: item for other, item in images.items() if other != key}),
                effort=Effort(structural=len(image.form), auxiliary=ALL_AUXILIARY, threads=effort.threads),
                tuning=tuning,
            )
            estimates.append(estimated(name, target)[0])
        rows_of_table.append(_recovery(label, estimates, [truth[part] for truth, part in zip(truths, rows, strict=True)]))
    return rows_of_table


def _recovery(name: str, estimates: Sequence[Estimates], truths: Sequence[np.ndarray]) -> Recovery:
    """Shares recovered by one attack, over the estimates and the true descriptors of all photographs."""
    error = np.concatenate([np.linalg.norm(e.points - t, axis=1) for e, t in zip(estimates, truths, strict=True)])
    near, far = (float((error < limit).mean()) for limit in WITHIN)
    return Recovery(
        attack=name,
        features=len(error),
        within=(near, far),
        upper=share(int((error < WITHIN[0]).sum()), len(error)).high,
        exact=float((error < 1e-3).mean()),
        certified=float(np.concatenate([e.certified for e in estimates]).mean()),
    )


def defense_study(
    sequences: Sequence[ImageSequence],
    victims: Sequence[Features],
    pools: DescriptorPools,
    defenses: Sequence[Defense],
    *,
    effort: DefenseEffort | None = None,
    workers: int = 2,
) -> Iterator[DefenseRow]:
    """Rows of matching on `sequences` and of attacks on `victims`, one for each defense, as soon as it is done.

    The pools must not be made from either of them. `workers` is the number of threads that match.
    """
    for defense in defenses:
        codebook = codebook_for(defense, pools)
        cases = [
            MatchingCase(sent=None, distance="point"),
            *(MatchingCase(sent=defense.profile, distance=d) for d in DISTANCES),
        ]
        matched = evaluate(
            sequences,
            cases,
            codebook=codebook,
            decoys=pools.decoys,
            randomness=seeded("defenses"),
            workers=workers,
        )
        raw, p2s, s2s = (float(np.mean([accuracy[2] for accuracy in row.accuracy])) for row in matched)
        recovered = recoveries(victims, defense, codebook, pools, case="defenses", effort=effort or DefenseEffort())
        yield DefenseRow(defense=defense, raw=raw, p2s=p2s, s2s=s2s, recoveries=tuple(recovered))

"""Study of the structural attacks on the paper's lifting: descriptors recovered and certified, and time, at every m."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from veil.attacks.claims import Estimates
from veil.attacks.registry import estimated
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.progress import Progress
from veil.randomness import seeded
from veil.wire.codec_subspaces import Dtype, as_sent


@dataclass(frozen=True, kw_only=True)
class StructuralRow:
    """Results of one attack on `features` descriptors, lifted to dimension `m` and sent as `dtype`.

    `exact` is the share recovered to a distance of 0.001 (half precision: 0.01), `within_01` to 0.1, `certified` the share that
    the attack claims to have proved. `wrongly_certified` counts certified ones that are farther than 0.02 from the truth.
    `seconds` are those of each feature.
    """

    attack: str
    m: int
    dtype: str
    features: int
    undecided: int
    exact: float
    within_01: float
    certified: float
    wrongly_certified: int
    seconds: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "m": self.m,
            "dtype": self.dtype,
            "features": self.features,
            "undecided": self.undecided,
            "exact": self.exact,
            "within_01": self.within_01,
            "certified": self.certified,
            "wrongly_certified": self.wrongly_certified,
            "seconds": self.seconds,
        }


def structural_attacks(
    images: Sequence[Features],
    *,
    words: Codebook,
    dimensions: Sequence[int],
    count: int,
    strategy: Strategy = "sub-hybrid",
    dtypes: Sequence[Dtype] = ("float32", "float16"),
    seed: int = 0,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[StructuralRow]:
    """Rows of the lattice and the vertex attack on `count` descriptors of `images`, an equal part of each image.

    Descriptors are lifted to each of `dimensions` with decoys from `words`, and sent as each of `dtypes`. `seed` draws features
    and lifting, `threads` are those of the attacks. `progress` is called with the number of pairs of a dimension and a dtype
    that are done, and the number of all. Raises InputError if the images have fewer features.
    """
    each = -(-count // len(images))
    if min(map(len, images)) < each:
        raise InputError(f"{each} features of each photograph are to be attacked, one has {min(map(len, images))}")
    random = np.random.default_rng(seed)
    tested = [image.drawn(each, random) for image in images]
    truth = np.concatenate([publish(image).vectors for image in tested]).astype(np.float64)[:count]
    cells = [(m, dtype) for m in dimensions for dtype in dtypes]
    rows = []
    for done, (m, dtype) in enumerate(cells):
        form = _released(tested, m, dtype, words, strategy, f"structural attacks {seed}").take(np.arange(count))
        for name in ("lattice", "vertex"):
            # Public centroids of a single descriptor are integers, too: the attacker strikes them off.
            target = Target(
                image=ReleasedImage(form=form),
                rows=np.arange(count),
                knowledge=Knowledge(codebook=None, decoys=words, database=words),
                effort=Effort(structural=count, seed=seed, threads=threads),
            )
            estimated(name, replace(target, rows=np.arange(min(2, count))))  # compilation at first use is no part of the time
            start = time.perf_counter()
            estimates, _ = estimated(name, target)
            rows.append(_row(name, m, dtype, estimates, truth, (time.perf_counter() - start) / count))
        if progress is not None:
            progress(done + 1, len(cells))
    return rows


def _released(images: Sequence[Features], m: int, dtype: Dtype, words: Codebook, strategy: Strategy, case: str) -> Subspaces:
    """Subspaces of all images as a server gets them, rounded to `dtype`; `case` seeds the draws."""
    randomness = seeded(case)
    forms = [
        lift(i, profile=Profile.paper(m, strategy), compression=words.compression, decoys=words, randomness=randomness).form
        for i in images
    ]
    origin, basis = (np.concatenate([getattr(form, name) for form in forms]) for name in ("origin", "basis"))
    return as_sent(replace(forms[0], origin=origin, basis=basis), dtype)


def _row(name: str, m: int, dtype: Dtype, estimates: Estimates, truth: np.ndarray, seconds: float) -> StructuralRow:
    """The row of one attack, from its estimates and the true descriptors."""
    error = np.linalg.norm(estimates.points - truth, axis=1)
    exact = 1e-3 if dtype == "float32" else 1e-2  # rounding to half precision leaves nothing exact
    return StructuralRow(
        attack=name,
        m=m,
        dtype=dtype,
        features=len(truth),
        undecided=int((~estimates.decided).sum()),
        exact=float((error < exact).mean()),
        within_01=float((error < 0.1).mean()),
        certified=float(estimates.certified.mean()),
        wrongly_certified=int((estimates.certified & ~(error < 2e-2)).sum()),
        seconds=seconds,
    )

"""Mean matching accuracy on image sequences with homographies: the protocol of Dusmanu et al. 2021, Fig. 2.

The first image of each sequence is matched with every other one by mutual nearest neighbors; a match is right at t px
if the homography takes its first keypoint to within t px of the second (D2-Net, CVPR 2019). MMA is the mean over
pairs of the share of right matches; a pair without matches counts as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.codebooks.codebook import Codebook
from veil.features import Features
from veil.forms import Form, Points
from veil.matching import MatchOptions, match
from veil.matching.ratio import best_ratio
from veil.mechanisms.profile import STRATEGIES, Profile, Strategy, hardened, paper
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.progress import Progress
from veil.randomness import Randomness
from veil.threads import shared

THRESHOLDS_PX = tuple(range(1, 11))
RIGHT_PX = 3  # a match counts as right for the calibration of ratios within this distance
Distance = Literal["point", "p2s", "s2s"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSequence:
    """Features of the images of one sequence, with `homographies[k]` from image 0 to image k + 1.

    Homographies map pixel coordinates in which centers of pixels are integers.
    """

    name: str
    features: tuple[Features, ...]
    homographies: tuple[Float64[np.ndarray, "3 3"], ...]


@dataclass(frozen=True, kw_only=True)
class MatchingCase:
    """One curve of the figure: a way to lift and a distance to match by; `profile` None stands for raw descriptors."""

    profile: Profile | None
    distance: Distance

    @property
    def label(self) -> str:
        """The case's name: profile, lifting, dimension and distance in one line."""
        if self.profile is None:
            return "raw"
        return f"{self.profile.name} {self.profile.strategy} m={self.profile.m} {self.distance}"


@dataclass(kw_only=True)
class MatchingRow:
    """Results of one case over all image pairs.

    `accuracy` holds for each pair the share of right matches at each of `THRESHOLDS_PX`, `matches` their number. `ratios` and
    `right` hold for each pair the distance ratio of every match and whether it is right, for the calibration. `collisions`
    counts pairs whose images drew decoys from the same slice of the codebook, for distances between subspaces.
    """

    case: MatchingCase
    accuracy: list[Float64[np.ndarray, "thresholds"]] = field(default_factory=list)
    matches: list[int] = field(default_factory=list)
    ratios: list[np.ndarray] = field(default_factory=list)
    right: list[np.ndarray] = field(default_factory=list)
    collisions: int = 0

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        profile = self.case.profile
        mean = np.mean(self.accuracy, axis=0)
        return {
            "lifting": profile.strategy if profile else "none",
            "profile": profile.name if profile else "raw",
            "m": profile.m if profile else 0,
            "distance": self.case.distance,
            "pairs": len(self.matches),
            "matches": float(np.mean(self.matches)),
            "mma": {str(t): float(value) for t, value in zip(THRESHOLDS_PX, mean, strict=True)},
            "same_slice_pairs": self.collisions,
        }

    def ratio(self) -> float | None:
        """The distance ratio that separates right from wrong matches best, or None where all are right or all wrong."""
        ratios, right = np.concatenate(self.ratios), np.concatenate(self.right)
        return best_ratio(ratios, right) if right.any() and not right.all() else None


def real_decoys(m: int, strategy: Strategy = "sub-hybrid") -> Profile:
    """A profile of the paper's lifting with real descriptors for decoys instead of centroids."""
    return Profile(name="real", strategy=strategy, m=m, decoys="descriptors")


def default_cases(dims: Sequence[int], subspace_dims: Sequence[int]) -> list[MatchingCase]:
    """The cases of the figure: raw, hardened, every strategy and dimension of the paper, and real decoys.

    `dims` are the values of m for distances from points to subspaces (p2s), `subspace_dims` for those between subspaces (s2s).
    """
    cases = [MatchingCase(profile=None, distance="point")]
    cases += [MatchingCase(profile=hardened(quantized=True), distance=distance) for distance in ("p2s", "s2s")]
    for strategy in STRATEGIES:
        cases += [MatchingCase(profile=paper(m, strategy), distance="p2s") for m in dims]
        cases += [MatchingCase(profile=paper(m, strategy), distance="s2s") for m in subspace_dims]
    cases += [MatchingCase(profile=real_decoys(m), distance="p2s") for m in dims]
    cases += [MatchingCase(profile=real_decoys(m), distance="s2s") for m in subspace_dims]
    return cases


def evaluate(
    sequences: Sequence[ImageSequence],
    cases: Sequence[MatchingCase],
    *,
    codebook: Codebook,
    decoys: Codebook,
    randomness: Randomness,
    workers: int = 2,
    progress: Progress | None = None,
) -> list[MatchingRow]:
    """Rows of matching results, one for each case, in the order of `cases`.

    `decoys` is the pool of real descriptors, `codebook` has the centroids and the PCA. `workers` is the number of threads.
    `progress` is called with the number of pairs of a sequence and a case that are done, and the number of all.
    """
    rows = [MatchingRow(case=case) for case in cases]
    books = codebook, decoys
    total = len(sequences) * len(rows)
    for s, sequence in enumerate(sequences):
        forms: dict[Profile | None, list[tuple[Form, int | None]]] = {}
        for r, row in enumerate(rows):
            profile = row.case.profile
            for needed in (None, profile):
                if needed not in forms:
                    make = partial(_form, profile=needed, books=books, randomness=randomness)
                    forms[needed] = list(shared(make, sequence.features, workers))
            _match_sequence(row, sequence, forms[None], forms[profile], codebook, workers)
            if progress is not None:
                progress(s * len(rows) + r + 1, total)
    return rows


def _form(
    features: Features, profile: Profile | None, books: tuple[Codebook, Codebook], randomness: Randomness
) -> tuple[Form, int | None]:
    """Form of one image by `profile` (None: raw), and the slice that its decoys came from."""
    if profile is None:
        return publish(features), None
    codebook, pool = books
    decoys = pool if profile.decoys == "descriptors" else codebook
    lifted = lift(features, profile=profile, compression=codebook.compression, decoys=decoys, randomness=randomness)
    return lifted.form, lifted.slice_index


def _match_sequence(
    row: MatchingRow,
    sequence: ImageSequence,
    raw: list[tuple[Form, int | None]],
    lifted: list[tuple[Form, int | None]],
    codebook: Codebook,
    workers: int,
) -> None:
    """Match the first image with all others and add the results to `row`.

    The first image is raw (point, p2s) or lifted (s2s), every other image is as the case says.
    """
    reference, reference_slice = lifted[0] if row.case.distance == "s2s" else raw[0]
    others = lifted[1:]
    if isinstance(reference, Points):
        reference = codebook.compression.into_space(reference, others[0][0].space)
    matched = list(shared(lambda other: match(reference, other[0], MatchOptions()), others, workers))
    for k, matches in enumerate(matched):
        errors = transfer_errors(sequence, k, matches.indices)
        row.accuracy.append(np.array([(errors <= t).mean() if len(errors) else 0.0 for t in THRESHOLDS_PX]))
        row.matches.append(len(matches))
        row.ratios.append(matches.ratios)
        row.right.append(errors <= RIGHT_PX)
        row.collisions += reference_slice is not None and reference_slice == others[k][1]


def transfer_errors(sequence: ImageSequence, k: int, indices: np.ndarray) -> Float64[np.ndarray, "matches"]:
    """Distances in pixels between H x and x' for each match of image 0 with image k + 1; infinite behind the horizon.

    `indices` (matches, 2) are rows of features in both images.
    """
    # Keypoints have their origin at the corner, homographies at the center of the first pixel.
    left = sequence.features[0].keypoints[indices[:, 0]].astype(np.float64) - 0.5
    right = sequence.features[k + 1].keypoints[indices[:, 1]].astype(np.float64) - 0.5
    homogeneous = np.hstack([left, np.ones((len(left), 1))]) @ sequence.homographies[k].T
    depth = homogeneous[:, 2:]
    visible = depth[:, 0] * np.sign(sequence.homographies[k][2, 2]) > 1e-12
    projected = homogeneous[:, :2] / np.where(visible[:, None], depth, 1.0)
    return np.where(visible, np.linalg.norm(projected - right, axis=1), np.inf)

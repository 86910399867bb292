"""Mean matching accuracy on image sequences with homographies: the protocol of Dusmanu et al. 2021, Fig. 2.

The first image of each sequence is matched with every other one by mutual nearest neighbors; a match is right at t px
if the homography takes its first keypoint to within t px of the second (D2-Net, CVPR 2019). MMA is the mean over
pairs of the share of right matches; a pair without matches counts as 0.

Words have no distance: they are matched with words, by mutually heaviest shared ones (docs/theory/words.md, Eq. 14). A public
image then has each descriptor's nearest word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.codebooks.codebook import Codebook
from veil.features import Features
from veil.forms import Form, Points
from veil.ldp.mechanism import SubsetMechanism
from veil.matching import MatchOptions, match
from veil.matching.ratio import best_ratio
from veil.mechanisms.profile import STRATEGIES, Profile, Strategy
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.mechanisms.words import to_words
from veil.progress import Progress
from veil.randomness import Randomness
from veil.threads import shared
from veil.trials.form_answers import Distance

THRESHOLDS_PX = tuple(range(1, 11))
RIGHT_PX = 3  # a match counts as right for the calibration of ratios within this distance
WordMatching = Literal["p2w", "w2w"]
Sent = Profile | SubsetMechanism | None  # how descriptors are sent: lifted, as words, or raw


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
    """One curve of the figure: how descriptors are sent (None: raw), and what they are matched by.

    "point", "p2s" and "s2s" are distances, "p2w" and "w2w" shared words: of a raw image and one in words, or of two in words.
    """

    sent: Sent
    distance: Distance | WordMatching

    @property
    def profile(self) -> Profile | None:
        """The profile of lifting; None for raw descriptors and for words."""
        return self.sent if isinstance(self.sent, Profile) else None

    @property
    def reference(self) -> Sent:
        """How the first image of a sequence is seen: as the others are, or raw; beside words, raw is the nearest word."""
        if self.distance in ("s2s", "w2w"):
            return self.sent
        if isinstance(self.sent, SubsetMechanism):
            return SubsetMechanism(dictionary_size=self.sent.dictionary_size, epsilon=math.inf, m=1)
        return None

    @property
    def label(self) -> str:
        """The case's name: profile, lifting, dimension and distance in one line."""
        if self.sent is None:
            return "raw"
        if isinstance(self.sent, SubsetMechanism):
            return f"words eps={self.sent.epsilon:g} m={self.sent.m} {self.distance}"
        return f"{self.sent.name} {self.sent.strategy} m={self.sent.m} {self.distance}"


@dataclass(kw_only=True)
class MatchingRow:
    """Results of one case over all image pairs.

    `descriptor` is that of the features, and `features` holds the number of each image's. `accuracy` holds for each pair the
    share of right matches at each of `THRESHOLDS_PX`, `matches` their number. `ratios` and `right` hold for each pair the
    distance ratio of every match and whether it is right, for the calibration. `collisions` counts pairs whose images drew
    decoys from the same slice of the codebook, for distances between subspaces.
    """

    case: MatchingCase
    descriptor: str
    features: list[int] = field(default_factory=list)
    accuracy: list[Float64[np.ndarray, "thresholds"]] = field(default_factory=list)
    matches: list[int] = field(default_factory=list)
    ratios: list[np.ndarray] = field(default_factory=list)
    right: list[np.ndarray] = field(default_factory=list)
    collisions: int = 0

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        sent, profile = self.case.sent, self.case.profile
        words = sent if isinstance(sent, SubsetMechanism) else None
        mean = np.mean(self.accuracy, axis=0)
        return {
            "descriptor": self.descriptor,
            "features": float(np.mean(self.features)),
            "lifting": profile.strategy if profile else "none",
            "profile": "words" if words else profile.name if profile else "raw",
            "m": sent.m if sent else 0,
            "words": words.dictionary_size if words else None,
            "epsilon": words.epsilon if words else None,
            "distance": self.case.distance,
            "pairs": len(self.matches),
            "matches": float(np.mean(self.matches)),
            "right_matches": float(np.mean([right.sum() for right in self.right])),
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


def default_cases(dims: Sequence[int], subspace_dims: Sequence[int], *, quantized: bool = True) -> list[MatchingCase]:
    """The cases of the figure: raw, hardened, every strategy and dimension of the paper, and real decoys.

    `dims` are the values of m for distances from points to subspaces (p2s), `subspace_dims` for those between subspaces (s2s).
    `quantized` says whether descriptors have 8 bits, as SIFT's.
    """
    cases = [MatchingCase(sent=None, distance="point")]
    cases += [MatchingCase(sent=Profile.hardened(quantized=quantized), distance=distance) for distance in ("p2s", "s2s")]
    for strategy in STRATEGIES:
        cases += [MatchingCase(sent=Profile.paper(m, strategy), distance="p2s") for m in dims]
        cases += [MatchingCase(sent=Profile.paper(m, strategy), distance="s2s") for m in subspace_dims]
    cases += [MatchingCase(sent=real_decoys(m), distance="p2s") for m in dims]
    cases += [MatchingCase(sent=real_decoys(m), distance="s2s") for m in subspace_dims]
    return cases


def form_cases(*, quantized: bool, codebook: Codebook, epsilon: float, m: int) -> list[MatchingCase]:
    """The cases that compare descriptors: raw, hardened subspaces, and words, against a raw image and against their like.

    `quantized` says whether descriptors have 8 bits. Words are those of `codebook`, whose PCA, where it has one, is that of the
    hardened profile; `epsilon` and `m` are of each feature.
    """
    profile = Profile.hardened(quantized=quantized, compress=codebook.pca is not None)
    words = SubsetMechanism(dictionary_size=len(codebook), epsilon=epsilon, m=m)
    return [
        MatchingCase(sent=None, distance="point"),
        MatchingCase(sent=profile, distance="p2s"),
        MatchingCase(sent=profile, distance="s2s"),
        MatchingCase(sent=words, distance="p2w"),
        MatchingCase(sent=words, distance="w2w"),
    ]


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

    All features are of one descriptor, that of the codebooks where cases need these.
    `decoys` is the pool of real descriptors, `codebook` has the centroids and the PCA. `workers` is the number of threads.
    `progress` is called with the number of pairs of a sequence and a case that are done, and the number of all.
    """
    descriptor = sequences[0].features[0].space.descriptor
    rows = [MatchingRow(case=case, descriptor=descriptor) for case in cases]
    for row in rows:
        row.features = [len(features) for sequence in sequences for features in sequence.features]
    books = codebook, decoys
    total = len(sequences) * len(rows)
    for s, sequence in enumerate(sequences):
        forms: dict[Sent, list[tuple[Form, int | None]]] = {}
        for r, row in enumerate(rows):
            for needed in (row.case.reference, row.case.sent):
                if needed not in forms:
                    make = partial(_form, sent=needed, books=books, randomness=randomness)
                    forms[needed] = list(shared(make, sequence.features, workers))
            _match_sequence(row, sequence, forms[row.case.reference][0], forms[row.case.sent][1:], codebook, workers)
            if progress is not None:
                progress(s * len(rows) + r + 1, total)
    return rows


def _form(features: Features, sent: Sent, books: tuple[Codebook, Codebook], randomness: Randomness) -> tuple[Form, int | None]:
    """Form of one image as it is `sent`, and the slice that its decoys came from."""
    if sent is None:
        return publish(features), None
    codebook, pool = books
    if isinstance(sent, SubsetMechanism):
        return to_words(features, mechanism=sent, dictionary=codebook, randomness=randomness).form, None
    decoys = pool if sent.decoys == "descriptors" else codebook
    lifted = lift(features, profile=sent, compression=codebook.compression, decoys=decoys, randomness=randomness)
    return lifted.form, lifted.slice_index


def _match_sequence(
    row: MatchingRow,
    sequence: ImageSequence,
    first: tuple[Form, int | None],
    others: list[tuple[Form, int | None]],
    codebook: Codebook,
    workers: int,
) -> None:
    """Match the first image with all others, in the forms of the row's case, and add the results to `row`."""
    reference, reference_slice = first
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

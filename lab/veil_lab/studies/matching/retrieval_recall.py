"""Recall of image retrieval from raw descriptors and from their hardened subspaces, on the same features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from veil.codebooks.codebook import Codebook
from veil.features import Features
from veil.forms import Form, Points
from veil.ldp.mechanism import SubsetMechanism
from veil.matching import MatchOptions, match
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import privatize, privatize_words
from veil.mechanisms.selection import usual_selection
from veil.progress import Progress
from veil.randomness import Randomness

# Number of raw matches (ratio 0.8) that agree on a fundamental matrix, within pixels of its lines, from which images overlap.
OVERLAPPING, RATIO, WITHIN_PX = 30, 0.8, 2.0
# Of a release in words: features of an image, and words of each.
WORDS_SENT, SUBSET_SIZE = 1000, 2
# Numbers of retrieved images that are looked at.
RETRIEVED = (1, 5, 10, 20)

Similarity = Callable[[Mapping[str, Form]], tuple[list[str], Float[np.ndarray, "images images"]]]


@dataclass(frozen=True, kw_only=True)
class RecallRow:
    """Mean recall of one form on one scene: the share of a query's overlapping images among the k most similar of all images.

    Where more than k overlap, k count. `descriptor` is what was extracted. `images` are all that are searched, `queries` those
    of the scene that any other one overlaps; `recall` is by k, and empty without queries. `scene` is "" for all scenes
    together.
    """

    scene: str
    form: str
    images: int
    queries: int
    recall: Mapping[int, float]
    descriptor: str = "sift"

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "descriptor": self.descriptor,
            "scene": self.scene,
            "form": self.form,
            "images": self.images,
            "queries": self.queries,
            "recall": {str(count): value for count, value in self.recall.items()},
        }


def released_alike(
    features: Mapping[str, Features], *, codebook: Codebook, decoys: Codebook, randomness: Randomness, progress: Progress
) -> dict[str, dict[str, Form]]:
    """Forms of the features that the hardened profile would send, by name: "raw", and "subspaces" of the same features."""
    profile = Profile.hardened(quantized=next(iter(features.values())).is_quantized, compress=True)
    forms: dict[str, dict[str, Form]] = {"raw": {}, "subspaces": {}}
    for done, (name, item) in enumerate(features.items(), start=1):
        release = privatize(
            item,
            profile=profile,
            compression=codebook.compression,
            decoys=decoys,
            randomness=randomness,
            selection=usual_selection(profile),
        )
        forms["raw"][name] = publish(item).take(release.order)
        forms["subspaces"][name] = release.upload.form
        progress(done, len(features))
    return forms


def released_in_words(
    features: Mapping[str, Features], *, dictionary: Codebook, epsilon: float, randomness: Randomness, progress: Progress
) -> dict[str, Form]:
    """Words of this epsilon of `WORDS_SENT` features of each image, by its name."""
    law = SubsetMechanism(dictionary_size=len(dictionary), epsilon=epsilon, m=SUBSET_SIZE)
    forms: dict[str, Form] = {}
    for done, (name, item) in enumerate(features.items(), start=1):
        sent = privatize_words(
            item, mechanism=law, dictionary=dictionary, randomness=randomness, features_sent=WORDS_SENT
        ).upload
        forms[name] = sent.form
        progress(done, len(features))
    return forms


def overlapping(features: Mapping[str, Features], progress: Progress) -> set[frozenset[str]]:
    """Pairs of images of one scene whose raw features match: `OVERLAPPING` matches agree on a fundamental matrix."""
    names, forms = sorted(features), {name: publish(item) for name, item in features.items()}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    overlaps = set()
    for done, (a, b) in enumerate(pairs, start=1):
        if _agreeing(features[a], features[b], forms[a], forms[b]) >= OVERLAPPING:
            overlaps.add(frozenset((a, b)))
        progress(done, len(pairs))
    return overlaps


def _agreeing(first: Features, second: Features, left: Points, right: Points) -> int:
    """Number of raw matches of two images that agree on a fundamental matrix."""
    from veil.colmap import pycolmap

    matched = match(left, right, MatchOptions(max_ratio=RATIO)).indices
    if len(matched) < OVERLAPPING:
        return 0
    options = pycolmap.RANSACOptions()
    options.max_error, options.random_seed = WITHIN_PX, 0
    left_px, right_px = (side.keypoints[matched[:, place]].astype(np.float64) for place, side in enumerate((first, second)))
    geometry = pycolmap.estimate_fundamental_matrix(left_px, right_px, options)
    return 0 if geometry is None else int(geometry["num_inliers"])


def recall_rows(
    forms: Mapping[str, Mapping[str, Form]],
    scenes: Mapping[str, Sequence[str]],
    pairs: set[frozenset[str]],
    similarity: Similarity,
    descriptor: str = "sift",
) -> list[RecallRow]:
    """Rows of every form for each scene and for all together.

    `forms` gives every image's form, by name of the form and of the image, `scenes` the names of each scene's images, `pairs`
    the pairs that overlap. `similarity` gives names and their similarities. `descriptor` is what was extracted.
    """
    right: dict[str, set[str]] = {}
    for a, b in (sorted(pair) for pair in pairs):
        right.setdefault(a, set()).add(b)
        right.setdefault(b, set()).add(a)
    rows = []
    for form, images in forms.items():
        names, scores = similarity(images)
        shares = {name: _shares(names, scores[row], row, right[name]) for row, name in enumerate(names) if name in right}
        listed = {**scenes, "": [name for own in scenes.values() for name in own]}
        for scene, own in listed.items():
            values = [shares[name] for name in own if name in shares]
            recall = {count: float(np.mean([value[count] for value in values])) for count in RETRIEVED} if values else {}
            rows.append(
                RecallRow(scene=scene, form=form, images=len(names), queries=len(values), recall=recall, descriptor=descriptor)
            )
    return rows


def _shares(names: Sequence[str], scores: np.ndarray, row: int, right: set[str]) -> dict[int, float]:
    """The share of the right images among the most similar ones, by how many of these are looked at."""
    order = [other for other in np.argsort(-scores, kind="stable") if other != row]
    return {count: len({names[other] for other in order[:count]} & right) / min(count, len(right)) for count in RETRIEVED}

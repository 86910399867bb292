"""Releases: uploads from raw features, lifted or put into words, shuffled, and without anything that no server needs to see."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.codebooks.compression import Compression
from veil.errors import RangeError, ReleaseRefused, Remedy
from veil.features import Features
from veil.forms import Released
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.lines import ConvergentOptions, LineOptions, LineRule, ParallelOptions, lift_to_lines
from veil.mechanisms.parameters import Parameters, selected_parameters, word_parameters
from veil.mechanisms.profile import Profile
from veil.mechanisms.selection import EVERYTHING, ChosenFeatures, Selection, selected_rows
from veil.mechanisms.subspaces import DecoyRule, RuleForRows, lift, uniform_rule
from veil.mechanisms.words import to_words
from veil.one_line import one_line
from veil.randomness import Randomness, Secret
from veil.wire.message import LineUpload, Message, Upload

PRIVATE_DICTIONARY = (
    "a dictionary is public and its words are all but descriptors of the photographs it was made from, which no epsilon "
    "covers; take one that was made from other photographs"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class HideInLines:
    """The choice to send a random line through each keypoint in place of its position (lines.md#release).

    - `gravity`, float64 (3,): down in the camera frame (x right, y down, z forward), of any length; None if unknown. It is
      sent, and a share of the lines follows it.
    - `aligned_share`: probability that a line follows gravity, in [0, 1).

    Raises RangeError for another share. Sources: Geppert et al. 2020, Sec. 3.1; Speciale et al., ICCV 2019.
    """

    gravity: Float64[np.ndarray, "_"] | None = None
    aligned_share: float = 0.5

    __repr__ = one_line

    def __post_init__(self) -> None:
        rule_for(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class HideInConvergentLines:
    """The choice to send a line through each keypoint and the anchor of its half of the picture (lines.md#lines-of-two-halves).

    Anchors are public. Nothing is drawn, and the halves are told. `gravity` is sent, as for `HideInLines`; no line follows it.
    Source: Kim et al., CVPR 2026.
    """

    gravity: Float64[np.ndarray, "_"] | None = None

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class HideInParallelLines:
    """The choice to send a line through each keypoint along the direction of its half (lines.md#lines-of-two-halves).

    One half of the picture has lines along `gravity`, which is sent as for `HideInLines`, or along the y-axis without it; the
    other half along the x-axis. Nothing is drawn, and the halves are told.
    """

    gravity: Float64[np.ndarray, "_"] | None = None

    __repr__ = one_line


LineHiding = HideInLines | HideInConvergentLines | HideInParallelLines


def rule_for(lines: LineHiding) -> LineRule:
    """The rule by which lines are made. Raises RangeError for an impossible share of aligned ones."""
    if isinstance(lines, HideInLines):
        return LineOptions(aligned_share=lines.aligned_share)
    return ConvergentOptions() if isinstance(lines, HideInConvergentLines) else ParallelOptions()


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """A release of subspaces: the upload that leaves the device, and what stays on it.

    - `upload`: the message.
    - `parameters`: what the draws depend on beside the secret, the image and the lines.
    - `order`, int64 (features,): `order[i]` is the row of the i-th released feature among the raw ones.
    - `slice_index`: the image's sub-database of decoys, None where the strategy uses none.
    - `nearest_decoy`: smallest distance |w_i - d| of a decoy to its descriptor (lifting.md#decoys).
    - `decoy_reuse`: mean number of this image's features that each available decoy is used for. Well above 0, subspaces meet in
      shared decoys and give them away (docs/theory/lifting.md, Eq. 8).
    """

    upload: Message
    parameters: Parameters
    order: Int64[np.ndarray, "features"]
    slice_index: int | None
    nearest_decoy: float
    decoy_reuse: float


@dataclass(frozen=True, kw_only=True, eq=False)
class WordRelease:
    """A release of words: the upload that leaves the device, and what stays on it.

    - `upload`: the message.
    - `parameters`: what the release depends on beside the secret, the image and the lines.
    - `order`, int64 (features,): `order[i]` is the row of the i-th released feature among the raw ones.
    - `quantization_error`, float64 (features,): distance of each released feature's descriptor to its true word
      (words.md#what-epsilon-does-not-cover).
    - `missing`: number of features that the image lacks of those asked for; above 0, the number of features says something
      about the image.
    """

    upload: Message
    parameters: Parameters
    order: Int64[np.ndarray, "features"]
    quantization_error: Float64[np.ndarray, "features"]
    missing: int

    @property
    def median_error(self) -> float:
        """Median distance of a descriptor to its true word; whoever learns the word knows the descriptor to about this."""
        return float(np.median(self.quantization_error))


def privatize(
    features: Features,
    *,
    profile: Profile,
    compression: Compression,
    decoys: Codebook,
    randomness: Randomness,
    rule: DecoyRule = uniform_rule,
    lines: LineHiding | None = None,
    selection: Selection | ChosenFeatures = EVERYTHING,
) -> Release:
    """Release one image in subspaces: lift its descriptors, hide its positions in lines if asked to, and shuffle its features.

    The release is determined by `randomness`, features and parameters: under one secret the same image gives the same release
    (release.md#memoized-draws, release.md#order).

    - `profile`: how descriptors are lifted.
    - `compression`: the PCA that compresses descriptors, where the profile says so.
    - `decoys`: the codebook that decoys are drawn from.
    - `randomness`: what everything is drawn from, usually `veil.randomness.memoized` of the client's secret.
    - `rule`: which decoys each feature gets; by default uniform draws.
    - `lines`: how positions are hidden in lines; None sends the positions.
    - `selection`: which features leave; by default all.

    Raises what `veil.mechanisms.subspaces.lift` and, with lines, `veil.mechanisms.lines.lift_to_lines` raise, and
    ReleaseRefused if the decoys are descriptors of the image itself.
    """
    if profile.decoys == "descriptors" and made_from(decoys, features.image_digest):
        raise ReleaseRefused(
            "this photograph is one of those that the decoy pool was made from: its own descriptors would be decoys",
            remedy=Remedy("make", "decoy pool"),
        )
    chosen = np.arange(len(features))
    if selection != EVERYTHING:
        chosen = selected_rows(features, selection, randomness)
        features, rule = features.take(chosen), RuleForRows(rule=rule, chosen=chosen)
    lifted = lift(features, profile=profile, compression=compression, decoys=decoys, randomness=randomness, rule=rule)
    parameters = lifted.parameters
    if selection != EVERYTHING:
        parameters = selected_parameters(parameters, selection, scored=features.scores is not None)
    order = _order(features, randomness)
    return Release(
        upload=_upload(_taken(features, order), lifted.form.take(order), randomness, lines),
        parameters=parameters,
        order=chosen[order],
        slice_index=lifted.slice_index,
        nearest_decoy=float(lifted.nearest_decoy.min()),
        decoy_reuse=len(features) * profile.decoy_count / (decoys.slice_size if profile.uses_slice else len(decoys)),
    )


def privatize_words(
    features: Features,
    *,
    mechanism: SubsetMechanism,
    dictionary: Codebook,
    randomness: Randomness,
    lines: LineHiding | None = None,
    features_sent: int | None = None,
    allow_private_dictionary: bool = False,
) -> WordRelease:
    """Release one image in words: draw subsets for its descriptors, hide its positions in lines if asked to, and shuffle.

    The release is determined by `randomness`, features and parameters: under one secret the same image gives the same release
    (Pittaluga and Zhuang 2023, Sec. 5; words.md#the-sampler-in-integers, release.md#memoized-draws).

    - `mechanism`: the law of the subsets (K words, m, epsilon).
    - `dictionary`: the K words.
    - `randomness`: what everything is drawn from, usually `veil.randomness.memoized` of the client's secret.
    - `lines`: how positions are hidden in lines; None sends the positions.
    - `features_sent`: how many features leave; None sends all. Those with the least keyed hashes leave, a uniform choice that
      is the same each time and that no other feature changes. An image with fewer features sends all that it has.
    - `allow_private_dictionary`: release although the dictionary was made from this very image.

    Raises what `veil.mechanisms.words.to_words` and, with lines, `veil.mechanisms.lines.lift_to_lines` raise, RangeError if
    `features_sent` is less than 1, and ReleaseRefused if the image is among those that the dictionary was made from
    (words.md#what-epsilon-does-not-cover).
    """
    if features_sent is not None and features_sent < 1:
        raise RangeError(f"features_sent must be at least 1, got {features_sent!r}; leave it out to send all")
    if made_from(dictionary, features.image_digest) and not allow_private_dictionary:
        raise ReleaseRefused(f"the dictionary was made from this very photograph: {PRIVATE_DICTIONARY}")
    order = _order(features, randomness)[:features_sent]
    sent = _taken(features, order)
    drawn = to_words(sent, mechanism=mechanism, dictionary=dictionary, randomness=randomness)
    return WordRelease(
        upload=_upload(sent, drawn.form, randomness, lines),
        parameters=word_parameters(mechanism, dictionary=dictionary, features_sent=features_sent),
        order=order,
        quantization_error=drawn.quantization_error,
        missing=0 if features_sent is None else features_sent - len(order),
    )


def made_from(book: Codebook, image_digest: bytes) -> bool:
    """Whether the photograph with this digest is one of those that `book` was made from."""
    return image_digest[:8].hex() in book.provenance.image_digests


def _upload(sent: Features, form: Released, randomness: Randomness, lines: LineHiding | None) -> Message:
    """Message of features that are already in their released order."""
    if lines is None:
        return Upload(camera=sent.camera, keypoints=sent.keypoints, form=form)
    hidden = lift_to_lines(sent, gravity=lines.gravity, randomness=randomness, options=rule_for(lines))
    return LineUpload(camera=sent.camera, lines=hidden, form=form)


def _taken(features: Features, rows: Int64[np.ndarray, "rows"]) -> Features:
    """Features of `rows` without scales, orientations, scores, which are never sent (words.md#what-epsilon-does-not-cover)."""
    return replace(features.take(rows), scales=None, orientations=None, scores=None)


def _order(features: Features, randomness: Randomness) -> Int64[np.ndarray, "features"]:
    """Order of release: rows of the features, sorted by a keyed hash of each (release.md#order).

    For whoever lacks the key this is a uniform shuffle, and it does not change when other features do. Each of several equal
    features has another hash, or they would stand side by side and give themselves away.
    """
    counts: Counter[bytes] = Counter()
    contexts = []
    for row in range(len(features)):
        feature = features.keypoints[row].tobytes() + features.descriptors[row].tobytes()
        repeat = b"|again %d" % counts[feature] if counts[feature] else b""
        counts[feature] += 1
        contexts.append(b"order|" + features.image_digest + feature + repeat)
    return np.argsort(randomness.bits64(contexts, 1)[:, 0], kind="stable")


def pseudonym(secret: Secret, image_digest: bytes) -> str:
    """Name under which an image is released: 16 hex digits that only the holder of `secret` can link to the image."""
    return hashlib.blake2b(b"name|" + image_digest, key=secret.key, digest_size=8).hexdigest()

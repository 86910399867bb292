"""From raw features to an upload: lifted or put into words, shuffled, and stripped of everything no server needs to see."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.errors import RangeError, ReleaseRefused
from veil.features import Features
from veil.forms import Released
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.lines import LineOptions, lift_to_lines
from veil.mechanisms.parameters import Parameters, word_parameters
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import DecoyRule, lift, uniform_rule
from veil.mechanisms.words import to_words
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
    - `options`: which share of the lines follows gravity (half of them by default).

    Sources: Geppert et al. 2020, Sec. 3.1; Speciale et al., ICCV 2019.
    """

    gravity: Float64[np.ndarray, "_"] | None = None
    options: LineOptions = field(default_factory=LineOptions)


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """What leaves of a release of subspaces (`upload`) and what stays: `order[i]` is the raw row of the i-th released feature.

    `parameters` is what its draws depend on beside the secret, the image and the lines.
    `nearest_decoy` is the smallest |w_i - d| (lifting.md#decoys); `decoy_reuse` the mean number of this image's features that
    share a decoy: well above 0, subspaces meet in shared decoys and give them away (docs/theory/lifting.md, Eq. 8).
    """

    upload: Message
    parameters: Parameters
    order: Int64[np.ndarray, "features"]
    slice_index: int | None
    nearest_decoy: float
    decoy_reuse: float


@dataclass(frozen=True, kw_only=True, eq=False)
class WordRelease:
    """What leaves of a release of words (`upload`) and what stays: `order[i]` is the raw row of the i-th released feature.

    `parameters` is what it depends on beside the secret, the image and the lines. `quantization_error[i]` is the distance of
    its descriptor to its true word (words.md#what-epsilon-does-not-cover). `missing` is how many features fewer than asked for
    the image has: then their number says something about the image.
    """

    upload: Message
    parameters: Parameters
    order: Int64[np.ndarray, "features"]
    quantization_error: Float64[np.ndarray, "features"]
    missing: int

    @property
    def median_error(self) -> float:
        """Median distance of a descriptor to its word: who finds the word out knows the descriptor to within about this."""
        return float(np.median(self.quantization_error))


def privatize(
    features: Features,
    *,
    profile: Profile,
    codebook: Codebook,
    decoys: Codebook,
    chance: Randomness,
    rule: DecoyRule = uniform_rule,
    lines: HideInLines | None = None,
) -> Release:
    """Lift one image's descriptors, hide its positions in lines if asked to, and shuffle its features.

    Deterministic in (`chance`, features, parameters): under one secret the same image gives the same release.
    Raises what `veil.mechanisms.subspaces.lift` raises, and ReleaseRefused if the image itself is among the decoys.

    Theory: release.md#order, release.md#memoized-draws.
    """
    if profile.decoys == "descriptors" and made_from(decoys, features.image_digest):
        raise ReleaseRefused(
            "this photograph is one of those that the decoy pool was made from: its own descriptors would be decoys; "
            "build a pool from other photographs with `veil codebook build --decoys`"
        )
    lifted = lift(features, profile=profile, codebook=codebook, decoys=decoys, chance=chance, rule=rule)
    order = _order(features, chance)
    return Release(
        upload=_upload(_taken(features, order), lifted.form.take(order), chance, lines),
        parameters=lifted.parameters,
        order=order,
        slice_index=lifted.slice_index,
        nearest_decoy=float(lifted.nearest_decoy.min()),
        decoy_reuse=len(features) * profile.decoy_count / (decoys.slice_size if profile.uses_slice else len(decoys)),
    )


def privatize_words(
    features: Features,
    *,
    mechanism: SubsetMechanism,
    dictionary: Codebook,
    chance: Randomness,
    lines: HideInLines | None = None,
    features_sent: int | None = None,
    allow_private_dictionary: bool = False,
) -> WordRelease:
    """Put one image's descriptors into random words, hide its positions in lines if asked to, and shuffle.

    `features_sent` fixes how many features leave: those with the least keyed hashes, a uniform choice that is the same each
    time and that no other feature changes. An image with fewer sends all that it has. Deterministic in (`chance`, features,
    parameters). Raises what `veil.mechanisms.words.to_words` raises, RangeError if `features_sent` is less than 1, and
    ReleaseRefused if the image itself is among those that the dictionary was made from (words.md#what-epsilon-does-not-cover).

    Theory: words.md#the-sampler-in-integers, words.md#what-epsilon-does-not-cover, release.md#memoized-draws.
    """
    if features_sent is not None and features_sent < 1:
        raise RangeError(f"features_sent must be at least 1, got {features_sent!r}; leave it out to send all")
    if made_from(dictionary, features.image_digest) and not allow_private_dictionary:
        raise ReleaseRefused(f"the dictionary was made from this very photograph: {PRIVATE_DICTIONARY}")
    order = _order(features, chance)[:features_sent]
    sent = _taken(features, order)
    worded = to_words(sent, mechanism=mechanism, dictionary=dictionary, chance=chance)
    return WordRelease(
        upload=_upload(sent, worded.form, chance, lines),
        parameters=word_parameters(mechanism, dictionary=dictionary, features_sent=features_sent),
        order=order,
        quantization_error=worded.quantization_error,
        missing=0 if features_sent is None else features_sent - len(order),
    )


def made_from(book: Codebook, image_digest: bytes) -> bool:
    """Whether the photograph is one of those that `book` was made from."""
    return image_digest[:8].hex() in book.provenance.image_digests


def _upload(sent: Features, form: Released, chance: Randomness, lines: HideInLines | None) -> Message:
    """The message about features that are already in their released order."""
    if lines is None:
        return Upload(camera=sent.camera, keypoints=sent.keypoints, form=form)
    hidden = lift_to_lines(sent, gravity=lines.gravity, chance=chance, options=lines.options)
    return LineUpload(camera=sent.camera, lines=hidden, form=form)


def _taken(features: Features, rows: Int64[np.ndarray, "rows"]) -> Features:
    """Keypoints and descriptors of `rows`; scale and orientation are never sent (words.md#what-epsilon-does-not-cover)."""
    return replace(features.take(rows), scales=None, orientations=None)


def _order(features: Features, chance: Randomness) -> Int64[np.ndarray, "features"]:
    """Sorted by a keyed hash of each feature: a uniform shuffle that does not change when other features do.

    Of equal features each has a hash of its own, else standing side by side would give them away.
    """
    seen: Counter[bytes] = Counter()
    contexts = []
    for row in range(len(features)):
        feature = features.keypoints[row].tobytes() + features.descriptors[row].tobytes()
        repeat = b"|again %d" % seen[feature] if seen[feature] else b""
        seen[feature] += 1
        contexts.append(b"order|" + features.image_digest + feature + repeat)
    return np.argsort(chance.words(contexts, 1)[:, 0], kind="stable")


def pseudonym(secret: Secret, image_digest: bytes) -> str:
    """The name under which an image is released: 16 hex digits that only the holder of `secret` can link to it."""
    return hashlib.blake2b(b"name|" + image_digest, key=secret.key, digest_size=8).hexdigest()

"""Protections of a photograph before release: descriptors in subspaces or words, positions as they are or in lines.

What a message is for says which is the usual one (docs/choose.md#the-decision).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.codebooks.decoys import MOST_REUSE, USUAL_REUSE, in_runs
from veil.errors import InputError, ReleaseRefused, Remedy
from veil.features import Features
from veil.files.codebooks import BUNDLED, bundled_codebook, bundled_decoys
from veil.forms import Released
from veil.geometry.gravity import checked_gravity
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.mechanisms.decoy_photographs import PHOTOGRAPHS_M, DecoyPhotographs, PlacedPhotographs, placed_photographs
from veil.mechanisms.lines import gravity_key, line_key
from veil.mechanisms.parameters import Parameters
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import LineHiding, privatize, privatize_words, rule_for
from veil.mechanisms.selection import ChosenFeatures, Selection, selected_rows, usual_selection
from veil.mechanisms.subspaces import uniform_rule
from veil.one_line import one_line
from veil.randomness import Randomness
from veil.wire.message import Message, Upload

SUBSET_SIZE, DELTA = 2, 1e-6
# Number of positions that leave without descriptors.
POSITIONS_SENT = 1000
GUESSED_ALONE = "warning: the focal length is a guess, and positions alone are localized with a known one only"
# Probability of being the true word above which a sent word is no longer hidden among others
# (words.md#what-epsilon-means-for-one-feature).
MAX_POSTERIOR = 0.25

# A message is for `veil localize`, or for `veil map`.
Purpose = Literal["localize", "map"]
# Of each feature in words that are to be localized, and how many of them leave: at one epsilon of the image, more features at a
# smaller epsilon are localized oftener than fewer at a larger one (words_upright.md#how-many-features).
EPSILON, FEATURES = 4.0, 4000
TILES = Remedy("see", "tiles")
GRAVITY = Remedy("give", "Protection.gravity")
OBFUSCATION = Remedy("give", "Protection.descriptors", "HideInSubspaces()")


@dataclass(frozen=True, kw_only=True, eq=False)
class Made:
    """One image's upload before it is entered in a ledger and encoded.

    - `upload`: the message as a record.
    - `dtype`: precision of a subspace's numbers on the wire.
    - `parameters`: what the draws depend on, as text for the ledger.
    - `mechanism`: law of the words, which a ledger of epsilon charges; None for subspaces.
    - `image_epsilon`: of words, epsilon of the whole image at the protection's delta.
    - `median_error`: of words, median distance of the descriptors to their words (unit vectors).
    - `missing`: of words, number of features that were asked for and that the image does not have.
    - `image_features`: number of features that the image has, sent or not.
    - `rows`: of the raw features, in the order of the upload.
    - `kind`: what it has in common with releases whose draws may leave again, as text.
    - `decoy_photographs`: digests of the photographs that gave its decoys; empty for decoys of a pool.
    - `notes`: sentences that the user should read.
    - `remedy`: what would protect better.
    """

    upload: Message
    rows: Int64[np.ndarray, "features"]
    dtype: Literal["float16", "float32"]
    parameters: Parameters
    kind: str
    decoy_photographs: tuple[bytes, ...] = ()
    mechanism: SubsetMechanism | None = None
    image_epsilon: float | None = None
    median_error: float | None = None
    missing: int = 0
    image_features: int = 0
    notes: tuple[str, ...] = ()
    remedy: tuple[Remedy, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class HideInSubspaces:
    """Protection that sends each descriptor as an affine subspace that also contains decoys (Dusmanu et al. 2021).

    It is an obfuscation without proof, and undone by whoever matches the descriptors.

    - `profile`: parameters of the lifting; None: the hardened profile.
    - `codebook`: the codebook with the public PCA; None: the bundled one of the descriptor, and no PCA where there is none. One
      without a PCA, such as the pool itself, leaves float descriptors uncompressed.
    - `decoys`: the pool of decoys; None: the bundled one of the descriptor, which is public: build one of your own. Or
      photographs of other places, of which each release takes eight (`DecoyPhotographs`).
    - `selection`: which features leave; None: 1,000 at least 10 px apart with the hardened profile, all with another one.
      Those of `select_for_map` were chosen one by one.
    """

    profile: Profile | None = None
    codebook: Codebook | None = None
    decoys: Codebook | DecoyPhotographs | None = None
    selection: Selection | ChosenFeatures | None = None

    __repr__ = one_line

    def _make(self, features: Features, source: Randomness, lines: LineHiding | None) -> Made:
        """The upload of one image, drawn from `source`.

        Raises what `veil.mechanisms.release.privatize` raises, and ReleaseRefused if the pool is so small that features share
        decoys.
        """
        profile = self.profile or usual_profile(self.codebook, features, self.decoys, behind_lines=lines is not None)
        selection = self.selection or usual_selection(profile)
        placed = self._placed(profile, selection, features, source)
        codebook, decoys = self._books(profile, features.space.descriptor, placed)
        if placed is None:
            most = (usual_selection(profile) if isinstance(selection, ChosenFeatures) else selection).features or len(features)
            sent = len(selection.rows) if isinstance(selection, ChosenFeatures) else min(most, len(features))
            decoys = in_runs(decoys, most * profile.decoy_count)
            if profile.decoys == decoys.kind == "descriptors":
                _require_enough(decoys, sent * profile.decoy_count)
        release = privatize(
            features,
            profile=profile,
            compression=codebook.compression,
            decoys=decoys,
            randomness=source,
            rule=uniform_rule if placed is None else placed.rule,
            lines=lines,
            selection=selection,
        )
        notes = [f"warning: {warning}" for warning in profile.warnings(quantized=features.is_quantized)]
        remedy: tuple[Remedy, ...] = ()
        if profile.decoys == "descriptors" and self.decoys is None:
            notes.append("note: the bundled decoy pool is public, so whoever holds it can tell decoys from descriptors")
            remedy = (Remedy("give", "HideInSubspaces.decoys"),)
        if placed is None and release.decoy_reuse > USUAL_REUSE:
            notes.append(
                "note: the features of one image share decoys (with this pool each serves more than "
                f"{USUAL_REUSE} of them), and subspaces that share decoys give these away even if the pool is secret "
                "(docs/theory/lifting.md, Eq. 8); use a larger pool or fewer features"
            )
        return Made(
            upload=release.upload,
            rows=release.order,
            dtype=profile.dtype,
            parameters=release.parameters,
            kind=release.parameters.text if placed is None else _kind(profile, release.upload.form),
            decoy_photographs=() if placed is None else placed.photographs,
            image_features=len(features),
            notes=tuple(notes),
            remedy=remedy,
        )

    def _placed(
        self, profile: Profile, selection: Selection | ChosenFeatures, features: Features, source: Randomness
    ) -> PlacedPhotographs | None:
        """The decoy photographs of one image, placed; None for decoys of a pool.

        Raises InputError for a profile whose decoys are no descriptors.
        """
        if not isinstance(self.decoys, DecoyPhotographs):
            return None
        if profile.decoys != "descriptors":
            raise InputError(f"profile {profile.name!r} takes centroids as decoys; photographs go with the hardened profile")
        apart = usual_selection(profile) if isinstance(selection, ChosenFeatures) else selection
        return placed_photographs(
            features,
            selected_rows(features, selection, source),
            self.decoys.photographs,
            count=profile.decoy_count,
            min_distance_px=apart.min_distance_px,
            randomness=source,
        )

    def _books(self, profile: Profile, descriptor: str, placed: PlacedPhotographs | None) -> tuple[Codebook, Codebook]:
        """The codebook and the decoys; where neither PCA nor centroids are used, the pool is both."""
        given = placed.pool if placed is not None else self.decoys if isinstance(self.decoys, Codebook) else None
        if profile.decoys == "descriptors":
            decoys = given or bundled_decoys(descriptor)
            if not profile.compress and self.codebook is None:
                return decoys, decoys
            return self.codebook or bundled_codebook(descriptor), decoys
        codebook = self.codebook or bundled_codebook(descriptor)
        return codebook, given or codebook


def usual_profile(
    codebook: Codebook | None,
    features: Features,
    decoys: Codebook | DecoyPhotographs | None = None,
    *,
    behind_lines: bool = False,
) -> Profile:
    """The hardened profile; it compresses float descriptors, too, where a codebook with a PCA is given or bundled for them.

    Decoys of whole photographs are eight a feature, `PHOTOGRAPHS_M`. Behind lines, which tell less of a pose, they are four.
    """
    compress = features.space.descriptor in BUNDLED if codebook is None else codebook.pca is not None
    profile = Profile.hardened(quantized=features.is_quantized, compress=compress)
    return replace(profile, m=PHOTOGRAPHS_M) if isinstance(decoys, DecoyPhotographs) and not behind_lines else profile


def _kind(profile: Profile, form: Released) -> str:
    """The kind of subspaces whose decoys are of photographs: each image has other ones."""
    return f"photographs {profile.name} m={profile.m} [{form.space}]"


def _require_enough(decoys: Codebook, draws: int) -> None:
    """Raise ReleaseRefused if an image that draws a number of decoys uses those of its run more than `MOST_REUSE` times."""
    if draws > MOST_REUSE * decoys.slice_size:
        raise ReleaseRefused(
            f"the image would draw {draws} decoys from {decoys.slice_size}: features that share decoys give them, and so "
            f"themselves, away",
            facts={"draws": draws, "pool": decoys.slice_size},
            remedy=(
                Remedy("raise", "HideInSubspaces.decoys", str(math.ceil(draws / MOST_REUSE))),
                Remedy("lower", "Selection.features"),
            ),
        )


@dataclass(frozen=True, eq=False)
class HideInWords:
    """Protection that sends each descriptor as a random subset of a public dictionary's words (Pittaluga and Zhuang 2023).

    - `epsilon`: of each feature, >= 0; it composes over the image and all that is ever released. Infinity is no privacy.
    - `m`: number of words sent for each feature.
    - `dictionary`: the codebook whose words are sent; None: the bundled one of SIFT.
    - `features_sent`: number of features that are sent, chosen at random; None: all.
    - `delta`: of the image's epsilon (words.md#composition).
    - `allow_private_dictionary`: accepts a dictionary made from one's own photographs, which is refused otherwise.

    A release checks them: RangeError for an epsilon, m, delta or number of features outside its range.
    """

    epsilon: float
    m: int = SUBSET_SIZE
    dictionary: Codebook | None = None
    features_sent: int | None = None
    delta: float = DELTA
    allow_private_dictionary: bool = False

    __repr__ = one_line

    @staticmethod
    def positions_alone(features_sent: int | None = POSITIONS_SENT) -> HideInWords:
        """The protection that sends nothing of the descriptors: a word at random beside each position (epsilon 0).

        `features_sent` positions leave, chosen at random; None: all. A server with a map localizes them with gravity and images
        that they are near, and so can anybody who has a map (docs/theory/words_upright.md#positions-alone).
        """
        return HideInWords(epsilon=0.0, m=1, features_sent=features_sent)

    @cached_property
    def book(self) -> Codebook:
        """The dictionary whose words are sent: the given one, or the bundled one."""
        return self.dictionary or bundled_codebook()

    @cached_property
    def mechanism(self) -> SubsetMechanism:
        """The law of the words that are sent. Raises RangeError for parameters outside their range."""
        return SubsetMechanism(dictionary_size=len(self.book), epsilon=float(self.epsilon), m=self.m)

    def image_epsilon(self, features: int) -> float:
        """Epsilon of a number of features together, at this protection's delta. Raises RangeError for an impossible delta."""
        return composed_epsilon({self.mechanism: features}, self.delta)

    def _make(self, features: Features, source: Randomness, lines: LineHiding | None) -> Made:
        """The upload of one image, drawn from `source`. Raises what `veil.mechanisms.release.privatize_words` raises."""
        release = privatize_words(
            features,
            mechanism=self.mechanism,
            dictionary=self.book,
            randomness=source,
            lines=lines,
            features_sent=self.features_sent,
            allow_private_dictionary=self.allow_private_dictionary,
        )
        # The server goes by what the message says of the focal length.
        is_localizable = self.mechanism.epsilon > 0 or features.camera.as_sent.focal_is_known
        return Made(
            upload=release.upload,
            rows=release.order,
            dtype="float32",
            parameters=release.parameters,
            kind=release.parameters.text,
            mechanism=self.mechanism,
            image_epsilon=self.image_epsilon(len(release.upload)),
            median_error=release.median_error,
            missing=release.missing,
            image_features=len(features),
            notes=() if is_localizable else (GUESSED_ALONE,),
            remedy=() if is_localizable else (Remedy("give", "Features.camera"),),
        )

    def notes(self) -> list[str]:
        """Sentences for the user: what this epsilon means, and whether it means little."""
        mechanism = self.mechanism
        if mechanism.epsilon == 0:
            return [
                "nothing of the descriptors is sent: words are drawn at random (epsilon 0). Positions are, and whoever has a "
                "map of the place localizes them with gravity, without any descriptor"
            ]
        truth, posterior = outward(float(mechanism.truth), 3), outward(mechanism.posterior, 3)
        if math.isinf(mechanism.epsilon):
            return [
                "warning: epsilon is infinite: the nearest word of each feature is sent for certain. This is no privacy; words "
                "can be inverted into images almost like descriptors"
            ]
        remarks = [
            f"epsilon {outward(mechanism.epsilon, 12)} for each feature: {mechanism.m} of {mechanism.dictionary_size} "
            f"words are sent, the true one among them with probability {truth}; a word that is sent is the true one with "
            f"probability {posterior}, if all were equally likely before"
        ]
        if mechanism.posterior > MAX_POSTERIOR:
            remarks.append(
                f"warning: the true word is among those sent with probability {truth}, epsilon alone says little; choose a "
                "smaller epsilon"
            )
        return remarks


@dataclass(frozen=True, eq=False)
class Protection:
    """The protection of a photograph: what is sent in place of its descriptors and positions.

    - `descriptors`: `HideInSubspaces` or `HideInWords`.
    - `lines`: `HideInLines`, `HideInConvergentLines` or `HideInParallelLines`, to send a line through each keypoint; None:
      positions are sent as they are.
    - `gravity`, float64 (3,): down in the camera frame (x right, y down, z forward), of any length, to be sent beside
      positions; None: it is not sent. Lines have their own. No guarantee covers it (docs/theory/words_upright.md).

    Raises InputError for gravity with lines, or for one that no camera has.
    """

    descriptors: HideInSubspaces | HideInWords
    lines: LineHiding | None = None
    gravity: Float64[np.ndarray, "3"] | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.gravity is None:
            return
        if self.lines is not None:
            raise InputError("gravity beside positions does not go with lines; give it to HideInLines")
        checked_gravity(self.gravity)


def usual_protection(
    purpose: Purpose, features: Features, *, gravity: Float64[np.ndarray, "3"] | None = None, most_epsilon: float = EPSILON
) -> Protection:
    """The protection of a photograph by what its message is for: words to localize, an obfuscation for a map.

    `purpose` is one of two:

    - "localize": words of 4,000 features at epsilon 4 each, with gravity beside the positions (Pittaluga and Zhuang 2023). They
      are found on maps that have gravity. Where a map has tiles, nothing need leave at all (`veil.localize_with_tiles`).
    - "map": hardened subspaces. They are an obfuscation without proof: words do not match each other well enough for maps.

    The other arguments:

    - `features`: raw features of the photograph.
    - `gravity`: down in the camera frame (x right, y down, z forward), of any length, as `veil.measure_gravity` finds it.
      Subspaces leave without it.
    - `most_epsilon`: of each feature, where a smaller one than the usual one is asked for.

    Raises ReleaseRefused for "localize" where gravity or the focal length is not known, as no map would find the words;
    InputError for a gravity that no camera has, or a descriptor that no dictionary is bundled for.
    """
    if purpose == "map":
        return Protection(descriptors=HideInSubspaces())
    require_localizable(features, gravity)
    return Protection(descriptors=usual_words(features.space.descriptor, most_epsilon=most_epsilon), gravity=gravity)


def usual_words(descriptor: str, *, most_epsilon: float = EPSILON) -> HideInWords:
    """The words that leave of a `descriptor` to be localized, at a smaller epsilon than the usual one if that is asked for."""
    return HideInWords(min(EPSILON, most_epsilon), dictionary=bundled_codebook(descriptor), features_sent=FEATURES)


def require_localizable(features: Features, gravity: Float64[np.ndarray, "3"] | None) -> None:
    """Raise ReleaseRefused where no map would find words of a photograph, so that they would leave for nothing."""
    camera = Remedy("give", "Features.camera")
    known = ((gravity is not None, "gravity", GRAVITY), (features.camera.as_sent.focal_is_known, "its focal length", camera))
    for is_known, what, remedy in known:
        if not is_known:
            raise ReleaseRefused(
                f"to be localized a photograph leaves in words, which no map finds without {what}, and that is not known",
                remedy=(TILES, remedy, OBFUSCATION),
            )


def make(protection: Protection, features: Features, source: Randomness) -> Made:
    """The upload of one image, drawn from `source`, with gravity where it is sent: nothing is drawn by it."""
    made = protection.descriptors._make(features, source, protection.lines)
    if protection.gravity is None or not isinstance(made.upload, Upload):
        return made
    return replace(made, upload=replace(made.upload, gravity=checked_gravity(protection.gravity)))


def positions_key(protection: Protection, features: Features, source: Randomness) -> str:
    """Text for the ledger of what is sent of the positions: two releases with different texts are different releases."""
    if protection.lines is not None:
        return line_key(features, gravity=protection.lines.gravity, randomness=source, options=rule_for(protection.lines))
    return "positions" if protection.gravity is None else f"positions gravity={gravity_key(protection.gravity)}"

"""From raw features to an upload: lifted, shuffled, and stripped of everything that a server has no need to see."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64, Int64

from veil.chance import Chance, Secret
from veil.codebook import Codebook
from veil.errors import ReleaseRefused
from veil.features import Features
from veil.privatize.lines import LineOptions, lift_to_lines
from veil.privatize.profile import Profile
from veil.privatize.subspace import DecoyRule, lift, uniform_rule
from veil.wire.message import LineUpload, Message, Upload


@dataclass(frozen=True, kw_only=True, eq=False)
class HideInLines:
    """Send a line through each keypoint in place of its position; `gravity` points down in the camera frame, if known."""

    gravity: Float64[np.ndarray, "_"] | None = None
    options: LineOptions = field(default_factory=LineOptions)


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """What leaves (`upload`) and what stays: `order[i]` is the raw row of the i-th released feature.

    `nearest_decoy` is the smallest |w_i - d| (traps D8); `decoy_reuse` the mean number of this image's features that
    share a decoy: well above 0, subspaces meet in shared decoys and give them away (docs/theory/lifting.md, Eq. 8).
    """

    upload: Message
    order: Int64[np.ndarray, "features"]
    slice_index: int | None
    nearest_decoy: float
    decoy_reuse: float


def privatize(
    features: Features,
    *,
    profile: Profile,
    codebook: Codebook,
    decoys: Codebook,
    chance: Chance,
    rule: DecoyRule = uniform_rule,
    lines: HideInLines | None = None,
) -> Release:
    """Lift one image's descriptors, hide its positions in lines if asked to, and shuffle its features (traps S13, D15).

    Deterministic in (`chance`, features, parameters): under one secret the same image gives the same release.
    Raises what `veil.privatize.subspace.lift` raises, and ReleaseRefused if the image itself is among the decoys.
    """
    if features.image_digest[:8].hex() in decoys.provenance.image_digests and profile.decoys == "descriptors":
        raise ReleaseRefused(
            "this photograph is one of those that the decoy pool was made from: its own descriptors would be decoys; "
            "build a pool from other photographs with `veil codebook build --decoys`"
        )
    lifted = lift(features, profile=profile, codebook=codebook, decoys=decoys, chance=chance, rule=rule)
    order = _order(features, chance)
    form = lifted.form.take(order)
    upload: Message = Upload(camera=features.camera, keypoints=features.keypoints[order], form=form)
    if lines is not None:
        hidden = lift_to_lines(features, gravity=lines.gravity, chance=chance, options=lines.options)
        upload = LineUpload(camera=features.camera, lines=hidden.take(order), form=form)
    return Release(
        upload=upload,
        order=order,
        slice_index=lifted.slice_index,
        nearest_decoy=float(lifted.nearest_decoy.min()),
        decoy_reuse=len(features) * profile.decoy_count / (decoys.slice_size if profile.uses_slice else len(decoys)),
    )


def _order(features: Features, chance: Chance) -> Int64[np.ndarray, "features"]:
    """Sorted by a keyed hash of each feature: a uniform shuffle that does not change when other features do."""
    contexts = [
        b"order|" + features.image_digest + features.keypoints[row].tobytes() + features.descriptors[row].tobytes()
        for row in range(len(features))
    ]
    return np.argsort(chance.words(contexts, 1)[:, 0], kind="stable")


def pseudonym(secret: Secret, image_digest: bytes) -> str:
    """The name under which an image is released: 16 hex digits that only the holder of `secret` can link to it."""
    return hashlib.blake2b(b"name|" + image_digest, key=secret.key, digest_size=8).hexdigest()

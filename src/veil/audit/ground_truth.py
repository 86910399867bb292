"""Recognition of the original feature that each released one came from. Only the audit knows these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.distances.pairs import point_subspace_pairs
from veil.errors import InputError, Remedy
from veil.features import Features
from veil.forms import Released, Subsets, Subspaces
from veil.geometry.camera import as_colmap
from veil.mechanisms.public import publish
from veil.space import Space
from veil.wire.message import LineUpload, Message

POSITION_TOL_PX = 1e-3
# Lines travel in float32: a keypoint is off its own line by rounding only, other keypoints are so near by accident only.
LINE_TOL = 2e-6
# If less than this share of the features is recognized, the photograph is another one, or was extracted with other options.
RECOGNIZED = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth:
    """Originals of one release, in the order of its features.

    `descriptors` are in the space of its form, of unit length where that has it; `keypoints` are in pixels; `rows` are the
    features of the photograph `image`. `words` are the nearest words of the dictionary that the release names; None for another
    form, and where that dictionary is not known.
    """

    image: str
    descriptors: Float64[np.ndarray, "_ _"]
    keypoints: Float64[np.ndarray, "_ 2"]
    rows: Int64[np.ndarray, "_"]
    words: Int64[np.ndarray, "_"] | None = None

    def take(self, rows: np.ndarray) -> Truth:
        """Originals of the features `rows` of the release."""
        return Truth(
            image=self.image,
            descriptors=self.descriptors[rows],
            keypoints=self.keypoints[rows],
            rows=self.rows[rows],
            words=None if self.words is None else self.words[rows],
        )


def find_truth(message: Message, originals: Mapping[str, Features], codebook: Codebook | None) -> Truth:
    """Originals of `message`: the photograph that it was made of, and the original feature behind each released one.

    Features are recognized by their positions or lines; of several at one place, the one whose descriptor fits the form best is
    taken (audit.md#which-original-a-feature-came-from). `codebook` leads from the descriptors' own space into that of the form,
    where the form is compressed. For words it is their dictionary; another one is not asked. Raises InputError if no photograph
    fits, or the codebook does not.
    """
    if isinstance(message.form, Subsets) and codebook is not None and codebook.digest != message.form.dictionary:
        codebook = None
    best, most = None, 0.0
    for name, features in originals.items():
        camera = features.camera
        if (camera.width_px, camera.height_px) != (message.camera.width_px, message.camera.height_px):
            continue
        pairs = _candidates(message, features)
        share = len(np.unique(pairs[:, 0])) / len(message)
        if share > most:
            best, most = (name, features, pairs), share
    if best is None or most < RECOGNIZED:
        raise InputError(
            f"none of {len(originals)} photographs is what this release was made of (the best one has {most:.0%} of its "
            "features)",
            remedy=Remedy("give", "run_audit.originals"),
        )
    name, features, pairs = best
    descriptors = in_space(features, message.form.space, codebook)
    rows = _assigned(_misfit(message.form, descriptors, pairs, codebook), pairs, len(message), len(descriptors))
    if (rows < 0).any():
        raise InputError(
            f"{int((rows < 0).sum())} of {len(rows)} released features are not among those of {name} (a photograph is "
            "extracted anew here, with default options)",
            remedy=Remedy("give", "run_audit.originals"),
        )
    words = None
    if isinstance(message.form, Subsets) and codebook is not None:
        words = codebook.nearest(descriptors[rows].astype(np.float32)).astype(np.int64)
    return Truth(
        image=name,
        descriptors=descriptors[rows],
        keypoints=features.keypoints[rows].astype(np.float64),
        rows=rows,
        words=words,
    )


def in_space(features: Features, space: Space, codebook: Codebook | None) -> Float64[np.ndarray, "features dim"]:
    """Descriptors of `features` in the space of a form, without any dither.

    Raises InputError if a codebook is needed and missing, SpaceError if it does not lead into `space`.
    """
    points = publish(features)
    if points.space != space:
        if codebook is None:
            raise InputError(f"the release lives in [{space}]", remedy=Remedy("give", "Attacker.codebook"))
        points = codebook.compression.into_space(points, space)
    return points.vectors.astype(np.float64)


def _candidates(message: Message, features: Features) -> Int64[np.ndarray, "pairs 2"]:
    """Pairs (released, original) that can be one feature, judged by the position or line (docs/theory/audit.md, Eq. 1)."""
    if isinstance(message, LineUpload):
        xy = np.asarray(as_colmap(message.camera).cam_from_img(features.keypoints.astype(np.float64)), dtype=np.float64)
        rays = np.hstack([xy, np.ones((len(xy), 1))])
        parts = []
        for start in range(0, len(message), 512):  # an image's lines times its keypoints, a block at a time
            off = np.abs(message.lines.coefficients[start : start + 512].astype(np.float64) @ rays.T)
            pairs = np.argwhere(off < LINE_TOL)
            parts.append(pairs + np.array([start, 0]))
        return np.concatenate(parts)
    from scipy.spatial import cKDTree

    near = cKDTree(features.keypoints).query_ball_point(message.keypoints, POSITION_TOL_PX)
    lengths = [len(rows) for rows in near]
    return np.stack(
        [np.repeat(np.arange(len(message)), lengths), np.array([row for rows in near for row in rows], dtype=np.int64)], axis=1
    )


def _misfit(
    form: Released, descriptors: np.ndarray, pairs: Int64[np.ndarray, "pairs 2"], codebook: Codebook | None
) -> Float64[np.ndarray, "pairs"]:
    """Misfit of each pair: how badly the original's descriptor fits the released form. Only features at one place need it."""
    released, original = pairs.T
    if isinstance(form, Subspaces):
        return point_subspace_pairs(descriptors[original], form.origin[released], form.basis[released])
    if codebook is None:
        return np.zeros(len(pairs))
    words = codebook.nearest(descriptors.astype(np.float32))
    return 1.0 - (form.ids[released] == words[original, None]).any(axis=1)


def _assigned(
    misfit: Float64[np.ndarray, "pairs"], pairs: Int64[np.ndarray, "pairs 2"], released_count: int, original_count: int
) -> Int64[np.ndarray, "released"]:
    """Original of each released feature (-1: none), none of them twice: pairs with the least misfit are assigned first."""
    rows = np.full(released_count, -1, dtype=np.int64)
    taken = np.zeros(original_count, dtype=bool)
    for pair in np.argsort(misfit, kind="stable"):
        released, original = pairs[pair]
        if rows[released] < 0 and not taken[original]:
            rows[released], taken[original] = original, True
    return rows

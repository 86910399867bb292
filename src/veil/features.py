"""Raw features of one image, which must not leave the device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8

from veil.errors import InputError
from veil.geometry.camera import Camera
from veil.one_line import one_line
from veil.space import Space


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """Keypoints of one image with their raw descriptors, which can be inverted into the image and stay on the device.

    - `keypoints`, float32 (N, 2): x and y in pixels from the top-left corner of the upright image; pixel centers lie at +0.5.
    - `descriptors`, (N, dim): uint8 for SIFT (COLMAP's quantization, round(512 x)), or float32 rows of unit length.
    - `space`: kind, normalization and dimension of the descriptors.
    - `camera`: intrinsics in pixels of this image.
    - `image_digest`, 32 bytes: identifies the picture (BLAKE2b of its pixels, or of the features where only features were
      imported). The ledger and the memoized release depend on it.
    - `scales`, float32 (N,): SIFT's sigma in pixels, or None if unknown. Never released.
    - `orientations`, float32 (N,): radians from the x-axis towards the y-axis (down), or None if unknown. Never released.
    - `scores`, float32 (N,): the detector's confidence, larger for better keypoints, or None if unknown. Never released.

    Raises InputError if shapes disagree, keypoints are not finite, a descriptor is zero, not finite or (as floats) not of unit
    length, or the digest does not have 32 bytes.
    """

    keypoints: Float32[np.ndarray, "_ 2"]
    descriptors: UInt8[np.ndarray, "_ _"] | Float32[np.ndarray, "_ _"]
    space: Space
    camera: Camera
    image_digest: bytes
    scales: Float32[np.ndarray, "_"] | None = None
    orientations: Float32[np.ndarray, "_"] | None = None
    scores: Float32[np.ndarray, "_"] | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        count = len(self.keypoints)
        if self.keypoints.shape != (count, 2) or self.descriptors.shape != (count, self.space.dim):
            raise InputError(
                f"features need keypoints (N, 2) and descriptors (N, {self.space.dim}), "
                f"got {self.keypoints.shape} and {self.descriptors.shape}"
            )
        for name in ("scales", "orientations", "scores"):
            values = getattr(self, name)
            if values is not None and values.shape != (count,):
                raise InputError(f"{name} must be ({count},), one for each keypoint, got {values.shape}")
        if not np.isfinite(self.keypoints).all():
            raise InputError("keypoints contain NaN or infinity; extract the image again or drop those rows")
        if len(self.image_digest) != 32:
            raise InputError(f"image_digest must be 32 bytes, got {len(self.image_digest)}")
        if self.descriptors.dtype == np.uint8:
            self._require_nonzero()
        else:
            self._require_unit()

    def _require_nonzero(self) -> None:
        """Raise InputError for 8-bit descriptors that are all zero."""
        empty = np.flatnonzero(~self.descriptors.any(axis=1))
        if empty.size:
            raise InputError(f"{empty.size} descriptors are all zero (first: row {empty[0]}); drop them before import")

    def _require_unit(self) -> None:
        """Raise InputError for float descriptors that are not finite and of unit length."""
        lengths = np.linalg.norm(self.descriptors.astype(np.float64), axis=1)
        wrong = np.flatnonzero(~(np.abs(lengths - 1) < 1e-3))  # also catches NaN
        if wrong.size:
            raise InputError(
                f"{wrong.size} descriptors are not finite and of unit length (first: row {wrong[0]}, "
                f"length {lengths[wrong[0]]:.4g}); normalize them before import"
            )

    def __len__(self) -> int:
        return len(self.keypoints)

    def take(self, rows: np.ndarray) -> Features:
        """The features of `rows`: indices, int (M,), or a mask, bool (N,)."""
        return replace(
            self,
            keypoints=self.keypoints[rows],
            descriptors=self.descriptors[rows],
            scales=None if self.scales is None else self.scales[rows],
            orientations=None if self.orientations is None else self.orientations[rows],
            scores=None if self.scores is None else self.scores[rows],
        )

    def drawn(self, count: int, random: np.random.Generator) -> Features:
        """At most `count` features, drawn uniformly by `random`, in the order that they have here."""
        return self.take(np.sort(random.permutation(len(self))[:count]))

    def in_l2(self) -> Features:
        """The same features with descriptors normalized to L2, where they are RootSIFT; others as they are.

        Squares of stored 8 bits are stored in 8 bits again, so that they are dithered as all SIFT is. The image's digest stays.
        Raises InputError for RootSIFT that is all zero.
        """
        if self.space.normalization == "L2":
            return self
        unit = of_root(self.descriptors)
        return replace(
            self,
            descriptors=in_eight_bits(unit) if self.is_quantized else unit.astype(np.float32),
            space=replace(self.space, normalization="L2"),
        )

    @property
    def is_quantized(self) -> bool:
        """Whether the descriptors lie on an 8-bit grid, which the lattice attack exploits (hardened.md)."""
        return self.descriptors.dtype == np.uint8


def of_root(rows: Float[np.ndarray, "rows dim"] | UInt8[np.ndarray, "rows dim"]) -> Float64[np.ndarray, "rows dim"]:
    """Histograms of unit length whose square roots the rows of RootSIFT are, of any scale.

    RootSIFT is sqrt(d / |d|_1) (Arandjelovic and Zisserman, CVPR 2012), so its squares are d but for the length. Raises
    InputError for rows that are all zero.
    """
    if not rows.any(axis=1).all():
        raise InputError("some SIFT descriptors are all zero; drop them before import")
    return unit_length(np.square(rows, dtype=np.float64))


def in_eight_bits(unit: Float[np.ndarray, "rows dim"]) -> UInt8[np.ndarray, "rows dim"]:
    """Rows of unit length as COLMAP stores SIFT: round(512 x), at most 255."""
    return np.clip(np.round(unit * 512.0), 0, 255).astype(np.uint8)


def unit_length(vectors: Float[np.ndarray, "*batch dim"]) -> Float[np.ndarray, "*batch dim"]:
    """Vectors scaled to unit Euclidean length along the last axis; none may be zero."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

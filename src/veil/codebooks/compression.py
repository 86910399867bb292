"""Public compression: the way from raw descriptors to what is lifted, published with a codebook and named by its hash."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64

from veil.errors import InputError, RangeError, Remedy, SpaceError
from veil.forms import Points
from veil.one_line import one_line
from veil.space import Space

# Of the hardened profile: 64 axes leave its vertex attack more descriptors (`veil evaluate defenses`), 32 cost matches.
PCA_DIM = 48
# Share of the variance that 48 axes keep of SIFT (the bundled codebook's, of the bundled pool); other descriptors get as many
# axes as keep as much.
VARIANCE_KEPT = 0.867


@dataclass(frozen=True, kw_only=True, eq=False)
class Pca:
    """A public linear compression: x -> axes @ (x - mean).

    - `mean`, float32 (dim,): of the descriptors that it was fitted to.
    - `axes`, float32 (reduced, dim): orthonormal rows, largest variance first.
    """

    mean: Float32[np.ndarray, "dim"]
    axes: Float32[np.ndarray, "reduced dim"]

    __repr__ = one_line

    def apply(self, vectors: Float[np.ndarray, "*batch dim"]) -> Float64[np.ndarray, "*batch reduced"]:
        """Project; the result is not normalized again (lifting.md#strategies)."""
        return (np.asarray(vectors, dtype=np.float64) - self.mean) @ self.axes.T.astype(np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Compression:
    """Compression of descriptors of `raw_space` before the hardened profile lifts them: a dither, then a PCA.

    `codebook` is the SHA-256 (hex) of the codebook that it is published with, and names the compressed space. `dither_steps` is
    the width of the dither in steps of 1/512. `pca` is None where the codebook has none: descriptors are then lifted as they
    are.
    """

    codebook: str
    raw_space: Space
    pca: Pca | None
    dither_steps: float

    __repr__ = one_line

    @property
    def hardened_space(self) -> Space:
        """The dithered, compressed space of the hardened profile. Raises InputError if there is no PCA."""
        return Space(
            descriptor=self.raw_space.descriptor,
            normalization=self.raw_space.normalization,
            dim=len(self.require_pca().axes),
            codebook=self.codebook,
            dither_steps=self.dither_steps,
        )

    def require_pca(self) -> Pca:
        """The PCA, or an InputError that says how to get one."""
        if self.pca is None:
            raise InputError("this codebook has no PCA", remedy=Remedy("make", "codebook with a PCA"))
        return self.pca

    def into_space(self, points: Points, space: Space) -> Points:
        """Public descriptors brought into a query's space, so that a public map serves hardened queries.

        The raw side gets no dither of its own but the mean of the query's, half of `dither_steps` in each coordinate,
        so that both sides sit at the same place on average. Raises SpaceError if this codebook does not lead there.
        """
        if points.space == space:
            return points
        if points.space != self.raw_space or self.pca is None or space != self.hardened_space:
            raise SpaceError(
                f"the codebook {self.codebook[:12]} does not lead from [{points.space}] to [{space}]; "
                "give the codebook that the query was privatized with"
            )
        shifted = points.vectors.astype(np.float64) + self.dither_steps / 2 / 512
        shifted /= np.linalg.norm(shifted, axis=1, keepdims=True)
        return Points(vectors=self.pca.apply(shifted).astype(np.float32), space=space, guarantee=points.guarantee)


def axes_that_keep(share: float, unit_vectors: Float[np.ndarray, "samples dim"]) -> int:
    """Least number of principal axes that keep this share of the variance, at least 8, and fewer than the dimension."""
    if not 0 < share < 1:
        raise RangeError(f"the share of variance must lie between 0 and 1, got {share!r}")
    centered = unit_vectors - unit_vectors.mean(axis=0, dtype=np.float64)
    spectrum = np.linalg.eigvalsh(centered.T @ centered)[::-1]
    kept = np.cumsum(spectrum) / spectrum.sum()
    return int(np.clip(np.searchsorted(kept, share) + 1, 8, unit_vectors.shape[1] - 1))


def fit_pca(unit_vectors: Float[np.ndarray, "samples dim"], reduced: int) -> Pca:
    """Principal axes of `unit_vectors`; signs fixed so that the largest entry of each axis is positive."""
    if not 1 <= reduced < unit_vectors.shape[1] or len(unit_vectors) <= reduced:
        raise RangeError(
            f"PCA to {reduced} dimensions needs more than {reduced} samples of a higher dimension, "
            f"got {unit_vectors.shape[0]} of {unit_vectors.shape[1]}"
        )
    mean = unit_vectors.mean(axis=0, dtype=np.float64)
    centered = unit_vectors - mean
    _, axes = np.linalg.eigh(centered.T @ centered / len(centered))
    axes = axes[:, ::-1][:, :reduced].T
    signs = np.sign(axes[np.arange(reduced), np.abs(axes).argmax(axis=1)])
    return Pca(mean=mean.astype(np.float32), axes=(axes * signs[:, None]).astype(np.float32))

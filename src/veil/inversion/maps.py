"""Sparse 256x256 maps of what is known at keypoints, the input of inversion (docs/theory/inversion.md, Eq. 1-4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64, UInt8

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, SpaceError
from veil.forms import Subsets, Subspaces
from veil.space import Space

SIDE = 256  # [P23] Sec. 6.1: F in R^(256 x 256 x 128)
DIM = 128

Kind = Literal["raw", "subspaces", "words"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A square of a photograph of `width` x `height` px, resized to 256x256; its side is the photograph's shorter one.

    The square is the central one, moved by `shift_px` (pixels) along the longer side. Raises InputError for an empty
    photograph, and for a square that leaves it.
    """

    width: int
    height: int
    shift_px: float = 0.0

    def __post_init__(self) -> None:
        if not (self.width >= 1 and self.height >= 1):
            raise InputError(f"a photograph has at least one pixel a side, got {self.width!r} x {self.height!r}")
        if not abs(self.shift_px) <= abs(self.width - self.height) / 2:
            raise InputError(f"a square that is moved by {self.shift_px!r} px leaves {self.width} x {self.height} px")

    @property
    def side_px(self) -> int:
        """Side of the square in pixels of the photograph: its shorter side."""
        return min(self.width, self.height)

    @property
    def corner(self) -> Float64[np.ndarray, "2"]:
        """Top-left corner of the square in pixels of the photograph."""
        along = self.shift_px * np.array([self.width > self.height, self.width <= self.height])
        return np.array([self.width - self.side_px, self.height - self.side_px]) / 2 + along

    def moved(self, keypoints: Float[np.ndarray, "n 2"]) -> Float64[np.ndarray, "n 2"]:
        """Keypoints in pixels of the square (0..256 is inside), from pixels of the photograph.

        Pixel (i, j) covers [i, i + 1) x [j, j + 1) (docs/theory/inversion.md, Eq. 1).
        """
        return (keypoints.astype(np.float64) - self.corner) * (SIDE / self.side_px)

    def crop(self, rgb: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "256 256 3"]:
        """The square of the photograph, with which an inversion is compared. Raises InputError for another size."""
        if rgb.shape != (self.height, self.width, 3):
            raise InputError(f"the frame is for {self.width}x{self.height} px, the photograph has shape {rgb.shape}")
        from PIL import Image

        left, top = self.corner.tolist()
        box = (left, top, left + self.side_px, top + self.side_px)
        return np.asarray(Image.fromarray(rgb).resize((SIDE, SIDE), Image.Resampling.LANCZOS, box=box))


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseMap:
    """A 256x256 map with vectors at some of its pixels; the others are zero.

    - `kind`: "raw" (raw or recovered descriptors, one vector a pixel), "words" (m vectors, in ascending order of their ids) or
      "subspaces" (m + 1 vectors: the origin, then the basis).
    - `cells`, int64 (pixels,): row-major pixel numbers, 256 y + x, strictly ascending.
    - `values`, float32 (pixels, vectors, 128).

    Raises InputError for wrong shapes, numbers that are not finite, or cells that are not ascending.
    """

    kind: Kind
    cells: Int64[np.ndarray, "_"]
    values: Float32[np.ndarray, "_ _ _"]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.values.ndim != 3 or self.values.shape[::2] != (len(self.cells), DIM) or self.values.shape[1] < 1:
            raise InputError(f"values must be ({len(self.cells)}, vectors, {DIM}), got {self.values.shape}")
        if not np.isfinite(self.values).all():
            raise InputError("a map holds NaN or infinity; drop undecided features before they are mapped")
        inside = len(self.cells) == 0 or (self.cells[0] >= 0 and self.cells[-1] < SIDE * SIDE)
        if not inside or not (self.cells[1:] > self.cells[:-1]).all():
            raise InputError("cells must be ascending pixel numbers of a 256x256 map, each once")

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def mask(self) -> Bool[np.ndarray, "256 256"]:
        """True at pixels that have a feature."""
        mask = np.zeros(SIDE * SIDE, dtype=bool)
        mask[self.cells] = True
        return mask.reshape(SIDE, SIDE)

    def dense(self) -> Float32[np.ndarray, "channels 256 256"]:
        """The map as a dense array, channels first: F of [P23] Sec. 6.1 and 6.3, the vectors of a pixel one after another."""
        flat = np.zeros((self.values.shape[1] * DIM, SIDE * SIDE), dtype=np.float32)
        flat[:, self.cells] = self.values.reshape(len(self), -1).T
        return flat.reshape(-1, SIDE, SIDE)


@runtime_checkable
class Inverts(Protocol):
    """Interface of inversion networks, of `veil.inversion.network.Inverter` and `veil.inversion.forward.PlainInverter`."""

    @property
    def kind(self) -> Kind: ...

    def invert(self, maps: Sequence[SparseMap]) -> UInt8[np.ndarray, "images 256 256 3"]: ...


def points_map(frame: Frame, keypoints: Float[np.ndarray, "n 2"], points: Float[np.ndarray, "n 128"]) -> SparseMap:
    """The map of raw or recovered descriptors `points`; rows with NaN (undecided, `Estimates.points`) are left out."""
    decided = np.isfinite(points).all(axis=1)
    return _scattered("raw", frame, keypoints[decided], points[decided][:, None])


def subspaces_map(frame: Frame, keypoints: Float[np.ndarray, "n 2"], form: Subspaces) -> SparseMap:
    """The map of the subspaces' origins and canonical bases, for direct inversion.

    Raises SpaceError unless the subspaces are of uncompressed 128-D descriptors.
    """
    _require_plain(form.space)
    basis = canonical_basis(form.basis.astype(np.float64))
    return _scattered("subspaces", frame, keypoints, np.concatenate([form.origin[:, None], basis], axis=1))


def words_map(frame: Frame, keypoints: Float[np.ndarray, "n 2"], form: Subsets, dictionary: Codebook) -> SparseMap:
    """The map of the features' m words, in ascending order of their ids ([P23] Sec. 6.3, words.md#the-sampler-in-integers).

    Raises SpaceError if they are words of another dictionary, or not of 128-D descriptors.
    """
    if dictionary.digest != form.dictionary:
        raise SpaceError(f"these are words of {form.dictionary[:12]}, not of the dictionary {dictionary.digest[:12]}")
    _require_plain(form.space)
    return _scattered("words", frame, keypoints, dictionary.vectors[form.ids.astype(np.int64)])


def canonical_basis(basis: Float64[np.ndarray, "n m dim"]) -> Float64[np.ndarray, "n m dim"]:
    """Orthonormal bases that begin with a triangle of positive diagonal, and so depend on the span alone.

    docs/theory/inversion.md, Eq. 3.
    """
    m = basis.shape[1]
    q, r = np.linalg.qr(basis[:, :, :m])
    signs = np.where(np.diagonal(r, axis1=1, axis2=2) < 0, -1.0, 1.0)
    return np.einsum("nki,nkd->nid", q * signs[:, None], basis)


def back_projected(
    points: Float64[np.ndarray, "n dim"], space: Space, codebook: Codebook | None
) -> Float64[np.ndarray, "n 128"]:
    """SIFT descriptors from estimates `points` in the space of a form; NaN rows stay NaN (docs/theory/inversion.md, Eq. 4).

    A PCA is undone up to the axes that it dropped, a dither by its mean. Raises SpaceError unless `space` is that of plain
    128-D descriptors, or that of the PCA of `codebook`.
    """
    if not space.codebook:
        _require_plain(space)
        return points
    if codebook is None or space != codebook.compression.hardened_space or codebook.dim != DIM:
        raise SpaceError(f"[{space}] needs the codebook {space.codebook[:12]} to lead back to descriptors of {DIM} dimensions")
    pca = codebook.compression.require_pca()
    shifted = pca.mean.astype(np.float64) + points @ pca.axes.astype(np.float64)
    # Codebook.into_space adds the mean of the dither, dither_steps / 2 steps, to unit vectors and scales them down.
    shifted /= np.maximum(np.linalg.norm(shifted, axis=1, keepdims=True), 1e-12)
    grown = shifted * _grown(shifted, codebook.compression.dither_steps / 2 / 512)
    descriptors = np.maximum(grown - codebook.compression.dither_steps / 2 / 512, 0)
    return descriptors / np.maximum(np.linalg.norm(descriptors, axis=1, keepdims=True), 1e-12)


def _grown(unit: Float64[np.ndarray, "n 128"], step: float) -> Float64[np.ndarray, "n 1"]:
    """Factors t for which t `unit` - `step` has unit length: the larger root of t^2 - 2 t step sum(unit) + 128 step^2 = 1."""
    half = step * unit.sum(axis=1, keepdims=True)
    return half + np.sqrt(np.maximum(half**2 + 1 - unit.shape[1] * step**2, 0))


def _scattered(kind: Kind, frame: Frame, keypoints: np.ndarray, values: np.ndarray) -> SparseMap:
    """The map of features with vectors `values`; of several in one pixel the one nearest to the pixel's center stays.

    A release has no other order by which one could be chosen.
    """
    if keypoints.shape != (len(values), 2) or not np.isfinite(keypoints).all():
        raise InputError(f"{len(values)} features need as many finite keypoints (x, y), got {keypoints.shape}")
    if values.shape[2] != DIM:
        raise SpaceError(f"inversion reads descriptors of {DIM} dimensions, got {values.shape[2]}; extract SIFT")
    position = frame.moved(keypoints)
    inside = np.flatnonzero(((position >= 0) & (position < SIDE)).all(axis=1))
    pixel = np.floor(position[inside]).astype(np.int64)
    distance = np.square(position[inside] - pixel - 0.5).sum(axis=1)
    cells = pixel[:, 1] * SIDE + pixel[:, 0]
    order = np.lexsort((distance, cells))
    first = order[np.unique(cells[order], return_index=True)[1]]
    return SparseMap(kind=kind, cells=cells[first], values=np.ascontiguousarray(values[inside[first]], dtype=np.float32))


def _require_plain(space: Space) -> None:
    """Raise SpaceError unless descriptors have 128 dimensions and are not compressed."""
    if space.codebook or space.dim != DIM:
        raise SpaceError(
            f"inversion reads descriptors of {DIM} dimensions as they were extracted, got [{space}]; attack the release first, "
            "and give its codebook"
        )

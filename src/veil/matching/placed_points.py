"""Raw descriptors with the places where they were found: what matching by a network reads of an image.

Nothing protected can be placed so, and there matching by a network ends: one that read subspaces, words or lines would have
to know what they hide (docs/theory/learned_matching.md#where-it-serves).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from veil.errors import InputError, Remedy
from veil.forms import Form, Lines, Points
from veil.geometry.camera import Camera


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedPoints:
    """Raw descriptors of one image with the places where they were found: what LightGlue reads of an image.

    - `points`: N descriptors.
    - `keypoints`, float32 (N, 2): x and y in pixels from the image's top-left corner.
    - `size_px`: width and height of the image.

    Raises InputError if the numbers differ, a keypoint is not finite, or the image has no size.
    """

    points: Points
    keypoints: Float32[np.ndarray, "_ 2"]
    size_px: tuple[int, int]

    def __post_init__(self) -> None:
        if self.keypoints.shape != (len(self.points), 2) or not np.isfinite(self.keypoints).all():
            raise InputError(f"{len(self.points)} descriptors need as many finite keypoints, got {self.keypoints.shape}")
        if not min(self.size_px) >= 1:
            raise InputError(f"an image has a width and a height in pixels, got {self.size_px!r}")

    def __len__(self) -> int:
        return len(self.points)

    @property
    def positions(self) -> Float64[np.ndarray, "keypoints 2"]:
        """Keypoints from the image's middle, in halves of its longer side (docs/theory/learned_matching.md)."""
        size = np.array(self.size_px, dtype=np.float64)
        return (self.keypoints - size / 2) / (size.max() / 2)


def require_raw(kind: type[Form], positions: np.ndarray | Lines, *, what: str) -> None:
    """Raise InputError unless an image, called `what` there, has raw descriptors (`kind` is `Points`) at known positions."""
    hidden = []
    if not issubclass(kind, Points):
        hidden.append(f"its descriptors are hidden in {kind.__name__.lower()}")
    if isinstance(positions, Lines):
        hidden.append("its positions are hidden in lines")
    if hidden:
        raise InputError(
            f"{what} is protected: {' and '.join(hidden)}. LightGlue reads raw descriptors and positions of both images, "
            "so that whoever runs it would have to hold what is hidden",
            remedy=Remedy("leave out", "map_images.network"),
        )


def placed(form: Form, positions: Float32[np.ndarray, "_ 2"] | Lines, camera: Camera, *, what: str) -> PlacedPoints:
    """The raw descriptors and keypoints of an image, which the message calls `what`.

    Raises InputError for what is protected, in its descriptors or its positions, and why a network cannot match it.
    """
    require_raw(type(form), positions, what=what)
    assert isinstance(form, Points) and not isinstance(positions, Lines)
    return PlacedPoints(points=form, keypoints=positions, size_px=(camera.width_px, camera.height_px))

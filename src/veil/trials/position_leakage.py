"""Hidden positions that a map from lines gives away to the server, and the error in pixels with which it can name them.

A line that agrees with a point has its keypoint where the point projects. With four lines the server knows that it is right;
with three it does not, but an attacker need not know: the second pair of numbers counts those features too.

Theory: mapping.md#what-it-reveals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from veil.features import Features
from veil.geometry.camera import as_colmap
from veil.places.maps.lines.problem import MappingProblem
from veil.places.maps.lines.reconstruction import Reconstruction, triangulated


class ImageLeakageJson(TypedDict):
    """Named positions of an image."""

    share: float
    median_px: float | None


class PositionLeakageJson(TypedDict):
    """Named positions, and those of each image."""

    share: float
    median_px: float | None
    share_unchecked: float
    median_px_unchecked: float | None
    images: Mapping[str, ImageLeakageJson]


@dataclass(frozen=True, kw_only=True)
class PositionLeakage:
    """Share of an image's features whose position the server can name (mean over images), and its median error in pixels.

    `images` gives both numbers per image, `positions` the named positions in pixels (x, y), and `rows` whose they are, as rows
    of the image's features. The `_unchecked` pair of numbers
    adds the features of points that only three lines support. Medians are None where no position is named.
    """

    share: float
    median_px: float | None
    share_unchecked: float
    median_px_unchecked: float | None
    images: Mapping[str, tuple[float, float | None]]
    positions: Mapping[str, Float64[np.ndarray, "_ 2"]]
    rows: Mapping[str, Int64[np.ndarray, "_"]]

    def as_json(self) -> PositionLeakageJson:
        """The stable record of docs/reference/json.md."""
        return {
            "share": self.share,
            "median_px": self.median_px,
            "share_unchecked": self.share_unchecked,
            "median_px_unchecked": self.median_px_unchecked,
            "images": {name: {"share": share, "median_px": median} for name, (share, median) in self.images.items()},
        }


def leakage_of_points() -> PositionLeakage:
    """Leakage of a map from points: all positions, without error, as keypoints were sent."""
    return PositionLeakage(
        share=1.0, median_px=0.0, share_unchecked=1.0, median_px_unchecked=0.0, images={}, positions={}, rows={}
    )


def leakage_of_lines(
    problem: MappingProblem, reconstruction: Reconstruction, features: Mapping[str, Features]
) -> PositionLeakage:
    """Leakage of a map from lines over all images that went into it, registered or not.

    `features` are the images' features with the true keypoints, by name.
    """
    named = _named_positions(problem, reconstruction, features)
    from_three = triangulated(problem, reconstruction, limit_px=4.0, min_lines=3, min_angle_deg=1.5)
    checked = {name: errors for name, (_, errors, _) in named.items()}
    unchecked = {name: errors for name, (_, errors, _) in _named_positions(problem, from_three, features).items()}
    images = {
        name: (
            len(checked[name]) / max(len(features[name]), 1),
            float(np.median(checked[name])) if len(checked[name]) else None,
        )
        for name in problem.tracks.names
    }
    return PositionLeakage(
        share=_share(checked, features),
        median_px=_median(checked),
        share_unchecked=_share(unchecked, features),
        median_px_unchecked=_median(unchecked),
        images=images,
        positions={name: xy for name, (xy, _, _) in named.items()},
        rows={name: rows for name, (_, _, rows) in named.items()},
    )


def _named_positions(
    problem: MappingProblem, reconstruction: Reconstruction, features: Mapping[str, Features]
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Projections of an image's observed points (pixels), their distances to the hidden keypoints, and the features' rows."""
    tracks = problem.tracks
    named = {}
    for image, name in enumerate(tracks.names):
        rows = np.flatnonzero((tracks.image == image) & reconstruction.observed)
        in_camera = (
            reconstruction.points[tracks.track[rows]] @ reconstruction.rotations[image].T + reconstruction.translations[image]
        )
        hidden = features[name].keypoints[tracks.feature[rows]].astype(np.float64)
        projected = np.asarray(as_colmap(features[name].camera).img_from_cam(in_camera), dtype=np.float64).reshape(-1, 2)
        named[name] = projected, np.linalg.norm(projected - hidden, axis=1), tracks.feature[rows].astype(np.int64)
    return named


def _share(errors: Mapping[str, np.ndarray], features: Mapping[str, Features]) -> float:
    """Mean over the images of the share of features with an error, that is with a named position."""
    return float(np.mean([len(own) / max(len(features[name]), 1) for name, own in errors.items()]))


def _median(errors: Mapping[str, np.ndarray]) -> float | None:
    """Median of the errors of all images together; None without any."""
    together = np.concatenate(list(errors.values()))
    return float(np.median(together)) if len(together) else None

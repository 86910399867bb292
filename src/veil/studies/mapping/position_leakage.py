"""What a map from lines gives away: the hidden positions that the server can now name, and to how many pixels.

A line that agrees with a point has its keypoint where the point projects. With four lines the server knows that it is right;
with three it does not, but an attacker need not know: the second pair of numbers counts those features too.

Theory: mapping.md#what-it-reveals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.features import Features
from veil.geometry.camera import as_colmap
from veil.mapping.lines.problem import MappingProblem
from veil.mapping.lines.reconstruction import Reconstruction, triangulated


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Mean over the images of the share of features whose position can be named, and the median error in pixels.

    `images` gives both per image, `positions` the named places in pixels; the `_unchecked` pair adds points of three lines.
    """

    share: float
    median_px: float | None
    share_unchecked: float
    median_px_unchecked: float | None
    images: Mapping[str, tuple[float, float | None]]
    positions: Mapping[str, Float64[np.ndarray, "_ 2"]]

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "share": self.share,
            "median_px": self.median_px,
            "share_unchecked": self.share_unchecked,
            "median_px_unchecked": self.median_px_unchecked,
            "images": {name: {"share": share, "median_px": median} for name, (share, median) in self.images.items()},
        }


def leak_of_points() -> Leak:
    """Keypoints that are sent need not be found."""
    return Leak(share=1.0, median_px=0.0, share_unchecked=1.0, median_px_unchecked=0.0, images={}, positions={})


def leak_of_lines(problem: MappingProblem, reconstruction: Reconstruction, features: Mapping[str, Features]) -> Leak:
    """Of every image that went into the map, registered or not."""
    places = _named(problem, reconstruction, features)
    unchecked = _named(problem, triangulated(problem, reconstruction, limit_px=4.0, min_lines=3, min_angle_deg=1.5), features)
    checked = {name: errors for name, (_, errors) in places.items()}
    loose = {name: errors for name, (_, errors) in unchecked.items()}
    images = {
        name: (
            len(checked[name]) / max(len(features[name]), 1),
            float(np.median(checked[name])) if len(checked[name]) else None,
        )
        for name in problem.tracks.names
    }
    positions = {name: named for name, (named, _) in places.items()}
    return Leak(
        share=_share(checked, features),
        median_px=_median(checked),
        share_unchecked=_share(loose, features),
        median_px_unchecked=_median(loose),
        images=images,
        positions=positions,
    )


def _named(
    problem: MappingProblem, reconstruction: Reconstruction, features: Mapping[str, Features]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Projected points, and pixels between them and the hidden keypoints, by image."""
    tracks = problem.tracks
    found = {}
    for image, name in enumerate(tracks.names):
        rows = np.flatnonzero((tracks.image == image) & reconstruction.observed)
        in_camera = (
            reconstruction.points[tracks.track[rows]] @ reconstruction.rotations[image].T + reconstruction.translations[image]
        )
        hidden = features[name].keypoints[tracks.feature[rows]].astype(np.float64)
        projected = np.asarray(as_colmap(features[name].camera).img_from_cam(in_camera), dtype=np.float64).reshape(-1, 2)
        found[name] = projected, np.linalg.norm(projected - hidden, axis=1)
    return found


def _share(named: Mapping[str, np.ndarray], features: Mapping[str, Features]) -> float:
    return float(np.mean([len(errors) / max(len(features[name]), 1) for name, errors in named.items()]))


def _median(named: Mapping[str, np.ndarray]) -> float | None:
    together = np.concatenate(list(named.values()))
    return float(np.median(together)) if len(together) else None

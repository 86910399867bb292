"""What a contribution resembles: an earlier one, or one with which it agrees in no geometry; and whether it can agree at all.

The numbers are explained in docs/theory/contributions.md#evidence.
"""

from __future__ import annotations

import numpy as np

from veil.forms import Form, Lines, Points, Subsets
from veil.geometry.camera import Camera
from veil.matching.neighbors import Matches

# A match counts if its nearest distance is at most this share of the second nearest one.
CLEAR_RATIO = 0.8
# Matched features stand in the same place of two images if they are this share of the image's diagonal apart at most.
SAME_PLACE = 0.0025
# Copies of subspaces whose decoys do not meet differ by rounding alone.
LEAST_DISTANCE = 1e-2
# Fewer features than this are not looked at: some of them lie on a line by chance.
LEAST_FEATURES = 8
# Keypoints lie along a line if they spread across it by less than this share of the image's diagonal.
THIN = 0.005


def degenerate(form: Form, positions: np.ndarray | Lines, camera: Camera) -> list[str]:
    """Why a message can say nothing of geometry, as sentences; empty if it may.

    - `form`: its N descriptors.
    - `positions`: float (N, 2) in pixels, or N lines.
    - `camera`: of the image.
    """
    count = len(form)
    if count < LEAST_FEATURES:
        return []
    found = []
    different = len(np.unique(_rows(form), axis=0))
    # Features of one repeated pattern may have the same words, while no two lifted descriptors are ever the same.
    if 2 * different < count and not (isinstance(form, Subsets) and 10 * different >= count):
        found.append(f"only {different} of its {count} descriptors are different")
    if isinstance(positions, Lines):
        places = len(np.unique(positions.coefficients, axis=0))
        if 2 * places < count:
            found.append(f"its {count} lines are {places} different ones")
        return found
    places = len(np.unique(np.floor(positions), axis=0))
    if 2 * places < count:
        found.append(f"its {count} keypoints lie on {places} pixels")
    centered = positions.astype(np.float64) - positions.mean(axis=0, dtype=np.float64)
    spread = np.linalg.svd(centered, compute_uv=False) / np.sqrt(count)
    if spread[1] < THIN * _diagonal(camera):
        found.append(f"its keypoints lie along a line: they spread by {spread[1]:.1f} px across it")
    return found


def copied_share(new: Form, old: Form) -> float:
    """Share of the features of the smaller form whose descriptors are those of the other one, or next to them.

    Two subspaces are a copy if the points of both that are nearest to zero are at most as far apart as two forms of one decoy
    (distances.md#shared-decoys): other draws for the same descriptor lie far apart. Words are a copy if they are all the same;
    single words repeat, so that they say nothing.
    """
    least = max(1, min(len(new), len(old)))
    if isinstance(new, Subsets) or isinstance(old, Subsets):
        if not (isinstance(new, Subsets) and isinstance(old, Subsets)) or not new.m == old.m > 1:
            return 0.0
        return len(set(map(bytes, new.ids)) & set(map(bytes, old.ids))) / least
    if isinstance(new, Points) or isinstance(old, Points) or new.space != old.space:
        return 0.0
    limit = max(new.space.decoy_distance, LEAST_DISTANCE)
    a, b = new.origin, old.origin
    apart = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
    near = apart <= limit**2
    return float(min(near.any(axis=0).sum(), near.any(axis=1).sum())) / least


def clear(matches: Matches) -> Matches:
    """The matches whose nearest distance is clearly smaller than the second nearest one."""
    return matches.take(matches.ratios <= CLEAR_RATIO)


def in_the_same_place(matches: Matches, left: np.ndarray | Lines, right: np.ndarray | Lines, camera: Camera) -> int:
    """Number of matches whose features stand in the same place of both images; 0 where lines hide where they stand."""
    if isinstance(left, Lines) or isinstance(right, Lines):
        return 0
    apart = np.linalg.norm(left[matches.indices[:, 0]] - right[matches.indices[:, 1]], axis=1)
    return int((apart <= SAME_PLACE * _diagonal(camera)).sum())


def _diagonal(camera: Camera) -> float:
    return float(np.hypot(camera.width_px, camera.height_px))


def _rows(form: Form) -> np.ndarray:
    """What tells the descriptors of a form apart, one a row."""
    if isinstance(form, Subsets):
        return form.ids
    return form.vectors if isinstance(form, Points) else form.origin

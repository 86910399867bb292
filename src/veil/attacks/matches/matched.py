"""Inlier attack on a release that a map localizes: whoever localizes it knows which features match which points."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from veil.attacks.attack import Attempt
from veil.attacks.claims import CannotRun, Estimates
from veil.attacks.matches.inliers import inlier_points, inlier_subspaces
from veil.attacks.target import Target
from veil.errors import Remedy
from veil.forms import Points, Subspaces
from veil.places.poses.answer import NoPose
from veil.places.poses.options import LocalizeOptions
from veil.scene import Scene


def matched_attack(target: Target) -> Attempt:
    """Estimates of the features of `target` that a map localizes, from the map's descriptors of the points that they match.

    Of several observations of a point the one nearest to the subspace is taken. Raises CannotRun without a map or a pose: most
    matches may then be wrong, and nothing tells which.
    """
    from veil.places.poses.by_distance import localize  # loads SciPy and COLMAP

    form, image, scene = target.form, target.image, target.knowledge.scene
    if scene is None:
        raise CannotRun("no map of the place was given", remedy=Remedy("give", "Attacker.where"))
    seen = image.keypoints if image.lines is None else image.lines
    if seen is None or image.camera is None:
        raise CannotRun("the release has neither positions nor lines, so that no map can tell which matches are right")
    with target.timer() as clock:
        options = LocalizeOptions(workers=target.effort.threads, seed=target.effort.seed)
        pose = localize(image.camera, seen, form, scene, codebook=target.knowledge.codebook, options=options)
        if isinstance(pose, NoPose):
            raise CannotRun(f"the map does not localize the release: {pose.reason}")
        estimates = _estimates(target, scene, pose.keypoint_rows, pose.point_rows)
    agreeing = int(estimates.decided.sum())
    return Attempt(
        label="inliers",
        rows=target.rows,
        claim=estimates,
        seconds=clock.seconds,
        notes=(f"{agreeing} of {len(target.rows)} features agree with the pose; the map's holder learns these: by design",),
        details={"matched": agreeing / max(len(target.rows), 1)},
    )


def _estimates(
    target: Target, scene: Scene, features: Int64[np.ndarray, "inliers"], points: Int64[np.ndarray, "inliers"]
) -> Estimates:
    """Estimates of the attacked features, each from the observation of its point that gives the highest confidence.

    `features` are the rows of the inliers, `points` the rows of their points of the map. Features without a point stay
    undecided.
    """
    form = target.form
    best = Estimates(
        points=np.full(form.origin.shape, np.nan), confidence=np.zeros(len(form)), certified=np.zeros(len(form), dtype=bool)
    )
    order = np.argsort(points, kind="stable")
    for image in scene.images.values():
        place = np.searchsorted(points[order], image.point_rows)
        place = order[np.minimum(place, len(order) - 1)]
        seen = np.flatnonzero(points[place] == image.point_rows)
        rows = features[place[seen]]
        if isinstance(image.form, Points):
            public = target.knowledge.codebook
            brought = image.form if public is None else public.compression.into_space(image.form, form.space)
            estimates = inlier_points(form.take(rows), brought.vectors[seen].astype(np.float64))
        elif isinstance(image.form, Subspaces):
            estimates, _ = inlier_subspaces(form.take(rows), image.form.take(seen))
        else:
            raise CannotRun("the map's descriptors are words, which have no point nearest to a subspace")
        surer = estimates.confidence > best.confidence[rows]
        best.points[rows[surer]], best.confidence[rows[surer]] = estimates.points[surer], estimates.confidence[surer]
    return best.take(target.rows)

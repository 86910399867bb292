"""Localization of keypoint positions alone, without any descriptor or word, where gravity and near images are known.

Every keypoint may show every point of the map that a near image shows at about the same place. Two such guesses give an upright
pose; almost all are wrong, and the test by all keypoints tells (docs/theory/words_upright.md#positions-alone). It is a form of
localization and an attack at once: whoever has a map can run it on positions that somebody sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float32, Float64

from veil.errors import InputError, RangeError, Remedy
from veil.geometry.camera import Camera
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.grouped import GroupedOptions
from veil.localization.by_distance import Localization, NoPose
from veil.localization.upright_options import UprightOptions
from veil.localization.upright_problem import UprightProblem
from veil.localization.upright_words import localize_upright
from veil.localization.word_options import WordOptions
from veil.matching.inverted_index import Candidates
from veil.progress import Progress
from veil.scene import Scene

# Positions alone share no word with any point.
_NOTHING = np.empty(0, dtype=np.int64)
NO_CANDIDATES = Candidates(keypoint_rows=_NOTHING, point_rows=_NOTHING, log_odds=np.empty(0))


@dataclass(frozen=True, kw_only=True)
class PositionOptions(Acceptance):
    """Options of the localization of positions alone.

    - `max_error_px`, `line_error_px`, `min_inliers`, `max_log10_nfa`, `max_turn_deg`: as in `LocalizeOptions`.
    - `upright`: the search (docs/theory/words_upright.md). It draws 20 million samples, and a keypoint may show a point that a
      near image shows within a reach of 0.25 of it (14 degrees from the middle of the picture).
    - `max_seconds`: processor time of the search; None: no limit.
    - `seed`: of the samples.

    Raises RangeError for values outside their range.
    """

    upright: UprightOptions = field(default_factory=lambda: UprightOptions(samples=20_000_000, reach=0.25))
    max_seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.upright.reach:
            raise RangeError("positions alone need a reach above 0: there are no words that could join them with points")


@dataclass(frozen=True, kw_only=True, eq=False)
class PositionProblem(UprightProblem):
    """A query of positions alone as a search problem: all guesses within `reach` are equally likely, and no word tests them."""

    @property
    def queried(self) -> int:
        """Number of keypoints, each of which may show a point."""
        return len(self.keypoints)

    @property
    def doubt(self) -> str:
        """What may be wrong where no pose is beyond chance, as a question."""
        return "does the query show what these images show, and are its gravity and the map's right?"


def localize_positions(
    camera: Camera,
    keypoints: Float32[np.ndarray, "features 2"],
    scene: Scene,
    *,
    gravity: Float64[np.ndarray, "3"] | None,
    near: Sequence[str],
    options: PositionOptions | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query from its keypoint positions and gravity alone, or say why no pose is better than chance.

    - `camera`: intrinsics and size of the query's image, in pixels; the focal length must be known.
    - `keypoints`: positions in pixels from the top-left corner.
    - `scene`: the map, whose gravity must be known; its descriptors are not used.
    - `gravity`: unit vector of down in the query's camera frame.
    - `near`: names of the few map images that the query is known to be near. Time for each is short: give two or three.
    - `options`: thresholds and limits; `progress` is called with the number of samples drawn and of all.

    Raises InputError where gravity of query or map, or the focal length, is unknown, where `near` names no image of the map, or
    there are no keypoints.
    """
    options = options or PositionOptions()
    if gravity is None or scene.down is None:
        whose = "query" if gravity is None else "map"
        raise InputError(
            f"positions alone are localized with gravity, and that of the {whose} is unknown",
            remedy=Remedy("give", "Protection.gravity") if gravity is None else Remedy("give", "map_images.gravity"),
        )
    if not camera.focal_is_known:
        raise InputError(
            "positions alone are localized with a known focal length only", remedy=Remedy("give", "Picture.camera")
        )
    unknown = sorted(set(near) - set(scene.images))
    if unknown or not near:
        names = f"the map holds no image {', '.join(unknown)}" if unknown else "positions alone need images that they are near"
        raise InputError(names, remedy=Remedy("give", "localize.near"))
    if not len(keypoints):
        raise InputError("there are no positions to localize")
    problem = PositionProblem(
        camera=camera,
        keypoints=keypoints,
        gravity=gravity,
        candidates=NO_CANDIDATES,
        scene=scene,
        names=list(dict.fromkeys(near)),
        options=options.upright,
        seed=options.seed,
    )
    words = WordOptions(
        max_error_px=options.max_error_px,
        line_error_px=options.line_error_px,
        min_inliers=options.min_inliers,
        max_log10_nfa=options.max_log10_nfa,
        max_turn_deg=options.max_turn_deg,
        upright=options.upright,
        search=replace(GroupedOptions(seed=options.seed), max_seconds=options.max_seconds),
    )
    return localize_upright(problem, np.zeros(len(keypoints)), options=words, progress=progress)

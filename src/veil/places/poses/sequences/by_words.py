"""Queries of several frames in words with gravity, or of their positions alone: candidates, search, and the mirror's test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64

from veil.errors import InputError, Remedy
from veil.forms import Subsets
from veil.matching.inverted_index import Candidates, InvertedIndex, unshared_log_odds, vocabulary_candidates
from veil.matching.retrieval import most_similar
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.mirror import mirrored_down, unless_mirrored
from veil.places.poses.options import PositionOptions, WordOptions
from veil.places.poses.sequences.by_distance import mirrored_frames
from veil.places.poses.sequences.frames import Frames
from veil.places.poses.sequences.upright import localize_upright_frames
from veil.places.poses.sequences.upright_problem import frames_problem
from veil.places.poses.upright import NO_CANDIDATES
from veil.progress import Progress
from veil.scene import Scene

Gravity = Sequence[Float64[np.ndarray, "3"]]


def localize_words_of_frames(
    frames: Frames,
    keypoints: Float32[np.ndarray, "features 2"],
    form: Subsets,
    scene: Scene,
    vocabulary: InvertedIndex,
    *,
    gravity: Gravity,
    near: Sequence[str] | None = None,
    options: WordOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a rig from frames in words, or say why no pose is better than chance.

    - `frames`: cameras, motions in units of the map, and the frame of each feature; focal lengths are known.
    - `keypoints`, `form`: positions in pixels and words of the features of all frames.
    - `scene`, `vocabulary`: the map, whose gravity is known, and its index of the words.
    - `gravity`: unit vector of down in the camera of each frame.
    - `near`: names of the map images that the frames are known to be near, in place of those that are retrieved.
    - `options`: thresholds, retrieval and search, as for one image.

    The answer's pose is that of the rig. Raises InputError for names of images that the map does not hold.
    """

    def answer(
        frames: Frames, keypoints: np.ndarray, gravity: Gravity, index: InvertedIndex, options: WordOptions
    ) -> Localization | NoPose:
        candidates = vocabulary_candidates(form, index)
        ranked = [index.image_names[row] for row in most_similar(form, index, len(index.image_names))]
        names = ranked[: options.retrieved] if near is None else _known(near, scene)
        here = _seen_by(candidates, scene, names)
        fields = {"scene": scene, "names": names, "options": options.upright, "seed": options.seed}
        problem = frames_problem(frames, gravity, keypoints=keypoints, candidates=here, **fields)
        return localize_upright_frames(problem, unshared_log_odds(form, index), options=options, progress=progress)

    def turned_over() -> float | None:
        if vocabulary.mirrored is None:
            return None
        turned, positions = mirrored_frames(frames, keypoints)
        at_once = replace(options, upright=options.upright.at_once)
        return answer(turned, positions, [mirrored_down(one) for one in gravity], vocabulary.mirrored, at_once).log10_nfa

    return unless_mirrored(answer(frames, keypoints, gravity, vocabulary, options), turned_over)


def localize_positions_of_frames(
    frames: Frames,
    keypoints: Float32[np.ndarray, "features 2"],
    scene: Scene,
    *,
    gravity: Gravity,
    near: Sequence[str],
    options: PositionOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a rig from keypoint positions and gravity of its frames alone, or say why none is beyond chance.

    The arguments are those of `localize_words_of_frames`; no word is looked at, and `near` names the images of the map that
    all frames are known to be near. Raises InputError where it names none of the map.
    """
    if not near:
        raise InputError("positions alone need images that they are near", remedy=Remedy("give", "localize.near"))
    shown = {name: getattr(options, name) for name in ("max_error_px", "line_error_px", "min_inliers", "max_log10_nfa")}
    words = WordOptions(
        **shown,
        max_turn_deg=options.max_turn_deg,
        upright=options.upright,
        seed=options.seed,
        max_seconds=options.max_seconds,
    )
    fields = {"scene": scene, "names": _known(near, scene), "options": options.upright, "seed": options.seed}
    unshared = np.zeros(len(keypoints))

    def answer(frames: Frames, keypoints: np.ndarray, gravity: Gravity) -> Localization | NoPose:
        problem = frames_problem(frames, gravity, keypoints=keypoints, candidates=NO_CANDIDATES, **fields)
        return localize_upright_frames(problem, unshared, options=words, progress=progress)

    def turned_over() -> float:
        turned, positions = mirrored_frames(frames, keypoints)
        return answer(turned, positions, [mirrored_down(one) for one in gravity]).log10_nfa

    return unless_mirrored(answer(frames, keypoints, gravity), turned_over)


def _known(near: Sequence[str], scene: Scene) -> list[str]:
    """The names once each. Raises InputError for one that the map does not hold."""
    unknown = sorted(set(near) - set(scene.images))
    if unknown or not near:
        raise InputError(f"the map holds no image {', '.join(unknown)}" if unknown else "no image of the map is near")
    return list(dict.fromkeys(near))


def _seen_by(candidates: Candidates, scene: Scene, names: Sequence[str]) -> Candidates:
    """The candidates whose points some images see."""
    kept = np.zeros(len(scene.points), dtype=bool)
    for name in names:
        kept[scene.images[name].point_rows] = True
    return candidates.take(kept[candidates.point_rows])

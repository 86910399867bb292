"""Settings of a map of positions: the callers' options, the ratios of matches, and COLMAP's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veil.matching.ratio import WRONG_SHARE, passed_by, wrong_ratios
from veil.places.maps.colmap import StageLimits
from veil.places.maps.images import MapImage, OnDemand

# Least number of inliers of a two-view geometry from COLMAP's RANSAC, whose default is 15; evidence decides about the pair.
LEAST_INLIERS = 8
WORD_TRIALS = 30_000  # of RANSAC, at most, for matches of words
# Share of wrong matches that passes the ratio of the first verification, where images have many features.
STRICT_SHARE = 0.001
# Number of wrong matches of a feature-poor pair that may pass the looser ratio: its geometry bears them, and needs all others.
WRONG_MATCHES = 10
# Mean number of features of an image from which COLMAP's numbers of inliers hold, and least share of them for fewer features.
MANY_FEATURES, LEAST_SHARE = 1000, 0.5
# Features count as chosen for a map if this share of them or more has a verified match.
CHOSEN_SHARE = 1 / 3
# COLMAP's least numbers of inliers of the first pair of a model, and of the pose of an image.
FIRST_PAIR, NEXT_POSE = 100, 30
# Limits in pixels of the last adjustment of a map, and the least angle at its points.
LAST_PX, MIN_ANGLE_DEG = (4.0,), 1.5
# Iterations of that adjustment, at most. Of weakly determined focal lengths it needs hundreds, of others some ten.
MOST_ITERATIONS = 500
# Mapping more images than this may take longer, in proportion, before it counts as hanging.
IMAGES_AT_ONCE = 50
# Settings of a bundle adjustment of a whole model, which refines the cameras that are not held.
ADJUSTMENT: Mapping[str, Any] = {
    "refine_focal_length": True,
    "refine_extra_params": True,
    "print_summary": False,
    "ceres.solver_options.function_tolerance": 1e-6,
    "ceres.solver_options.max_num_iterations": MOST_ITERATIONS,
}
# Trials of RANSAC in the second verification, whose pairs are mostly wrong: enough if a quarter of the matches is right.
MORE_TRIALS = 2_000


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """Options of a map of positions.

    Models of fewer than `min_model_images` images are dropped; one `seed` serves verification and mapping. `max_ratio` is the
    ratio of the first and of the second matching: None takes the ratio that one in a thousand wrong matches passes
    (`veil.matching.ratio.wrong_ratios`), and then a looser one for images with few inliers (`wrong_share`); 1 keeps all.
    `limits` are those of each stage of COLMAP. `global_mapper` takes COLMAP's global mapper in place of the incremental one; it
    refines focal lengths only if none is known. The incremental mapper registers an image whose pose explains
    `least_pose_inliers` of its features or more (None: what suits their number, see `least_inliers`).
    """

    min_model_images: int = 3
    seed: int = 0
    max_ratio: float | None = None
    limits: StageLimits = field(default_factory=StageLimits)
    global_mapper: bool = False
    least_pose_inliers: int | None = None


def wrong_share(features: float) -> float:
    """Share of wrong matches that passes the looser ratio, for images of a mean number of features.

    It is one in a hundred, and for less than a thousand features the one by which `WRONG_MATCHES` of a pair pass. Theory:
    mapping.md#few-features.
    """
    return max(WRONG_SHARE, min(0.5, WRONG_MATCHES / max(features, 1.0)))


def least_inliers(usual: int, features: float, matched_share: float) -> int:
    """Least number of inliers for a mean number of features, where it is `usual` for many (mapping.md#few-features).

    It is less only where the features were chosen for a map, so that a large share of them has a verified match. Few features
    of which few match leave cameras where a mapper happens to put them.
    """
    if matched_share < CHOSEN_SHARE:
        return usual
    return round(usual * min(1.0, max(LEAST_SHARE, features / MANY_FEATURES)))


def mean_features(images: Mapping[str, MapImage]) -> float:
    """Mean number of features of images, infinite without any and for words, whose matches are no nearest neighbors."""
    if not images or any(image.is_in_words for image in images.values()):
        return math.inf
    return sum(len(image.keypoints) for image in images.values()) / len(images)


def first_ratios(images: Mapping[str, MapImage], pairs: Sequence[tuple[str, str]], options: MapOptions) -> tuple[float, ...]:
    """Ratios that verification uses one after the other; empty for words, which have no distances, unless one is given."""
    if any(image.is_in_words for image in images.values()):
        return () if options.max_ratio in (None, 1) else (float(options.max_ratio or 1),)
    if options.max_ratio is not None:
        return (options.max_ratio,)
    wrong = wrong_ratios(OnDemand(images, lambda _, image: image.form), pairs)
    loose = passed_by(wrong, wrong_share(mean_features(images)))
    strict = min(passed_by(wrong, STRICT_SHARE), loose)  # small samples give no strict ratio
    return (strict, loose) if strict < loose else (loose,)


def verification_settings(images: Mapping[str, MapImage], *, again: bool) -> dict[str, Any]:
    """Settings of COLMAP's two-view geometries; `again` is for pairs of images most of which are wrong."""
    settings: dict[str, Any] = {"min_num_inliers": LEAST_INLIERS, "compute_relative_pose": True}
    if again:
        settings["ransac.max_num_trials"] = MORE_TRIALS
    if any(image.is_in_words for image in images.values()):
        # Shared words are mostly coincidences: fewer of them are right than COLMAP expects of matches.
        settings |= {"ransac.min_inlier_ratio": 0.05, "ransac.max_num_trials": WORD_TRIALS}
    return settings


def pipeline_settings(
    names: set[str], images: Mapping[str, MapImage], options: MapOptions, matched_share: float
) -> dict[str, Any]:
    """Settings of COLMAP's mapper for the images `names`; `matched_share` of the features of each have verified matches.

    Cameras of known focal length are listed as `constant_cameras` in the request, and are held whatever is refined here.
    """
    guessed = any(not images[name].camera.focal_is_known for name in names)
    features = mean_features({name: images[name] for name in names})
    least = options.least_pose_inliers
    settings: dict[str, Any] = {
        "extract_colors": False,  # there are no photographs here
        "min_model_size": min(options.min_model_images, len(names)),
        "multiple_models": len(names) > options.min_model_images,
        "min_num_matches": LEAST_INLIERS,
        "ba_refine_focal_length": guessed,
        "ba_refine_extra_params": guessed,
        "mapper.init_min_num_inliers": least_inliers(FIRST_PAIR, features, matched_share),
        "mapper.abs_pose_min_num_inliers": least_inliers(NEXT_POSE, features, matched_share) if least is None else least,
        "mapper.abs_pose_refine_focal_length": guessed,
        "mapper.abs_pose_refine_extra_params": guessed,
    }
    if len(names) < len(images):
        settings["image_names"] = sorted(names)
    return settings


def global_settings(names: set[str], images: Mapping[str, MapImage], options: MapOptions) -> dict[str, Any]:
    """Settings of COLMAP's global mapper for the images `names`, which cannot hold single cameras."""
    guessed = not any(images[name].camera.focal_is_known for name in names)
    settings: dict[str, Any] = {
        "min_model_size": min(options.min_model_images, len(names)),
        "multiple_models": len(names) > options.min_model_images,
        "min_num_matches": LEAST_INLIERS,
        "mapper.bundle_adjustment.refine_focal_length": guessed,
        "mapper.bundle_adjustment.refine_extra_params": guessed,
    }
    if len(names) < len(images):
        settings["image_names"] = sorted(names)
    return settings

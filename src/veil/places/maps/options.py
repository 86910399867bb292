"""Settings of a map of positions: the callers' options, the ratios of matches, and COLMAP's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veil.matching.ratio import WRONG_SHARE, passed_by, wrong_ratios
from veil.places.maps.colmap import StageLimits
from veil.places.maps.images import MapImage, OnDemand

# Least number of inliers of a two-view geometry from COLMAP's RANSAC, whose default is 15; evidence decides about the pair.
LEAST_INLIERS = 8
WORD_TRIALS = 30_000  # of RANSAC, at most, for matches of words
# Share of wrong matches that passes the ratio of the first verification.
STRICT_SHARE = 0.001
# Limits in pixels of the last adjustment of a map, and the least angle at its points.
LAST_PX, MIN_ANGLE_DEG = (4.0,), 1.5
# Trials of RANSAC in the second verification, whose pairs are mostly wrong: enough if a quarter of the matches is right.
MORE_TRIALS = 2_000


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """Options of a map of positions.

    Models of fewer than `min_model_images` images are dropped; one `seed` serves verification and mapping. `max_ratio` is the
    ratio of the first and of the second matching: None takes the ratio that one in a thousand wrong matches passes
    (`veil.matching.ratio.wrong_ratios`), and then that of one in a hundred for images with few inliers; 1 keeps all matches.
    `limits` are those of each stage of COLMAP. `global_mapper` takes COLMAP's global mapper in place of the incremental one; it
    refines focal lengths only if none is known. The incremental mapper registers an image whose pose explains
    `least_pose_inliers` of its features or more (COLMAP's default).
    """

    min_model_images: int = 3
    seed: int = 0
    max_ratio: float | None = None
    limits: StageLimits = field(default_factory=StageLimits)
    global_mapper: bool = False
    least_pose_inliers: int = 30


def first_ratios(images: Mapping[str, MapImage], pairs: Sequence[tuple[str, str]], options: MapOptions) -> tuple[float, ...]:
    """Ratios that verification uses one after the other; empty for words, which have no distances, unless one is given."""
    if any(image.is_in_words for image in images.values()):
        return () if options.max_ratio in (None, 1) else (float(options.max_ratio or 1),)
    if options.max_ratio is not None:
        return (options.max_ratio,)
    wrong = wrong_ratios(OnDemand(images, lambda _, image: image.form), pairs)
    loose = passed_by(wrong, WRONG_SHARE)
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


def pipeline_settings(names: set[str], images: Mapping[str, MapImage], options: MapOptions) -> dict[str, Any]:
    """Settings of COLMAP's mapper for the images `names`.

    Cameras of known focal length are listed as `constant_cameras` in the request, and are held whatever is refined here.
    """
    guessed = any(not images[name].camera.focal_is_known for name in names)
    settings: dict[str, Any] = {
        "extract_colors": False,  # there are no photographs here
        "min_model_size": min(options.min_model_images, len(names)),
        "multiple_models": len(names) > options.min_model_images,
        "min_num_matches": LEAST_INLIERS,
        "ba_refine_focal_length": guessed,
        "ba_refine_extra_params": guessed,
        "mapper.abs_pose_min_num_inliers": options.least_pose_inliers,
        "mapper.abs_pose_refine_focal_length": guessed,
        "mapper.abs_pose_refine_extra_params": guessed,
    }
    if len(names) < len(images):
        settings["image_names"] = sorted(names)
    return settings


def adjustment_settings(*, free: bool) -> dict[str, Any]:
    """Settings of a bundle adjustment of a whole model; `free` lets it refine the cameras that are not held."""
    return {
        "refine_focal_length": free,
        "refine_extra_params": free,
        "print_summary": False,
        "ceres.solver_options.function_tolerance": 1e-6,
        "ceres.solver_options.max_num_iterations": 50,
    }


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

"""Removal of images from a map: their features, the points that too few others see, and adjustment of what is left.

Nothing of a removed image stays but its influence on where the others were: their adjustment begins from the poses and points
that it helped to find (docs/theory/mapping.md#maps-that-shrink).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from veil.errors import InputError
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_poses
from veil.one_line import one_line
from veil.places.maps.check import step_ratio, thinnest_cut
from veil.places.maps.colmap import Colmap, StageLimits, Stopped
from veil.places.maps.images import NoMap
from veil.places.maps.lines.stored_maps import adjusted_scene
from veil.places.maps.options import IMAGES_AT_ONCE
from veil.places.maps.scenes import images_of, model_of, read_model, restricted, scene_of
from veil.places.maps.uncertainty import position_uncertainty
from veil.scene import MIN_NECK, LineMapCheck, MapCheck, Scene

# Images that must see a point: two rays meet, and of lines four leave one check (LineMapOptions.min_lines).
LEAST_OF_POSITIONS, LEAST_OF_LINES = 2, 4
# Rounds of adjustment, and what COLMAP's mapper leaves out of a model after each: larger errors, and smaller angles of rays.
ROUNDS, MAX_ERROR_PX, MIN_ANGLE_DEG = 2, 4.0, 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Removal:
    """A map without some images, and the record of what went.

    - `scene`: the map that is left.
    - `features`: by name of each removed image, how many features it had in the map; 0 for one that was only named in it.
    - `points`: number of points that went.
    - `features_of_others`: number of features of the other images that went with these points.
    - `left_out`: by name of each other image that went too, the reason.
    - `check`: how sure the map is that is left; None if the map had no record.
    - `unadjusted`: why what is left was not adjusted; None if it was.
    """

    scene: Scene
    features: Mapping[str, int]
    points: int
    features_of_others: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    check: MapCheck | LineMapCheck | None = None
    unadjusted: str | None = None

    __repr__ = one_line


def require_named(names: Iterable[str], scenes: Collection[Scene]) -> None:
    """Raise InputError unless every name is that of an image of one of the scenes, or of one that was left out of them."""
    known = {name for scene in scenes for name in named_in(scene)}
    for name in names:
        if name in known:
            continue
        near = get_close_matches(name, sorted(known), n=3, cutoff=0.5) or sorted(known)[:3]
        raise InputError(f"the map has no image {name!r}; names like it are {', '.join(near)}")


def named_in(scene: Scene) -> set[str]:
    """Names of the images of a map, and of those that its record says were left out."""
    return {*scene.images, *(scene.check.left_out if scene.check is not None else {})}


def remove_images(scene: Scene, names: Collection[str], *, workdir: Path, limits: StageLimits | None = None) -> Removal | NoMap:
    """The map without the images `names`, adjusted, or the reason why no map is left.

    - `names`: of images of the map, or of images that its record says were left out; others are passed over.
    - `workdir`: an empty folder for COLMAP's models of what is left.
    - `limits`: of the adjustment of a map of positions.

    Points that fewer than two of the other images see go too (four of a map from lines, one line of which must not run along
    gravity), and images that then hang on by fewer than `MIN_NECK` points, or by none.
    """
    gone = {name: len(scene.images[name].form) if name in scene.images else 0 for name in names if name in named_in(scene)}
    if not set(gone) & set(scene.images):
        kept = replace(scene, check=_forgotten(scene.check, gone))
        return Removal(scene=kept, features=gone, points=0, features_of_others=0, check=kept.check)
    least = LEAST_OF_LINES if _of_lines(scene) else LEAST_OF_POSITIONS
    left_out: dict[str, str] = {}
    held = _held(scene, frozenset(set(scene.images) - set(gone)), least, left_out)
    if isinstance(held, NoMap):
        return held
    adjusted, check, unadjusted = _adjusted(held, workdir, limits or StageLimits(), least)
    again = _held(adjusted, frozenset(adjusted.images), least, left_out)
    if isinstance(again, NoMap):
        return again
    left = _in_frame_of(scene, replace(again, measured_down=scene.measured_down))
    left_out |= {name: "none of its points is left" for name in set(held.images) - set(left.images) - set(left_out)}
    if scene.check is not None:
        check = _renewed(_forgotten(scene.check, gone), left, left_out, len(set(scene.images) - set(left.images)))
    if check is not None and check.doubts and (scene.check is None or not scene.check.doubts):
        return NoMap(f"what is left cannot be trusted: {'; '.join(check.doubts)}", left_out)
    others = sum(len(image.form) for name, image in scene.images.items() if name not in gone) - left.observation_count
    return Removal(
        scene=replace(left, check=check if isinstance(check, MapCheck) else None),
        features=gone,
        points=len(scene.points) - len(left.points),
        features_of_others=others,
        left_out=left_out,
        check=check,
        unadjusted=unadjusted,
    )


def _of_lines(scene: Scene) -> bool:
    """Whether the images of the map hide their positions."""
    return any(image.lines is not None for image in scene.images.values())


def _held(scene: Scene, names: frozenset[str], least: int, left_out: dict[str, str]) -> Scene | NoMap:
    """Scene of the images `names` that hang together; adds the reason for each other one to `left_out`.

    A part that fewer points hold than `MIN_NECK` goes, unless the whole scene had as thin a neck already.
    """
    whole = thinnest_cut(scene)
    limit = MIN_NECK if whole is None else min(MIN_NECK, whole.points)
    while len(names) >= least and (smaller := restricted(scene, names, least=least)) is not None:
        if bare := frozenset(name for name in names if len(smaller.images[name].form) == 0):
            left_out |= dict.fromkeys(sorted(bare), "none of its points is left")
            names -= bare
            continue
        cut = thinnest_cut(smaller)
        if cut is None or cut.points >= limit:
            return smaller
        kept = max(cut.sides, key=len)
        left_out |= dict.fromkeys(sorted(names - kept), f"only {cut.points} points hold it to what is left")
        names = kept
    return NoMap(
        f"no map of {least} images or more that hang together is left; delete the map's folder, or map the other images anew",
        left_out,
    )


def _adjusted(
    scene: Scene, workdir: Path, limits: StageLimits, least: int
) -> tuple[Scene, MapCheck | LineMapCheck | None, str | None]:
    """The scene adjusted, the check of a map from lines, and the reason if it was not adjusted."""
    if least == LEAST_OF_LINES:
        return *adjusted_scene(scene), None

    model, output = workdir / "left", workdir / "adjusted"
    model.mkdir()
    output.mkdir()
    model_of(scene).write(model)
    request = {
        "do": "adjust",
        "model": str(model),
        "output": str(output),
        "constant_cameras": list(range(1, len(scene.images) + 1)),  # `model_of` gives each image a camera of its own
        "options": {"refine_focal_length": False, "refine_extra_params": False, "print_summary": False},
        "limits_px": [MAX_ERROR_PX] * ROUNDS,
        "min_angle_deg": MIN_ANGLE_DEG,
    }
    with Colmap(limits) as colmap:
        answer = colmap.run(request, work=max(1.0, len(scene.images) / IMAGES_AT_ONCE))
    if isinstance(answer, Stopped):
        return scene, None, answer.reason
    reconstruction = read_model(output)
    return (scene_of(reconstruction, images_of(scene)) if reconstruction.num_points3D() else scene), None, None


def _in_frame_of(before: Scene, after: Scene) -> Scene:
    """The scene `after` in the frame and scale of `before`, as its cameras tell: adjustment leaves both to drift."""
    names = sorted(after.images)
    try:
        similarity = align_poses(
            [after.images[name].cam_from_world for name in names], [before.images[name].cam_from_world for name in names]
        )
    except InputError:  # one center: nothing to align by
        return after
    images = {
        name: replace(image, cam_from_world=_moved(image.cam_from_world, similarity)) for name, image in after.images.items()
    }
    return replace(after, images=images, points=similarity.apply(after.points))


def _moved(cam_from_a: Rigid, b_from_a: Similarity) -> Rigid:
    """The pose cam_from_b of a camera, in units of b."""
    rotation = cam_from_a.rotation @ b_from_a.rotation.T
    return Rigid(rotation=rotation, translation=-rotation @ b_from_a.apply(cam_from_a.center))


def _forgotten(check: MapCheck | None, names: Collection[str]) -> MapCheck | None:
    """The record without the images `names`, also where the reason for another image names them."""
    if check is None:
        return None
    left_out = {name: reason for name, reason in check.left_out.items() if name not in names}
    for gone in sorted(names, key=len, reverse=True):
        left_out = {name: reason.replace(gone, "a removed image") for name, reason in left_out.items()}
    focals = (replace(focal, names=tuple(n for n in focal.names if n not in names)) for focal in check.contradicted_focals)
    return replace(check, left_out=left_out, contradicted_focals=tuple(focals))


def _renewed(check: MapCheck | None, scene: Scene, left_out: Mapping[str, str], gone: int) -> MapCheck | None:
    """The record of a map that `gone` images left, with what can be told of the map by itself told anew."""
    if check is None:
        return None
    cut = thinnest_cut(scene)
    known = dict.fromkeys(scene.images, check.focal_deviation) if check.focal_deviation else None
    return replace(
        check,
        neck=None if cut is None or check.neck is None else cut.points,
        uncertainty=None if check.uncertainty is None else position_uncertainty(scene, known),
        step_ratio=step_ratio(scene),
        left_out={**check.left_out, **left_out},
        removed=check.removed + gone,
    )

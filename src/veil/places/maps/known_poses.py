"""Maps of images whose poses are known: verified matches are triangulated, and the poses stay as they are.

Poses from elsewhere are a claim. It is compared with the pairs of images as any map is, but for what only says how well the
matches alone would have fixed the poses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from veil.errors import InputError
from veil.geometry.rigid import Rigid
from veil.matching.neighbors import Matches
from veil.places.maps.agreement import explained_shares
from veil.places.maps.check import checked
from veil.places.maps.colmap import Colmap, Stopped
from veil.places.maps.colmap.database import camera_ids
from veil.places.maps.images import MapImage, NoMap, Pair, impossible, more_matches
from veil.places.maps.options import IMAGES_AT_ONCE, LEAST_INLIERS, MapOptions
from veil.places.maps.scenes import add_image, firm, read_model, scene_of
from veil.places.maps.verification import Verification
from veil.scene import Scene

# An image with fewer points than this is in no map: nothing there confirms its pose.
LEAST_POINTS = 15
FEW_POINTS = "too few of its matches agree with the poses"


def map_at_poses(
    images: Mapping[str, MapImage],
    cam_from_world: Mapping[str, Rigid],
    matches: Mapping[Pair, Matches],
    *,
    workdir: Path,
    options: MapOptions | None = None,
) -> Scene | NoMap:
    """Scene of images at known poses, with points from their matches, or the reason why there is none.

    `images`, with the cameras that belong to the poses, and `cam_from_world` are given by name, `matches` by pairs of names.
    `workdir` is an empty folder for COLMAP's files. Raises InputError if there are fewer than two images, VeilError if COLMAP
    fails.
    """
    options = options or MapOptions()
    if len(images) < 2:
        raise InputError(f"a map needs at least two images, got {len(images)}")
    left_out = impossible(images)
    images = {name: image for name, image in images.items() if name not in left_out}
    matches = {pair: matched for pair, matched in matches.items() if not {*pair} & set(left_out)}
    with Colmap(options.limits) as colmap:
        verification = Verification(images, options, workdir, colmap)
        if (stopped := verification.run(matches)) is not None:
            return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out)
        if not verification.pairs:
            return NoMap(
                f"none of {len(matches)} pairs of images has matches that chance does not explain",
                left_out,
                remedy=more_matches(images),
            )
        verification.restore_dropped()
        scene = _triangulated(images, cam_from_world, verification, workdir, options, colmap)
    if not isinstance(scene, Scene):
        return NoMap(scene, left_out)
    shares = explained_shares(scene, images, verification.pairs)
    check = checked(scene, shares, set(images), verification.pairs, {}, left_out, missing=FEW_POINTS, poses_given=True)
    if check.doubts:
        return NoMap(f"the poses and the images contradict each other: {'; '.join(check.doubts)}", check.left_out, check)
    return replace(scene, check=check)


def _triangulated(
    images: Mapping[str, MapImage],
    cam_from_world: Mapping[str, Rigid],
    verification: Verification,
    workdir: Path,
    options: MapOptions,
    colmap: Colmap,
) -> Scene | str:
    """The scene of the images that verified pairs join, at their poses, or a sentence that says why there is none."""
    from veil.colmap import pycolmap

    model, cameras = pycolmap.Reconstruction(), camera_ids(verification.database)
    for name in sorted({name for pair in verification.pairs for name in pair}):
        image, image_id = images[name], verification.image_ids[name]
        add_image(model, name, image.camera, cam_from_world[name], image.keypoints, image_id, cameras[name])
    start, output = workdir / "known", workdir / "triangulated"
    for folder in (start, output):
        folder.mkdir()
    model.write(start)
    request = {
        "do": "complete",
        "database": str(verification.database),
        "model": str(start),
        "output": str(output),
        "seed": options.seed,
        "options": {"min_num_matches": LEAST_INLIERS},
    }
    answer = colmap.run(request, work=max(1.0, len(images) / IMAGES_AT_ONCE))
    if isinstance(answer, Stopped):
        return f"COLMAP's triangulation was stopped: {answer.reason}"
    made = read_model(output)
    if not made.num_points3D():
        return "no match of the images agrees with the poses"
    return firm(scene_of(made, images), LEAST_POINTS) or "too few matches of the images agree with the poses"

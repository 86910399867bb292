"""Images that no pair brought into a map, added by their poses in it (docs/theory/mapping.md#images-added-by-their-poses).

Of the matches of a protected pair few are right, often too few to tell from chance. A point of a map was seen several times, so
that a pose in the map is found where no pair is: what it explains are matches of pairs, nearly all of them right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from veil.errors import InputError, SpaceError
from veil.forms import Subsets
from veil.matching import Matches
from veil.places.held_map import Map, make_point_index, point_index_of, ranked_images
from veil.places.localization import localize_loaded
from veil.places.maps import MapImage, MapOptions
from veil.places.maps.check import TOO_FEW
from veil.places.maps.growth import TOO_WEAK, grow_map
from veil.places.maps.images import Pair
from veil.places.maps.options import LEAST_INLIERS
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization
from veil.places.poses.options import LocalizeOptions
from veil.progress import Progress
from veil.scene import MIN_NECK, Scene

# Maps in which an image is looked for, and how often images are looked for in maps that grew.
MAPS_TRIED, ROUNDS = 2, 3
# Numbers of images of a map that an image is matched with, one after the other: right matches are few, and among those with
# more images fewer still. Without an index, maps of no more than this number are searched whole.
RETRIEVED, SEARCHED_WHOLE = (4, 16, 64), 100


def with_located(
    maps: Sequence[Map],
    images: Mapping[str, LoadedImage],
    placed: Mapping[str, MapImage],
    matches: Mapping[Pair, Matches],
    *,
    reasons: Mapping[str, str],
    workdir: Path,
    options: MapOptions,
    before: Map | None = None,
    threads: int = 1,
    gravity: Mapping[str, np.ndarray] | None = None,
    progress: Progress | None = None,
) -> tuple[Scene, ...]:
    """The maps with those images that are in none, but have a pose in exactly one of them.

    - `maps`: of positions, no image in two of them.
    - `images`, `placed`: all images by name, and the same for the mapper.
    - `matches`: of pairs of images; an image is looked for in the two maps to which its pairs of most matches lead.
    - `reasons`: why images are in no map; one that pairs contradict is not looked for.
    - `workdir`: a folder for the mapper's files, with none of an earlier call.
    - `before`: the map that they grew from, whose index they take over as far as they can.
    - `options`, `gravity`: as for `grow_map`; `threads` is the number of images that one is matched with at a time.
    - `progress`: called with the number of images that were looked for, and of all.

    Raises VeilError if COLMAP fails.
    """
    searched, changed = [_Searched(where, None if where is before else before) for where in maps], set(range(len(maps)))
    poses: dict[str, dict[int, Localization]] = {}
    # What the pose of an image rests on was weighed already.
    least = options.least_pose_inliers
    loose = replace(options, least_pose_inliers=MIN_NECK if least is None else min(least, MIN_NECK))
    for number in range(ROUNDS):
        scenes = [one.where.scene for one in searched]
        mapped = {name for scene in scenes for name in scene.images}
        left = [name for name in sorted(images) if name not in mapped and reasons.get(name, TOO_FEW) in (TOO_FEW, TOO_WEAK)]
        asked = _maps_to_try(left, scenes, matches)
        for done, name in enumerate(left):
            if progress is not None:
                progress(done, len(left))
            for where in sorted(asked[name] & changed):
                answer = searched[where].located(images[name], options.seed, threads)
                poses.setdefault(name, {}).pop(where, None)
                if answer is not None:
                    poses[name][where] = answer
        changed = set()
        for where, scene in enumerate(scenes):
            # What has a pose in two maps shows what looks alike in both.
            answers = {name: poses[name][where] for name in left if {*poses.get(name, ())} == {where}}
            if not answers:
                continue
            folder = workdir / f"located-{number + 1}-{where + 1}"
            folder.mkdir()
            rows = {name: (answer.keypoint_rows, answer.point_rows) for name, answer in answers.items()}
            own = None if gravity is None else {name: gravity[name] for name in answers if name in gravity}
            new = {name: placed[name] for name in answers}
            grown = grow_map(scene, new, matches_of_poses(scene, rows), workdir=folder, options=loose, gravity=own)
            if isinstance(grown, Scene):
                searched[where] = _Searched(Map(scene=grown), before=searched[where].where)
                changed.add(where)
        if not changed:
            break
    scenes = [one.where.scene for one in searched]
    return tuple(_with_its_reasons(scene, scenes) for scene in scenes)


def _maps_to_try(left: Sequence[str], scenes: Sequence[Scene], matches: Mapping[Pair, Matches]) -> dict[str, set[int]]:
    """For each image that is left, the maps of the images that it has most matches with; all maps, if these are few."""
    if len(scenes) <= MAPS_TRIED:
        return {name: {*range(len(scenes))} for name in left}
    map_of = {name: number for number, scene in enumerate(scenes) for name in scene.images}
    most: dict[str, dict[int, int]] = {name: {} for name in left}
    for a, b in matches:
        for name, other in ((a, b), (b, a)):
            if name in most and other in map_of:
                where = map_of[other]
                most[name][where] = max(most[name].get(where, 0), len(matches[a, b]))
    return {name: {*sorted(counts, key=lambda where: -counts[where])[:MAPS_TRIED]} for name, counts in most.items()}


@dataclass(frozen=True)
class _Searched:
    """A map in which images are looked for, and the one that it grew from, whose index it takes over as far as it can."""

    where: Map
    before: Map | None = None

    def located(self, image: LoadedImage, seed: int, threads: int) -> Localization | None:
        """The pose of an image in the map; None if there is none, its words say nothing, or no index serves a large map."""
        if isinstance(image.form, Subsets):
            if image.form.mechanism.epsilon == 0:
                return None
        else:
            self._require_index(threads)
            served = ranked_images(self.where, image.form.take(np.arange(0)), threads=threads) is not None
            if not served and len(self.where.scene.images) > SEARCHED_WHOLE:
                return None
        answer = localize_loaded(image, self.where, options=LocalizeOptions(retrieved=RETRIEVED, workers=threads, seed=seed))
        return answer if isinstance(answer, Localization) else None

    def _require_index(self, threads: int) -> None:
        """Make the index of the map, if it has none and the bundled codebook is that of its descriptors."""
        if point_index_of(self.where) is None:
            with suppress(InputError, SpaceError):
                make_point_index(
                    self.where, known=None if self.before is None else point_index_of(self.before), threads=threads
                )


def _with_its_reasons(scene: Scene, scenes: Sequence[Scene]) -> Scene:
    """The map, whose check gives no reasons for images that are in one of the maps."""
    mapped = {name for one in scenes for name in one.images}
    if scene.check is None or not mapped & set(scene.check.left_out):
        return scene
    left_out = {name: reason for name, reason in scene.check.left_out.items() if name not in mapped}
    return replace(scene, check=replace(scene.check, left_out=left_out))


def matches_of_poses(
    base: Scene, shown: Mapping[str, tuple[Int64[np.ndarray, "inliers"], Int64[np.ndarray, "inliers"]]]
) -> dict[Pair, Matches]:
    """Matches of each new image with those images of the map that see the same points, as far as they can be verified.

    `shown` holds, by the new images' names, rows of their features and of the map's points that their poses bring together.
    Features of the map's images are numbered as they are in it. A match has no distance: all are zero.
    """
    matches: dict[Pair, Matches] = {}
    for name, (features, points) in shown.items():
        for other, image in base.images.items():
            _, theirs, own = np.intersect1d(image.point_rows, points, return_indices=True)
            if len(own) >= LEAST_INLIERS:
                indices = np.stack([theirs, features[own]], axis=1).astype(np.int64)
                zeros = np.zeros(len(own))
                matches[other, name] = Matches(indices=indices, distances=zeros, ratios=zeros)
    return matches

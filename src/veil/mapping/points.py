"""Structure-from-motion from positions through COLMAP, from matches of raw or private features, checked before it is accepted.

Pairs are verified by their evidence against chance, the mapper runs in a process that is watched, and the map is compared with
its own pairs: what contradicts them is left out and named, or there is no map (docs/theory/mapping.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.map_check import MIN_NECK, MapCheck
from veil.mapping.agreement import Pair, consistent_groups, explained_shares
from veil.mapping.check import thinnest_cut
from veil.mapping.colmap import Colmap, Stopped
from veil.mapping.images import MapImage, impossible
from veil.mapping.options import MapOptions, global_settings, pipeline_settings
from veil.mapping.pair_check import agreement_weights, checked
from veil.mapping.scenes import restricted, scene_of
from veil.mapping.verification import Verification
from veil.mapping.verified import VerifiedPair
from veil.matching.neighbors import Matches
from veil.one_line import one_line
from veil.progress import Progress
from veil.scene import Scene

# Runs of mapping, each anew without the images that stopped the run before or contradicted it.
ATTEMPTS = 5
# Mapping more images than this may take longer, in proportion, before it counts as hanging.
IMAGES_AT_ONCE = 50


@dataclass(frozen=True)
class NoMap:
    """The answer where no map could be built.

    - `reason`: a sentence that says why, and what may help.
    - `left_out`: by image name, why single images could not be mapped.
    - `check`: numbers that speak against a map that was built and refused; None if there was none.
    """

    reason: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    check: MapCheck | None = None

    __repr__ = one_line


def build_map(
    images: Mapping[str, MapImage],
    matches: Mapping[tuple[str, str], Matches],
    *,
    workdir: Path,
    options: MapOptions | None = None,
    gravity: Mapping[str, Float64[np.ndarray, "3"]] | None = None,
    progress: Progress | None = None,
) -> Scene | NoMap:
    """Scene from images and their matches, or the reason why there is none.

    Matches are verified geometrically, COLMAP reconstructs incrementally, and the model with most images is checked. `images`
    are given by name, `matches` by pairs of names, `progress` is called with the numbers of registered images and of all.
    `workdir` is an empty folder that receives `database.db` and `sparse/` in COLMAP's formats; both hold released
    data only. `gravity` holds readings in the cameras' frames to check the map with. Raises InputError if there are fewer than
    two images, VeilError if COLMAP fails.
    """
    options = options or MapOptions()
    if len(images) < 2:
        raise InputError(f"a map needs at least two images, got {len(images)}")
    left_out = impossible(images)
    images = {name: image for name, image in images.items() if name not in left_out}
    if len(images) < 2:
        return NoMap(f"of all images but {len(images)} the cameras are impossible", left_out)
    matches = {pair: found for pair, found in matches.items() if pair[0] in images and pair[1] in images}
    with Colmap(options.limits) as colmap:
        verification = Verification(images, options, workdir, colmap)
        stopped = verification.run(matches)
        if stopped is not None:
            return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out)
        if not verification.pairs:
            return NoMap(_too_weak(len(matches)), left_out)
        return _Build(images, options, workdir, colmap, verification, gravity or {}, left_out, progress).mapped()


class _Build:
    """Construction of one map: the verified pairs, and the images that were left out so far."""

    def __init__(
        self,
        images: Mapping[str, MapImage],
        options: MapOptions,
        workdir: Path,
        colmap: Colmap,
        verification: Verification,
        gravity: Mapping[str, Float64[np.ndarray, "3"]],
        left_out: dict[str, str],
        progress: Progress | None,
    ) -> None:
        self.images, self.options, self.workdir, self.colmap = images, options, workdir, colmap
        self.gravity, self.left_out, self.progress = gravity, left_out, progress
        self.verification = verification
        self.attempts = self.runs = 0
        self.model: Path | None = None
        self.widened = False

    @property
    def pairs(self) -> Mapping[Pair, VerifiedPair]:
        """Verified pairs, which the map is judged by."""
        return self.verification.pairs

    def mapped(self) -> Scene | NoMap:
        """Checked map, or why there is none; up to `ATTEMPTS` runs, each without the images that stopped or contradicted it."""
        names = set(self.images)
        refused: NoMap | None = None
        for self.attempts in range(ATTEMPTS):
            if len(names) < 2:
                break
            scene = self._run(names)
            if isinstance(scene, Stopped) and scene.out_of_time:
                return NoMap(f"the mapper was stopped: {scene.reason}", self.left_out)
            if isinstance(scene, Stopped):
                culprit = self._culprit(scene, names)
                self.left_out[culprit] = f"the mapper was stopped at it: {scene.reason}"
                names.discard(culprit)
                continue
            if isinstance(scene, NoMap):
                return refused or replace(scene, left_out=self.left_out)
            shares = explained_shares(scene, self.images, self.pairs)
            groups = consistent_groups(scene.images, agreement_weights(shares, self.pairs))
            if len(groups) > 1 and len(groups[0]) >= min(self.options.min_model_images, len(self.images)):
                for name in sorted(set(scene.images) - groups[0]):
                    self.left_out[name] = "the map contradicts its pairs with the other images"
                names = set(groups[0]) | (names - set(scene.images))
                refused = NoMap(
                    "the images contradict each other",
                    self.left_out,
                    checked(scene, shares, set(self.images), self.pairs, self.gravity, self.left_out),
                )
                continue
            kept = self._without_hangers_on(scene)
            if kept is not scene:
                scene, shares = kept, explained_shares(kept, self.images, self.pairs)
            check = checked(scene, shares, set(self.images), self.pairs, self.gravity, self.left_out)
            if check.doubts:
                return NoMap(f"the map that came out cannot be trusted: {'; '.join(check.doubts)}", self.left_out, check)
            return replace(self._completed(scene), check=check)
        return refused or NoMap("the mapper was stopped again and again", self.left_out)

    def _completed(self, scene: Scene) -> Scene:
        """Scene completed with points from matches that the ratio dropped, where they agree with its poses, which stay."""
        if self.model is None:
            return scene
        return completed(scene, self.model, self.images, self.verification, self.colmap, self.workdir, self.options.seed)

    def _run(self, names: set[str]) -> Scene | NoMap | Stopped:
        """Largest model of the mapper, which runs once more with looser matches of the images that it left out.

        Looser matches cost time, and repetitive ones may be wrong, so maps that need none go without.
        """
        scene = self._modeled(names)
        if isinstance(scene, Stopped) or self.widened:
            return scene
        missing = names - (set(scene.images) if isinstance(scene, Scene) else set())
        if not missing:
            return scene
        self.widened, model = True, self.model
        if not self.verification.widen(names, missing):
            return scene
        wider = self._modeled(names)
        if isinstance(wider, Scene) and (isinstance(scene, NoMap) or len(wider.images) > len(scene.images)):
            return wider
        self.model = model
        return scene

    def _modeled(self, names: set[str]) -> Scene | NoMap | Stopped:
        self.runs += 1
        output = self.workdir / ("sparse" if self.runs == 1 else f"sparse-{self.runs}")
        output.mkdir()
        settings = global_settings if self.options.global_mapper else pipeline_settings
        request = {
            "do": "map_globally" if self.options.global_mapper else "map",
            "database": str(self.verification.database),
            "output": str(output),
            "seed": self.options.seed + self.attempts,
            "constant_cameras": sorted(self.verification.constant_cameras),
            "options": settings(names, self.images, self.options),
        }
        total = len(names)
        answer = self.colmap.run(
            request,
            lambda count: self.progress(min(count + 1, total), total) if self.progress is not None else None,
            work=max(1.0, total / IMAGES_AT_ONCE),  # adjusting all images takes longer the more there are
        )
        if isinstance(answer, Stopped):
            return answer
        return self._best(output)

    def _best(self, output: Path) -> Scene | NoMap:
        from veil.colmap import pycolmap

        models = {folder: pycolmap.Reconstruction(folder) for folder in sorted(output.iterdir()) if folder.is_dir()}
        models = {folder: model for folder, model in models.items() if model.num_reg_images() and model.num_points3D()}
        if not models:
            return NoMap(_too_weak(len(self.pairs)))
        self.model, best = max(models.items(), key=lambda item: (item[1].num_reg_images(), item[1].num_points3D()))
        if best.num_reg_images() < min(self.options.min_model_images, len(self.images)):
            return NoMap(_too_weak(len(self.pairs)))
        return scene_of(best, self.images)

    def _without_hangers_on(self, scene: Scene) -> Scene:
        """Scene without parts that fewer points than `MIN_NECK` hold to the rest, as long as enough images are left."""
        least = min(self.options.min_model_images, len(self.images))
        while len(scene.images) > least and (found := thinnest_cut(scene)) is not None and found.points < MIN_NECK:
            kept = max(found.sides, key=len)
            if len(kept) < least or (smaller := restricted(scene, kept)) is None:
                break
            for name in sorted(set(scene.images) - kept):
                self.left_out[name] = f"only {found.points} points hold it to the rest of the map"
            scene = smaller
        return scene

    def _culprit(self, stopped: Stopped, names: set[str]) -> str:
        """Name of the image that COLMAP was at when it was stopped, or else of the one whose pairs have fewest inliers."""
        for name in names:
            if self.verification.image_ids[name] == stopped.image_id:
                return name
        support = {name: sum(len(p.inliers) for pair, p in self.pairs.items() if name in pair) for name in sorted(names)}
        return min(support, key=lambda name: support[name])


def completed(
    scene: Scene,
    model: Path,
    images: Mapping[str, MapImage],
    verification: Verification,
    colmap: Colmap,
    workdir: Path,
    seed: int,
) -> Scene:
    """The scene of COLMAP's model `model` with points from matches that the ratio dropped, where they agree with its poses."""
    if not verification.restore_dropped():
        return scene
    output = workdir / "completed"
    output.mkdir()
    request = {
        "do": "complete",
        "database": str(verification.database),
        "model": str(model),
        "output": str(output),
        "seed": seed,
    }
    answer = colmap.run(request, work=max(1.0, len(scene.images) / IMAGES_AT_ONCE))
    if isinstance(answer, Stopped):
        return scene
    from veil.colmap import pycolmap

    found = scene_of(pycolmap.Reconstruction(output), images)
    return (restricted(found, frozenset(scene.images)) or scene) if set(found.images) != set(scene.images) else found


def _too_weak(pairs: int) -> str:
    return (
        f"none of {pairs} pairs of images gave enough matches for a start; take photographs with more overlap, extract with "
        "--first-octave -1, or lift to a smaller m; words need a larger epsilon to map than to localize"
    )

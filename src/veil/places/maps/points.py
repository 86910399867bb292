"""Structure-from-motion from positions through COLMAP, from matches of raw or private features, checked before it is accepted.

Pairs are verified by their evidence against chance, the mapper runs in a process that is watched, and the map is compared with
its own pairs: what contradicts them is left out and named, or there is no map (docs/theory/mapping.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError, Remedy
from veil.geometry.camera import Camera
from veil.matching.neighbors import Matches
from veil.places.maps.agreement import explained_shares, groups_that_agree, seen_by_map, turned_pairs
from veil.places.maps.check import checked, doubtful_images, thinnest_cut
from veil.places.maps.colmap import Colmap, Stopped
from veil.places.maps.colmap.adjuster import Adjuster
from veil.places.maps.colmap.database import camera_ids
from veil.places.maps.focal import (
    Doubted,
    FocalTest,
    Freed,
    contradicted_focals,
    focal_test,
    is_clearer,
    known_before,
    known_to,
    with_freed,
)
from veil.places.maps.images import MapImage, NoMap, Pair, impossible, more_matches
from veil.places.maps.loop import Ended, Stuck, mapped
from veil.places.maps.options import (
    IMAGES_AT_ONCE,
    MapOptions,
    global_settings,
    pipeline_settings,
)
from veil.places.maps.scenes import part_of, read_model, restricted, scene_of
from veil.places.maps.uncertainty import MAX_IMAGES
from veil.places.maps.verification import Verification, VerifiedPair, one_standpoint
from veil.progress import Progress
from veil.scene import MIN_NECK, MapCheck, Scene

# Runs of mapping, each anew without the images that stopped the run before or contradicted it.
ATTEMPTS = 5
# Why an image is left out that other images do not agree with.
CONTRADICTS = "the map contradicts its pairs with the other images"


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

    Matches are verified geometrically, COLMAP reconstructs incrementally, and the model with most images is checked. A focal
    length that the model contradicts is freed, and the images are mapped anew; the map's check names it. `images`
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
        name, reason = min(left_out.items())
        return NoMap(f"{len(left_out)} images have impossible cameras; {name}: {reason}", left_out)
    matches = {pair: matched for pair, matched in matches.items() if pair[0] in images and pair[1] in images}
    with Colmap(options.limits) as colmap:

        def once(images: Mapping[str, MapImage], folder: Path) -> Scene | NoMap | FocalTest | Doubted[Scene | NoMap]:
            verification = Verification(images, options, folder, colmap)
            stopped = verification.run(matches)
            if stopped is not None:
                return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out)
            if not verification.pairs:
                return no_start(images, {}, left_out) if len(images) == 2 else _too_weak(len(matches), images, left_out)
            mapper = Mapper(images, options, folder, colmap, verification, FromPairs(images, options, verification), progress)
            answer = mapped(_NewMap(mapper, gravity or {}, dict(left_out)))
            return answer if isinstance(answer, FocalTest) else Doubted(answer=answer, cameras=mapper.doubted)

        return calibrated(images, workdir, once)


Once = Callable[[Mapping[str, MapImage], Path], Scene | NoMap | FocalTest | Doubted[Scene | NoMap]]


def calibrated(images: Mapping[str, MapImage], workdir: Path, once: Once) -> Scene | NoMap:
    """The answer of `once(images, folder)`, asked again with the cameras that it freed or doubted (`veil.places.maps.focal`).

    The check of the map, or the reason for none, names the focal lengths that the photographs contradicted.
    """

    def made(images: Mapping[str, MapImage], folder: Path) -> FocalTest | Doubted[Scene | NoMap]:
        answer = once(images, folder)
        return answer if isinstance(answer, FocalTest | Doubted) else Doubted(answer=answer)

    last = with_freed(images, workdir, made, _is_clearer)
    answer = NoMap("each map contradicted focal lengths of its images") if last.answer is None else last.answer
    return _with_contradicted(answer, last)


def _is_clearer(answer: Scene | NoMap, other: Scene | NoMap) -> bool:
    """Whether an answer is a map, and the other one is none, or a map that explains clearly less."""
    return isinstance(answer, Scene) and (isinstance(other, NoMap) or is_clearer(answer, other))


def _with_contradicted(answer: Scene | NoMap, last: Freed[Scene | NoMap]) -> Scene | NoMap:
    """The answer, whose check or reason names the focal lengths that maps contradicted, or did not believe."""
    if not last.claimed:
        return answer
    told = contradicted_focals(last.claimed, last.images, answer.images if isinstance(answer, Scene) else {}, last.untested)
    check = answer.check
    if check is not None:
        check = replace(check, contradicted_focals=check.contradicted_focals + told)
    if isinstance(answer, Scene):
        return replace(answer, check=check)
    reason = "; ".join([answer.reason, *(item.described() for item in told)])
    return replace(answer, reason=reason, check=check)


@runtime_checkable
class Beginning(Protocol):
    """Where COLMAP's mapper begins: at verified pairs alone (`FromPairs`), or at a map (`veil.places.maps.growth.FromMap`)."""

    @property
    def fixed(self) -> frozenset[str]:
        """Names of the images that the map has already."""

    def request(self, names: Set[str]) -> dict[str, Any]:
        """Task for the mapper with the images `names`; paths and seed are added to it."""

    def read(self, output: Path) -> tuple[Path, Scene] | NoMap:
        """COLMAP's model of a run, by its folder, and its scene."""


class FromPairs:
    """A map that begins with verified pairs: the best of the models that the mapper makes of them."""

    fixed: frozenset[str] = frozenset()

    def __init__(self, images: Mapping[str, MapImage], options: MapOptions, verification: Verification) -> None:
        self.images, self.options, self.verification = images, options, verification

    def request(self, names: Set[str]) -> dict[str, Any]:
        """Task for the mapper: several models of the images `names`, by the mapper that the options name."""
        known = sorted(self.verification.constant_cameras)
        if self.options.global_mapper:
            settings = global_settings({*names}, self.images, self.options)
            return {"do": "map_globally", "constant_cameras": known, "options": settings}
        matched = self.verification.matched_share(names)
        settings = pipeline_settings({*names}, self.images, self.options, matched)
        return {"do": "map", "constant_cameras": known, "options": settings}

    def read(self, output: Path) -> tuple[Path, Scene] | NoMap:
        """The model of most images and its scene, or the reason why there is none of enough images."""
        models = {folder: read_model(folder) for folder in sorted(output.iterdir()) if folder.is_dir()}
        models = {folder: model for folder, model in models.items() if model.num_reg_images() and model.num_points3D()}
        if not models:
            return no_start(self.images, self.verification.pairs)
        folder, best = max(models.items(), key=lambda item: (item[1].num_reg_images(), item[1].num_points3D()))
        if best.num_reg_images() < min(self.options.min_model_images, len(self.images)):
            return no_start(self.images, self.verification.pairs)
        return folder, scene_of(best, self.images)


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """Scene that the mapper proposes, its verified pairs, and the share of the matches of each pair that it explains.

    The rotations of the pairs are those under the cameras of the scene.
    """

    scene: Scene
    pairs: Mapping[Pair, VerifiedPair]
    shares: Mapping[Pair, float]


class Mapper:
    """Runs of COLMAP's mapper over the verified pairs of `images`, from what it begins with."""

    def __init__(
        self,
        images: Mapping[str, MapImage],
        options: MapOptions,
        workdir: Path,
        colmap: Colmap,
        verification: Verification,
        beginning: Beginning,
        progress: Progress | None,
    ) -> None:
        self.images, self.options, self.workdir, self.colmap = images, options, workdir, colmap
        self.verification, self.beginning, self.progress = verification, beginning, progress
        self.runs = 0
        self.model: Path | None = None
        self.held: Set[int] = frozenset()
        self.widened = False
        self.doubted: Mapping[Camera, Camera] = {}

    @property
    def pairs(self) -> Mapping[Pair, VerifiedPair]:
        """Verified pairs, which the map is judged by, with their rotations under the images' own cameras."""
        return self.verification.pairs

    @property
    def least_images(self) -> int:
        """Number of images that a map must have."""
        return min(self.options.min_model_images, len(self.images))

    def proposed(
        self, names: Set[str], attempt: int, left_out: Mapping[str, str]
    ) -> Scene | NoMap | Stuck | Ended[NoMap | FocalTest]:
        """Model of the images `names` beside those that the map has, or why there is none, or the image that stopped it.

        A model that contradicts focal lengths ends the proposals with its test.
        """
        scene = self._run(names, attempt)
        if isinstance(scene, Scene):
            outcome = self._settled(scene)
            return outcome if isinstance(outcome, Scene) else Ended(outcome)
        if not isinstance(scene, Stopped):
            return scene
        if scene.out_of_time:
            return Ended(NoMap(f"the mapper was stopped: {scene.reason}", left_out))
        return Stuck(self._culprit(scene, names), f"the mapper was stopped at it: {scene.reason}")

    def compared(self, scene: Scene) -> Proposal:
        """The scene with the shares of its pairs' matches that it explains."""
        pairs = seen_by_map(scene, self.images, self.pairs, self.options.seed)
        return Proposal(scene=scene, pairs=pairs, shares=explained_shares(scene, self.images, pairs))

    def completed(self, scene: Scene) -> Scene:
        """The scene of the last model with points from matches that the ratio dropped, where they agree with its poses.

        A new map is then adjusted by them as well.
        """
        if self.model is None or not self.verification.restore_dropped():
            return scene
        output = self.workdir / "completed"
        output.mkdir()
        request = {
            "do": "complete",
            "database": str(self.verification.database),
            "model": str(self.model),
            "output": str(output),
            "seed": self.options.seed,
        }
        answer = self.colmap.run(request, work=max(1.0, len(scene.images) / IMAGES_AT_ONCE))
        if isinstance(answer, Stopped):
            return scene
        self.model = output
        adjusted = None if self.beginning.fixed else self._adjusted("completed-again", self.held, scene)
        if adjusted is not None:
            self.model, completed_scene = adjusted
            return completed_scene
        completed_scene = scene_of(read_model(output), self.images)
        return part_of(completed_scene, scene)

    def _settled(self, scene: Scene) -> Scene | FocalTest:
        """The scene of the last model, adjusted by confirmed points (mapping.md#confirmed-points).

        Focal lengths are refined that the scene measures better than they were known. The answer is the test instead if the
        scene contradicts any. A map that grows holds its poses and cameras, and is tested alone.
        """
        fixed = self.beginning.fixed
        known = [name for name in scene.images if self.images[name].camera.focal_is_known and name not in fixed]
        cameras = camera_ids(self.verification.database)
        self.held = held = {cameras[name] for name in known}
        if known and len(scene.images) <= MAX_IMAGES:
            free = self._adjusted("free", {cameras[name] for name in fixed}, scene)
            test = FocalTest() if free is None else focal_test(free[1], self.images, fixed)
            if test.freed:
                return test
            self.doubted = test.doubted if not fixed else {}
            held = {cameras[name] for name in known if self.images[name].camera not in test.refined}
            self.held = held
            if free is not None and not held and not fixed:
                self.model, scene = free
                return scene
        if fixed:
            return scene
        settled = self._adjusted("settled", held, scene)
        if settled is None:
            return scene
        self.model, scene = settled
        return scene

    def _adjusted(self, kind: str, held: Set[int], scene: Scene) -> tuple[Path, Scene] | None:
        """The last model of the images of a scene, adjusted (`Adjuster.adjusted`)."""
        assert self.model is not None
        database = self.verification.database
        adjuster = Adjuster(images=self.images, workdir=self.workdir, colmap=self.colmap, database=database)
        return adjuster.adjusted(self.model, scene, held, f"{kind}-{self.runs}")

    def _run(self, names: Set[str], attempt: int) -> Scene | NoMap | Stopped:
        """The mapper's model, which runs once more with looser matches of the images that it left out.

        Looser matches cost time, and repetitive ones may be wrong, so maps that need none go without.
        """
        scene = self._modeled(names, attempt)
        if isinstance(scene, Stopped) or self.widened:
            return scene
        missing = names - (set(scene.images) if isinstance(scene, Scene) else set())
        if not missing:
            return scene
        self.widened, model = True, self.model
        if not self.verification.widen(names | self.beginning.fixed, missing):
            return scene
        wider = self._modeled(names, attempt)
        if isinstance(wider, Scene) and (isinstance(scene, NoMap) or len(wider.images) > len(scene.images)):
            return wider
        self.model = model
        return scene

    def _modeled(self, names: Set[str], attempt: int) -> Scene | NoMap | Stopped:
        self.runs += 1
        output = self.workdir / ("sparse" if self.runs == 1 else f"sparse-{self.runs}")
        output.mkdir()
        every = names | self.beginning.fixed
        request = {
            "database": str(self.verification.database),
            "output": str(output),
            "seed": self.options.seed + attempt,
            **self.beginning.request(every),
        }
        total, first = len(names), int(not self.beginning.fixed)  # without a map, COLMAP counts from its first pair on
        answer = self.colmap.run(
            request,
            lambda count: self.progress(min(count + first, total), total) if self.progress is not None else None,
            work=max(1.0, len(every) / IMAGES_AT_ONCE),  # adjusting all images takes longer the more there are
        )
        if isinstance(answer, Stopped):
            return answer
        modeled = self.beginning.read(output)
        if isinstance(modeled, NoMap):
            return modeled
        self.model, scene = modeled
        return scene

    def _culprit(self, stopped: Stopped, names: Set[str]) -> str:
        """Name of the image that COLMAP was at when it was stopped, or else of the one whose pairs have fewest inliers."""
        stuck = (name for name in names if self.verification.image_ids[name] == stopped.image_id)
        support = {name: sum(len(p.inliers) for pair, p in self.pairs.items() if name in pair) for name in sorted(names)}
        return next(stuck, min(support, key=lambda name: support[name]))


class _NewMap:
    """A new map in the making: the images that are not left out, and the answer if no run agrees with its pairs."""

    def __init__(self, mapper: Mapper, gravity: Mapping[str, Float64[np.ndarray, "3"]], left_out: dict[str, str]) -> None:
        self.mapper, self.gravity, self.left_out = mapper, gravity, left_out
        self.names = set(mapper.images)
        self.refused: NoMap | None = None
        self.doubted = False

    def proposed(self, attempt: int) -> Proposal | Stuck | Ended[Scene | NoMap | FocalTest]:
        """Model of most images of the mapper's run."""
        if attempt == ATTEMPTS or len(self.names) < 2:
            return Ended(self.refused or NoMap("the mapper was stopped again and again", self.left_out))
        outcome = self.mapper.proposed(self.names, attempt, self.left_out)
        if isinstance(outcome, Scene):
            return self.mapper.compared(outcome)
        if isinstance(outcome, Stuck):
            return outcome
        return Ended(outcome.answer if isinstance(outcome, Ended) else self.refused or replace(outcome, left_out=self.left_out))

    def contradicting(self, model: Proposal) -> dict[str, str]:
        """Images outside the largest group of those that stay together, if it is large enough for a map; or doubtful ones.

        These leave once. What is doubtful in the model without them is taken out of it at the end.
        """
        groups = groups_that_agree(model.scene.images, model.shares, model.pairs, turned=turned_pairs(model.scene, model.pairs))
        if len(groups) > 1 and len(groups[0]) >= self.mapper.least_images:
            return dict.fromkeys(sorted(set(model.scene.images) - groups[0]), CONTRADICTS)
        doubtful = {} if self.doubted or one_standpoint(self.mapper.images, self.mapper.pairs) else self._doubtful(model)
        if len(self.names) - len(doubtful) < self.mapper.least_images:
            return {}
        self.doubted = bool(doubtful)
        return doubtful

    def leave_out(self, wrong: Mapping[str, str], model: Proposal | None) -> None:
        """Take images out of the next run; the check of a refused model is kept, as nothing better may come."""
        self.left_out |= wrong
        self.names -= wrong.keys()
        if model is not None:
            self.refused = NoMap("the images contradict each other", self.left_out, self._check(model))

    def accepted(self, model: Proposal) -> Scene | NoMap | FocalTest:
        """The map, completed, without what hangs on it by few points and what is doubtful then; or the doubts of its check."""
        whole = self.mapper.completed(self._without_hangers_on(model.scene))
        if whole is not model.scene:
            model = self.mapper.compared(whole)
        wrong = self._doubtful(model)
        rest = frozenset(whole.images) - set(wrong)
        if wrong and len(rest) >= self.mapper.least_images and (smaller := restricted(whole, rest)) is not None:
            self.left_out |= wrong
            model, wrong = self.mapper.compared(self._without_hangers_on(smaller)), {}
        check = self._check(model)
        if one_standpoint(self.mapper.images, self.mapper.pairs) is not None:
            # A guessed focal length lets a mapper make depths of nothing
            return replace(no_start(self.mapper.images, self.mapper.pairs), left_out=self.left_out, check=check)
        doubts = check.doubts or [f"{name}: {reason}" for name, reason in sorted(wrong.items())[:1]]
        if doubts:
            return NoMap(f"the map that came out cannot be trusted: {'; '.join(doubts)}", self.left_out, check)
        return replace(model.scene, check=check)

    def _doubtful(self, model: Proposal) -> dict[str, str]:
        return doubtful_images(model.scene, model.shares, model.pairs, known_before(model.scene, self.mapper.images))

    def _check(self, model: Proposal) -> MapCheck:
        scene, images = model.scene, self.mapper.images
        known = known_before(scene, images)
        check = checked(scene, model.shares, set(images), model.pairs, self.gravity, self.left_out, known=known)
        return replace(check, focal_deviation=known_to(scene, known_before(scene, images, self.mapper.doubted)))

    def _without_hangers_on(self, scene: Scene) -> Scene:
        """Scene without parts that fewer points than `MIN_NECK` hold to the rest, as long as enough images are left."""
        least = self.mapper.least_images
        while len(scene.images) > least and (cut := thinnest_cut(scene)) is not None and cut.points < MIN_NECK:
            kept = max(cut.sides, key=len)
            if len(kept) < least or (smaller := restricted(scene, kept)) is None:
                break
            for name in sorted(set(scene.images) - kept):
                self.left_out[name] = f"only {cut.points} points hold it to the rest of the map"
            scene = smaller
        return scene


def no_start(
    images: Mapping[str, MapImage], pairs: Mapping[Pair, VerifiedPair], left_out: Mapping[str, str] | None = None
) -> NoMap:
    """The answer where no verified pair gave the mapper a start, with the cause that the pairs show.

    `images` are those of the `pairs`, by name. Of two images alone nothing can be checked (mapping.md#no-start).
    """
    reason = one_standpoint(images, pairs)
    if reason is not None:
        return NoMap(reason, remedy=(Remedy("give", "photographs from several standpoints"),))
    if len(images) == 2:
        matches = sum(len(entry.inliers) for entry in pairs.values())
        few = f"the two images share {matches} matches, but a map needs three images or more: no third one checks a point"
        reason = few if pairs else "the two images share no more matches than chance gives"
        return NoMap(reason, left_out or {}, remedy=(Remedy("give", "more photographs of the place"),))
    return _too_weak(len(pairs), images)


def _too_weak(pairs: int, images: Mapping[str, MapImage], left_out: Mapping[str, str] | None = None) -> NoMap:
    """The answer where no two images gave enough matches for a start."""
    reason = f"none of {pairs} pairs of images gave enough matches for a start"
    return NoMap(reason, left_out or {}, remedy=more_matches(images))

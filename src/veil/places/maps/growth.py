"""A map of positions with more images: the mapper goes on from the map, whose cameras stay where they are.

Only pairs with a new image are matched and verified. What a verified pair contradicts is left out and named, as in a new map
(docs/theory/mapping.md#maps-that-grow).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.forms import Form, Subsets
from veil.matching.neighbors import Matches
from veil.places.maps.agreement import groups_that_agree, turned_pairs
from veil.places.maps.check import checked, doubtful_images, thinnest_cut
from veil.places.maps.colmap import Colmap
from veil.places.maps.colmap.database import add_matches, camera_ids
from veil.places.maps.focal import FocalTest, known_before
from veil.places.maps.images import MapImage, NoMap, Pair, impossible
from veil.places.maps.loop import Ended, Stuck, mapped
from veil.places.maps.options import MapOptions, pipeline_settings
from veil.places.maps.points import ATTEMPTS, CONTRADICTS, Mapper, Proposal, calibrated
from veil.places.maps.scenes import images_of, model_of, read_model, restricted, scene_of
from veil.places.maps.verification import Verification
from veil.progress import Progress
from veil.scene import MIN_NECK, MapCheck, Scene

TOO_WEAK = "too few matches with the map that chance does not explain"


def grow_map(
    base: Scene,
    images: Mapping[str, MapImage],
    matches: Mapping[Pair, Matches],
    *,
    workdir: Path,
    options: MapOptions | None = None,
    gravity: Mapping[str, Float64[np.ndarray, "3"]] | None = None,
    progress: Progress | None = None,
) -> Scene | NoMap:
    """The map `base` with those of the new `images` that agree with it, or the reason why none can be added.

    - `base`: a map of positions. Its poses, frame and measured gravity stay; its points are adjusted.
    - `images`: new images, by names that the map does not have, in the form of the map's.
    - `matches`: of pairs of new images, and of a new image and one of the map; features of the map's images are numbered as
      they are in it.
    - `workdir`, `options`, `gravity` and `progress`: as for `build_map`; gravity is that of the new images.

    Raises InputError if the map has a name already, or came from lines, or is of another form; VeilError if COLMAP fails.
    """
    options = options or MapOptions()
    require_addable(base, images)
    left_out = impossible(images)
    images = {name: image for name, image in images.items() if name not in left_out}
    matches = {pair: matched for pair, matched in matches.items() if not {*pair} & set(left_out)}
    with Colmap(options.limits) as colmap:

        def once(images: Mapping[str, MapImage], folder: Path) -> Scene | NoMap | FocalTest:
            every = {**images_of(base), **images}
            verification = Verification(every, options, folder, colmap)
            stopped = verification.run(matches) if matches else None
            if stopped is not None:
                return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out)
            if not verification.pairs:
                return _none_added({**left_out, **dict.fromkeys(sorted(images), TOO_WEAK)})
            beginning = FromMap(base, every, options, folder, verification)
            mapper = Mapper(every, options, folder, colmap, verification, beginning, progress)
            return mapped(_Growth(mapper, beginning, images, gravity or {}, dict(left_out)))

        return calibrated(images, workdir, once)


def require_addable(base: Scene, images: Mapping[str, MapImage]) -> None:
    """Raise InputError unless the images can be added to the map."""
    if not images:
        raise InputError("there is no image to add; give one message or more")
    if any(image.lines is not None for image in base.images.values()):
        raise InputError("the map was made from lines, the new messages send positions; add messages with lines to it")
    if known := sorted(set(base.images) & set(images)):
        raise InputError(f"the map already has {', '.join(known[:3])}; give new messages only")
    kind = _kind(next(iter(base.images.values())).form)
    for name, image in images.items():
        if _kind(image.form) != kind:
            raise InputError(f"{name} holds {_kind(image.form)}, the map {kind}; map such images apart")


def _kind(form: Form) -> str:
    """Phrase that names what all images of one map have in common."""
    words = f", {form.m} of dictionary {form.dictionary[:12]} each" if isinstance(form, Subsets) else ""
    return f"{type(form).__name__.lower()}{words} in the space {form.space}"


def _none_added(left_out: Mapping[str, str]) -> NoMap:
    first = next(iter(sorted(left_out.items())), ("", ""))
    return NoMap(f"none of {len(left_out)} images can be added to the map; {first[0]}: {first[1]}", left_out)


class FromMap:
    """A map that grows: the mapper goes on from its model, and holds its poses and cameras."""

    def __init__(
        self, base: Scene, images: Mapping[str, MapImage], options: MapOptions, workdir: Path, verification: Verification
    ) -> None:
        self.base, self.images, self.options, self.verification = base, images, options, verification
        self.fixed = frozenset(base.images)
        self.common = _common_features(base)
        self.start = workdir / "base"
        self.start.mkdir()
        ids = verification.image_ids
        model_of(base, image_ids=ids, camera_ids=camera_ids(verification.database)).write(self.start)

    def request(self, names: Set[str]) -> dict[str, Any]:
        """Task for the mapper: one model of the images `names`, from that of the base."""
        database = self.verification.database
        # Without any pair COLMAP would not load an image of the map.
        add_matches(database, self.verification.image_ids, self.common)
        cameras = camera_ids(database)
        matched = self.verification.matched_share(names - self.fixed)
        settings = pipeline_settings({*names}, self.images, self.options, matched)
        return {
            "do": "map",
            "input": str(self.start),
            "constant_cameras": sorted({*self.verification.constant_cameras, *(cameras[name] for name in self.fixed)}),
            "options": {**settings, "fix_existing_frames": True, "multiple_models": False, "min_model_size": 2},
        }

    def read(self, output: Path) -> tuple[Path, Scene] | NoMap:
        """The model that grew and its scene; the base where nothing was added."""
        if not (output / "images.bin").is_file():  # COLMAP writes a model that it went on from into the folder itself
            return self.start, self.base
        return output, scene_of(read_model(output), self.images)


class _Growth:
    """A map that takes in images: the new ones that are not left out, which the map's own outweigh."""

    def __init__(
        self,
        mapper: Mapper,
        beginning: FromMap,
        new: Mapping[str, MapImage],
        gravity: Mapping[str, Float64[np.ndarray, "3"]],
        left_out: dict[str, str],
    ) -> None:
        self.mapper, self.base, self.new, self.gravity, self.left_out = mapper, beginning.base, new, gravity, left_out
        self.names = set(new)
        self.counts = {pair: float(len(features)) for pair, features in beginning.common.items()}

    def proposed(self, attempt: int) -> Proposal | Stuck | Ended[Scene | NoMap | FocalTest]:
        """Map that the mapper makes of the base and the new images that are not left out, if it adds any."""
        if attempt == ATTEMPTS or not self.names:
            return Ended(self._none_added())
        outcome = self.mapper.proposed(self.names, attempt, self.left_out)
        if isinstance(outcome, Stuck):
            return outcome
        if not isinstance(outcome, Scene):
            return Ended(outcome.answer if isinstance(outcome, Ended) else outcome)
        return self.mapper.compared(outcome) if set(outcome.images) & self.names else Ended(self._none_added())

    def contradicting(self, model: Proposal) -> dict[str, str]:
        """New images outside the group that most of the map's are in, or else those that hang by few points or are doubtful.

        Pairs with new images weigh as in a new map, those of the map by its common points.
        """
        groups = groups_that_agree(
            model.scene.images, model.shares, model.pairs, self.counts, turned=turned_pairs(model.scene, model.pairs)
        )
        main = max(groups, key=lambda group: len(group & set(self.base.images)))
        wrong = (set(model.scene.images) & self.names) - main
        if wrong:
            return dict.fromkeys(sorted(wrong), CONTRADICTS)
        if loose := self._hangers_on(model.scene):
            return loose
        doubtful = doubtful_images(model.scene, model.shares, model.pairs, self._known(model.scene))
        return {name: why for name, why in doubtful.items() if name in self.names}

    def leave_out(self, wrong: Mapping[str, str], model: Proposal | None) -> None:
        """Take new images out of the next run."""
        self.left_out |= wrong
        self.names -= wrong.keys()

    def accepted(self, model: Proposal) -> Scene | NoMap | FocalTest:
        """The map that grew, completed, with the record of both; or the doubts about what was added.

        The check is by the pairs of the new images alone.
        """
        check = checked(
            model.scene,
            model.shares,
            set(self.new),
            model.pairs,
            self.gravity,
            self.left_out,
            missing=TOO_WEAK,
            known=self._known(model.scene),
        )
        old = self.base.check
        if old is not None and (old.uncertainty is None or (check.uncertainty or 0.0) <= old.uncertainty):
            check = replace(check, uncertainty=old.uncertainty)  # the new images make it no worse than it was accepted
            doubts = replace(check, uncertainty=None).doubts
        else:
            doubts = check.doubts
        if doubts:
            return NoMap(f"what was added cannot be trusted: {'; '.join(doubts)}", self.left_out, check)
        scene = self.mapper.completed(model.scene)
        return replace(scene, check=_together(self.base.check, check, scene.images), measured_down=self.base.measured_down)

    def _known(self, scene: Scene) -> dict[str, float]:
        """How well the focal length of each image was known: of the map's own as its check says."""
        own = (self.base.check.focal_deviation if self.base.check else None) or 0.0
        known = known_before(scene, self.mapper.images)
        return known | {name: max(known[name], own) for name in self.base.images if name in known}

    def _none_added(self) -> NoMap:
        return _none_added({**dict.fromkeys(sorted(self.new), TOO_WEAK), **self.left_out})

    def _hangers_on(self, scene: Scene) -> dict[str, str]:
        """Reasons of the new images that fewer points than `MIN_NECK` hold to the map, by name."""
        reasons: dict[str, str] = {}
        names = frozenset(scene.images)
        while (smaller := restricted(scene, names)) is not None:
            cut = thinnest_cut(smaller)
            if cut is None or cut.points >= MIN_NECK:
                break
            loose = min(cut.sides, key=lambda side: len(side & set(self.base.images))) - set(self.base.images)
            if not loose:
                break
            reasons |= dict.fromkeys(sorted(loose), f"only {cut.points} points hold it to the map")
            names -= loose
        return reasons


def _common_features(base: Scene) -> dict[Pair, np.ndarray]:
    """Features of one point in two images of the map, for the pairs of a tree that joins all images by most common points.

    The tree holds each image's pair with the one that shares most with it; these pairs alone would fall apart in a large map.
    An image without common points has a pair with nothing in it.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import minimum_spanning_tree

    names = sorted(base.images)
    rows = [base.images[name].point_rows for name in names]
    ends = np.cumsum([0, *(len(own) for own in rows)])
    seen = csr_matrix((np.ones(ends[-1], dtype=np.int32), np.concatenate(rows), ends), shape=(len(names), len(base.points)))
    tree = minimum_spanning_tree(-(seen @ seen.T).astype(np.float64)).tocoo()
    pairs = {(min(i, j), max(i, j)) for i, j in zip(tree.row.tolist(), tree.col.tolist(), strict=True)}
    alone = set(range(len(names))) - {row for pair in pairs for row in pair}
    pairs |= {(min(row, other), max(row, other)) for row in alone for other in [int(row == 0)] if len(names) > 1}
    common: dict[Pair, np.ndarray] = {}
    for left, right in sorted(pairs):
        _, own, theirs = np.intersect1d(rows[left], rows[right], return_indices=True)
        common[names[left], names[right]] = np.stack([own, theirs], axis=1)
    return common


def _together(old: MapCheck | None, new: MapCheck, names: Collection[str]) -> MapCheck:
    """The record of a map that grew to the images `names`: sums of pairs, the mean of shares by pairs, the larger angles."""
    if old is None:
        return new
    pairs = old.pairs + new.pairs
    share = (old.explained_matches * old.pairs + new.explained_matches * new.pairs) / max(1, pairs)
    return replace(
        new,
        pairs=pairs,
        explained_pairs=old.explained_pairs + new.explained_pairs,
        contradicting_pairs=old.contradicting_pairs + new.contradicting_pairs,
        explained_matches=share,
        rotation_deg=_larger(old.rotation_deg, new.rotation_deg),
        gravity_deg=_larger(old.gravity_deg, new.gravity_deg),
        gravity_agreeing=_smaller(old.gravity_agreeing, new.gravity_agreeing),
        focal_deviation=_larger(old.focal_deviation, new.focal_deviation),
        contradicted_focals=old.contradicted_focals + new.contradicted_focals,
        left_out={name: why for name, why in {**old.left_out, **new.left_out}.items() if name not in names},
        removed=old.removed,
    )


def _larger(a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else max(a, b)


def _smaller(a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else min(a, b)

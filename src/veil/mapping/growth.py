"""A map of positions with more images: the mapper goes on from the map, whose cameras stay where they are.

Only pairs with a new image are matched and verified. What a verified pair contradicts is left out and named, as in a new map
(docs/theory/mapping.md#maps-that-grow).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.forms import Form, Subsets
from veil.map_check import EXPLAINED, MIN_NECK, MapCheck
from veil.mapping.agreement import confirmed, consistent_groups, explained_shares
from veil.mapping.check import gravity_agreement, position_uncertainty, rotation_disagreement, step_ratio, thinnest_cut
from veil.mapping.colmap import Colmap, Stopped
from veil.mapping.database import add_matches, camera_ids
from veil.mapping.images import MapImage, Pair, impossible
from veil.mapping.options import MapOptions, pipeline_settings
from veil.mapping.points import ATTEMPTS, IMAGES_AT_ONCE, NoMap, completed
from veil.mapping.scenes import model_of, restricted, scene_of
from veil.mapping.verification import Verification
from veil.matching.neighbors import Matches
from veil.progress import Progress
from veil.scene import Scene

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
    matches = {pair: found for pair, found in matches.items() if not {*pair} & set(left_out)}
    with Colmap(options.limits) as colmap:
        verification = Verification({**images_of(base), **images}, options, workdir, colmap)
        stopped = verification.run(matches) if matches else None
        if stopped is not None:
            return NoMap(f"COLMAP's verification was stopped: {stopped.reason}", left_out)
        if not verification.pairs:
            return _none_added({**left_out, **dict.fromkeys(sorted(images), TOO_WEAK)})
        return _Growth(base, images, options, workdir, colmap, verification, gravity or {}, left_out, progress).grown()


def images_of(base: Scene) -> dict[str, MapImage]:
    """Images of a map of positions, by name, with the features that the map has of them."""
    return {n: MapImage(camera=i.camera, keypoints=i.keypoints, form=i.form) for n, i in base.images.items()}


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


class _Growth:
    """Growth of one map: the verified pairs with new images, and the new images that were left out so far."""

    def __init__(
        self,
        base: Scene,
        new: Mapping[str, MapImage],
        options: MapOptions,
        workdir: Path,
        colmap: Colmap,
        verification: Verification,
        gravity: Mapping[str, Float64[np.ndarray, "3"]],
        left_out: dict[str, str],
        progress: Progress | None,
    ) -> None:
        self.base, self.new, self.options, self.workdir, self.colmap = base, new, options, workdir, colmap
        self.verification, self.gravity, self.left_out, self.progress = verification, gravity, left_out, progress
        self.images = {**images_of(base), **new}
        self.shared = _shared_matches(base)
        self.runs, self.model, self.widened = 0, workdir / "base", False
        self.model.mkdir()
        ids = verification.image_ids
        model_of(base, image_ids=ids, camera_ids=camera_ids(verification.database)).write(self.model)
        self.start = self.model

    def grown(self) -> Scene | NoMap:
        """The checked map, or why there is none; up to `ATTEMPTS` runs, each without the images that contradicted the last."""
        names = set(self.new)
        for attempt in range(ATTEMPTS):
            if not names:
                break
            scene = self._run(names, attempt)
            if isinstance(scene, Stopped):
                if scene.out_of_time:
                    return NoMap(f"the mapper was stopped: {scene.reason}", self.left_out)
                culprit = self._culprit(scene, names)
                self.left_out[culprit] = f"the mapper was stopped at it: {scene.reason}"
                names.discard(culprit)
                continue
            added = set(scene.images) & names
            if not added:
                break
            shares = explained_shares(scene, self.images, self.verification.pairs)
            groups = consistent_groups(scene.images, self._weights(shares))
            main = max(groups, key=lambda group: len(group & set(self.base.images)))
            if wrong := added - main:
                self.left_out |= dict.fromkeys(sorted(wrong), "the map contradicts its pairs with the other images")
                names -= wrong
                continue
            if loose := self._hangers_on(scene):
                names -= loose
                continue
            check = self._check(scene, shares)
            if check.doubts:
                return NoMap(f"what was added cannot be trusted: {'; '.join(check.doubts)}", self.left_out, check)
            found = completed(scene, self.model, self.images, self.verification, self.colmap, self.workdir, self.options.seed)
            return replace(found, check=_together(self.base.check, check, found.images), measured_down=self.base.measured_down)
        return _none_added({**dict.fromkeys(sorted(self.new), TOO_WEAK), **self.left_out})

    def _run(self, names: set[str], attempt: int) -> Scene | Stopped:
        """The mapper's model, which runs once more with looser matches of the images that it left out."""
        scene = self._modeled(names, attempt)
        if isinstance(scene, Stopped) or self.widened or not (missing := names - set(scene.images)):
            return scene
        self.widened, model = True, self.model
        if not self.verification.widen(names | set(self.base.images), missing):
            return scene
        wider = self._modeled(names, attempt)
        if not isinstance(wider, Stopped) and len(wider.images) > len(scene.images):
            return wider
        self.model = model
        return scene

    def _modeled(self, names: set[str], attempt: int) -> Scene | Stopped:
        """What the mapper makes of the base and the new images `names`; the base where it adds none."""
        from veil.colmap import pycolmap

        self.runs += 1
        output = self.workdir / f"sparse-{self.runs}"
        output.mkdir()
        database = self.verification.database
        # Without any pair COLMAP would not load an image of the map.
        add_matches(database, self.verification.image_ids, self.shared)
        cameras = camera_ids(database)
        settings = pipeline_settings(names | set(self.base.images), self.images, self.options)
        request = {
            "do": "map",
            "database": str(database),
            "output": str(output),
            "input": str(self.start),
            "seed": self.options.seed + attempt,
            "constant_cameras": sorted({*self.verification.constant_cameras, *(cameras[name] for name in self.base.images)}),
            "options": {**settings, "fix_existing_frames": True, "multiple_models": False, "min_model_size": 2},
        }
        total = len(names)

        def tell(count: int) -> None:
            if self.progress is not None:
                self.progress(min(count, total), total)

        answer = self.colmap.run(request, tell, work=max(1.0, len(self.images) / IMAGES_AT_ONCE))
        if isinstance(answer, Stopped):
            return answer
        if not (output / "images.bin").is_file():  # COLMAP writes a model that it went on from into the folder itself
            self.model = self.start
            return self.base
        self.model = output
        return scene_of(pycolmap.Reconstruction(output), self.images)

    def _hangers_on(self, scene: Scene) -> set[str]:
        """New images that fewer points than `MIN_NECK` hold to the map; they are named in `left_out`."""
        found: set[str] = set()
        names = frozenset(scene.images)
        while (smaller := restricted(scene, names)) is not None:
            cut = thinnest_cut(smaller)
            if cut is None or cut.points >= MIN_NECK:
                break
            loose = min(cut.sides, key=lambda side: len(side & set(self.base.images))) - set(self.base.images)
            if not loose:
                break
            self.left_out |= dict.fromkeys(sorted(loose), f"only {cut.points} points hold it to the map")
            found |= loose
            names -= loose
        return found

    def _culprit(self, stopped: Stopped, names: set[str]) -> str:
        """Name of the new image that COLMAP was at when it was stopped, or else of the one whose pairs have fewest inliers."""
        for name in names:
            if self.verification.image_ids[name] == stopped.image_id:
                return name
        pairs = self.verification.pairs
        return min(sorted(names), key=lambda name: sum(len(p.inliers) for pair, p in pairs.items() if name in pair))

    def _weights(self, shares: Mapping[Pair, float]) -> dict[Pair, float]:
        """What speaks for two images' being together: pairs with new images as in a new map, the map's own by common points."""
        pairs = self.verification.pairs
        against = self._contradicting(shares)
        found = {pair: float(len(matches)) for pair, matches in self.shared.items()}
        for pair, share in shares.items():
            if share >= EXPLAINED or pair in against:
                found[pair] = len(pairs[pair].inliers) * (2 * share - 1)
        return found

    def _contradicting(self, shares: Mapping[Pair, float]) -> frozenset[Pair]:
        return confirmed([pair for pair, share in shares.items() if share < EXPLAINED], self.verification.pairs)

    def _check(self, scene: Scene, shares: Mapping[Pair, float]) -> MapCheck:
        """Check of the grown map by the pairs of the new images alone."""
        pairs = self.verification.pairs
        counts = {pair: len(pairs[pair].inliers) for pair in shares}
        gravity_deg, agreeing = gravity_agreement(scene, self.gravity)
        missing = sorted(set(self.new) - set(scene.images) - set(self.left_out))
        return MapCheck(
            pairs=len(shares),
            explained_pairs=sum(share >= EXPLAINED for share in shares.values()),
            contradicting_pairs=len(self._contradicting(shares)),
            explained_matches=sum(counts[p] * s for p, s in shares.items()) / max(1, sum(counts.values())),
            neck=None if (cut := thinnest_cut(scene)) is None else cut.points,
            uncertainty=position_uncertainty(scene),
            step_ratio=step_ratio(scene),
            rotation_deg=rotation_disagreement(scene, pairs),
            gravity_deg=gravity_deg,
            gravity_agreeing=agreeing,
            left_out={**self.left_out, **dict.fromkeys(missing, TOO_WEAK)},
        )


def _shared_matches(base: Scene) -> dict[Pair, np.ndarray]:
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
    found: dict[Pair, np.ndarray] = {}
    for left, right in sorted(pairs):
        _, own, theirs = np.intersect1d(rows[left], rows[right], return_indices=True)
        found[names[left], names[right]] = np.stack([own, theirs], axis=1)
    return found


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
        left_out={name: why for name, why in {**old.left_out, **new.left_out}.items() if name not in names},
        removed=old.removed,
    )


def _larger(a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else max(a, b)


def _smaller(a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else min(a, b)

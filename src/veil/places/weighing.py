"""Contributions to a map weighed by its geometry and by the matches that it was made from (docs/theory/contributions.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from veil.matching.neighbors import Matches
from veil.places.maps.contributions import COMMON, Sighting, clear, common_points, copied_share, in_the_same_place, sightings
from veil.places.pairs.images import LoadedImage
from veil.places.pairs.store import MatchStore
from veil.scene import MappedImage, Scene

# Pairs whose matches are in memory at a time.
PAIRS_AT_ONCE = 4096
Named = tuple[str, LoadedImage]


@dataclass(frozen=True, kw_only=True)
class Resemblance:
    """Resemblance of a new contribution; shares are of the features of the smaller one of two.

    - `own`, `others`: the largest share that repeats an earlier contribution of the same owner, or of another one: copies of
      its descriptors, or clear matches that stand in the same place of the image.
    - `unexplained`: the largest share that clearly matches an image of the map with which it has next to no point in common.
    """

    own: float = 0.0
    others: float = 0.0
    unexplained: float = 0.0

    def with_(self, *, repeated: float, is_own: bool, unexplained: float) -> Resemblance:
        """The larger shares of this and of what a comparison with one more image gave."""
        return Resemblance(
            own=max(self.own, repeated) if is_own else self.own,
            others=self.others if is_own else max(self.others, repeated),
            unexplained=max(self.unexplained, unexplained),
        )


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Evidence for each contribution after a map change: `sightings` of those in the map, `resemblances` of new ones."""

    sightings: Mapping[str, Sighting]
    resemblances: Mapping[str, Resemblance]


def weighed(
    scenes: Sequence[Scene],
    owners: Mapping[str, str],
    *,
    entered: Mapping[str, LoadedImage] | None = None,
    bases: Sequence[Scene] = (),
    store: MatchStore | None = None,
) -> Weighed:
    """Evidence for each contribution after a map change.

    - `scenes`: its models, the largest first.
    - `owners`: the owner of each contribution, in the order in which they came.
    - `entered`: those that were given to it now, whether they are in it or not.
    - `bases`: the maps that they were matched with, which hold the features of their images in the order of matching.
    - `store`: the matches of those that were entered, with each other and with `bases`.
    """
    entered = entered or {}
    rank = {name: number for number, name in enumerate(owners, start=1)}
    mapped = {name for scene in scenes for name in scene.images}
    resemblances = {name: Resemblance() for name in entered}
    for (a, left), (b, right), matches in _pairs(entered, bases, store):
        (old, earlier), (new, later) = sorted(((a, left), (b, right)), key=lambda each: (rank.get(each[0], 0), each[0]))
        if new not in resemblances:
            continue
        kept = clear(matches)
        least = max(1, min(left.features, right.features))
        same = in_the_same_place(kept, left.positions, right.positions, left.camera) / least
        disagree = old in mapped and common_points(scenes, a, b) < COMMON
        resemblances[new] = resemblances[new].with_(
            repeated=max(same, copied_share(later.form, earlier.form)),
            is_own=owners.get(new) == owners.get(old),
            unexplained=len(kept) / least if disagree else 0.0,
        )
    return Weighed(sightings=sightings(scenes, owners), resemblances=resemblances)


def _loaded(image: MappedImage) -> LoadedImage:
    """An image of a map as it is matched with new ones."""
    positions = image.keypoints if image.lines is None else image.lines
    return LoadedImage(camera=image.camera, positions=positions, form=image.form)


def _pairs(
    entered: Mapping[str, LoadedImage], bases: Sequence[Scene], store: MatchStore | None
) -> Iterator[tuple[Named, Named, Matches]]:
    """The matches of each pair that a store holds of an image that was entered and another one, as both were matched."""
    if store is None:
        return
    as_matched: dict[str, list[tuple[str, LoadedImage]]] = {}
    for base in bases:
        for name, image in base.images.items():
            before = _loaded(image)
            as_matched.setdefault(name, []).append((before.digest, before))
    digest = {name: image.digest for name, image in entered.items()}
    wanted: list[tuple[tuple[str, str], Named, Named]] = []
    for a in sorted(entered):
        for b in sorted({*entered, *as_matched} - {a}):
            forms = [*([(digest[b], entered[b])] if b in entered and a < b else []), *as_matched.get(b, [])]
            form = next(((other, image) for other, image in forms if (digest[a], other) in store), None)
            if form is not None:
                wanted.append(((digest[a], form[0]), (a, entered[a]), (b, form[1])))
    for start in range(0, len(wanted), PAIRS_AT_ONCE):
        part = wanted[start : start + PAIRS_AT_ONCE]
        matches = store.matches([pair for pair, _, _ in part])
        for pair, left, right in part:
            yield left, right, matches[pair]

"""Contributions to a map weighed by its geometry and by the matches that it was made from (docs/theory/contributions.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from veil.files.match_store import MatchStore
from veil.mapping.resemblance import clear, copied_share, in_the_same_place
from veil.mapping.sightings import COMMON, Sighting, common_points, sightings
from veil.matching.neighbors import Matches
from veil.pipelines.uploads import LoadedImage
from veil.scene import MappedImage, Scene

# Pairs whose matches are in memory at a time.
PAIRS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True)
class Resemblance:
    """What a new contribution resembles; shares are of the features of the smaller one of two.

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
    """What a change of a map says of contributions: `sightings` of those in the map, `resemblances` of those that entered."""

    sightings: Mapping[str, Sighting]
    resemblances: Mapping[str, Resemblance]


def weighed(
    scenes: Sequence[Scene],
    owners: Mapping[str, str],
    *,
    entered: Mapping[str, LoadedImage] | None = None,
    base: Scene | None = None,
    store: MatchStore | None = None,
) -> Weighed:
    """What a changed map says of contributions.

    - `scenes`: its models, the largest first.
    - `owners`: the owner of each contribution, in the order in which they came.
    - `entered`: those that were given to it now, whether they are in it or not.
    - `base`: the first model before.
    - `store`: the matches of those that were entered, with each other and with `base`.
    """
    images = {name: _loaded(image) for name, image in (base.images if base is not None else {}).items()} | dict(entered or {})
    rank = {name: number for number, name in enumerate(owners, start=1)}
    mapped = {name for scene in scenes for name in scene.images}
    found = {name: Resemblance() for name in entered or {}}
    for a, b, matches in _pairs(images, set(found), store):
        old, new = sorted((a, b), key=lambda name: (rank.get(name, 0), name))
        if new not in found:
            continue
        kept = clear(matches)
        least = max(1, min(images[a].features, images[b].features))
        same = in_the_same_place(kept, images[a].positions, images[b].positions, images[a].camera) / least
        disagree = old in mapped and common_points(scenes, a, b) < COMMON
        found[new] = found[new].with_(
            repeated=max(same, copied_share(images[new].form, images[old].form)),
            is_own=owners.get(new) == owners.get(old),
            unexplained=len(kept) / least if disagree else 0.0,
        )
    return Weighed(sightings=sightings(scenes, owners), resemblances=found)


def _loaded(image: MappedImage) -> LoadedImage:
    """An image of a map as it is matched with new ones."""
    positions = image.keypoints if image.lines is None else image.lines
    return LoadedImage(camera=image.camera, positions=positions, form=image.form)


def _pairs(
    images: Mapping[str, LoadedImage], entered: set[str], store: MatchStore | None
) -> Iterator[tuple[str, str, Matches]]:
    """The matches of each pair that a store holds of two images, one of them entered."""
    if store is None:
        return
    digest = {name: image.digest for name, image in images.items()}
    wanted = [(a, b) for a in sorted(entered) for b in sorted(images) if a != b and (b not in entered or a < b)]
    wanted = [(a, b) for a, b in wanted if (digest[a], digest[b]) in store]
    for start in range(0, len(wanted), PAIRS_AT_ONCE):
        part = wanted[start : start + PAIRS_AT_ONCE]
        found = store.matches([(digest[a], digest[b]) for a, b in part])
        for a, b in part:
            yield a, b, found[digest[a], digest[b]]

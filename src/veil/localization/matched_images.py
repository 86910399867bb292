"""Matches of a query with images of a map, and the pairs of a feature and a point that come of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64

from veil.codebooks.codebook import Codebook
from veil.forms import Form, Points
from veil.matching import Matches, MatchOptions, match_pairs
from veil.matching.lightglue import LightGlue
from veil.matching.pairs import match_pairs_by_network
from veil.matching.placed_points import PlacedPoints, placed
from veil.progress import Progress
from veil.scene import Scene

_NONE = np.empty(0, dtype=np.int64)


class ImageMatches(ABC):
    """Pairs of a query's features and points of the map `scene`, from more and more of its images, which `found` names."""

    scene: Scene
    found: Collection[str]

    @property
    def observed(self) -> list[Int64[np.ndarray, "observed"]]:
        """Rows of the points that each of the matched images observes."""
        return [self.scene.images[name].point_rows for name in self.found]

    @abstractmethod
    def match(self, names: Sequence[str], progress: Progress | None = None) -> None:
        """Match the images that are not matched yet."""

    @abstractmethod
    def pairs(self, names: Sequence[str] | None = None) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows (query features, map points) of the pairs in some of the matched images, or in all, the most trusted first."""


@dataclass(kw_only=True, eq=False)
class MatchedImages(ImageMatches):
    """Matches of a query with more and more images of a map.

    `form` is the query's, `codebook` brings the descriptors of a public map into its space (None: they are in it), `workers`
    images are matched at a time. `found` holds the matches by name of the image.

    With a `network` and the query as it reads it (`query`), LightGlue matches in place of nearest neighbors.
    """

    form: Form
    scene: Scene
    codebook: Codebook | None
    options: MatchOptions
    workers: int
    network: LightGlue | None = None
    query: PlacedPoints | None = None
    found: dict[str, Matches] = field(default_factory=dict)

    def match(self, names: Sequence[str], progress: Progress | None = None) -> None:
        """Match the images that are not matched yet; `progress` is called with the number of them and of all.

        Raises what `veil.matching.match` raises.
        """
        new = [name for name in names if name not in self.found]
        if self.network is not None and self.query is not None:
            self.found |= self._matched_by_network(self.network, self.query, new, progress)
            return
        forms: dict[str, Form] = {"": self.form}
        for name in new:
            forms[name] = _comparable(self.scene.images[name].form, self.form, self.codebook)
        pairs = [("", name) for name in new]
        matched = match_pairs(forms, pairs, options=self.options, workers=self.workers, progress=progress)
        self.found |= {name: matches for (_, name), matches in matched.items()}

    def _matched_by_network(
        self, network: LightGlue, query: PlacedPoints, names: Sequence[str], progress: Progress | None
    ) -> dict[str, Matches]:
        images = {"": query}
        for name in names:
            image = self.scene.images[name]
            positions = image.keypoints if image.lines is None else image.lines
            images[name] = placed(image.form, positions, image.camera, what=f"the map's image {name}")
        pairs = [("", name) for name in names]
        matched = match_pairs_by_network(images, pairs, network, workers=self.workers, progress=progress)
        return {name: matches for (_, name), matches in matched.items()}

    def pairs(self, names: Sequence[str] | None = None) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows (query features, map points) of the distinct pairs that match in at least one image, most distinctive first.

        The images are those of `names` that are matched; None: all that are.

        A pair is as distinctive as its distance is small beside that to the second neighbor (Lowe 2004), or as LightGlue is
        sure of it, in the map image where it is most so. Right matches gather at the front; which matches there are does not
        depend on the order.
        """
        found = {name: self.found[name] for name in (self.found if names is None else names) if name in self.found}
        if not found:
            return _NONE, _NONE
        images, points = self.scene.images, len(self.scene.points)
        rows = np.concatenate([matches.indices[:, 0] for matches in found.values()])
        seen = np.concatenate([images[name].point_rows[matches.indices[:, 1]] for name, matches in found.items()])
        # One integer for each pair sorts faster than two columns.
        keys = rows * points + seen
        ratios = np.concatenate([matches.ratios for matches in found.values()])
        keys = keys[np.argsort(ratios, kind="stable")]
        _, first = np.unique(keys, return_index=True)
        keypoint_rows, point_rows = np.divmod(keys[np.sort(first)], points)
        return keypoint_rows.astype(np.int64), point_rows.astype(np.int64)


def _comparable(map_form: Form, query: Form, codebook: Codebook | None) -> Form:
    """A map image's form, taken by the codebook into the query's space where it holds public descriptors of another one."""
    if isinstance(map_form, Points) and map_form.space != query.space and codebook is not None:
        return codebook.compression.into_space(map_form, query.space)
    return map_form

"""Features of a folder of photographs that a map of them uses: those on tracks, few, and spread over all pairs of images.

A file of its own: the choice is a mechanism, which the doors of the device only call. A track is a point with the features that
show it in several images. What lies on no track does not leave: passers-by that one
photograph shows, screens, and all features that would match nothing. Tracks of large scale come first, as queries find them
again, and those of pairs of images that have few (release.md#features-for-a-map).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Int64

from veil.features import Features
from veil.mechanisms.selection import ChosenFeatures, Selection

Track = Sequence[tuple[str, int]]  # names of images with the row of a feature in each
_Pair = tuple[str, str]


def features_on_tracks(
    features: Mapping[str, Features],
    tracks: Iterable[Track],
    selection: Selection | None = None,
    *,
    sent: Mapping[str, ChosenFeatures] | None = None,
) -> dict[str, ChosenFeatures]:
    """Features of each image that leave for a map, by name; an image on none of the chosen tracks is missing.

    `selection` (None: the usual one) says how many leave of an image at most, and how far apart. A track is taken with all of
    its features that are apart from those taken before, if these are two or more. Features without scales count alike. Images
    in `sent` left before, and nothing but these features of them leaves again.
    """
    selection, sent = selection or Selection(), sent or {}
    known = [track for track in map(tuple, tracks) if len(track) > 1]
    choice = _Choice(features, known, selection, sent)
    for track in known:
        choice.count_sent(track)
    queue = [(-choice.worth(track), number) for number, track in enumerate(known)]
    heapq.heapify(queue)
    while queue:
        _, number = heapq.heappop(queue)
        worth = choice.worth(known[number])
        if queue and worth < -queue[0][0]:  # it lost worth since it was weighed
            heapq.heappush(queue, (-worth, number))
        elif worth > 0:
            choice.take(known[number])
    chosen = {name: ChosenFeatures(rows=np.unique(rows)) for name, rows in choice.rows.items() if rows}
    return {name: sent.get(name) or chosen[name] for name in features if name in sent or name in chosen}


class _Choice:
    """Features that are taken, which others they leave free, and the tracks that pairs of images have."""

    def __init__(
        self,
        features: Mapping[str, Features],
        tracks: Sequence[Track],
        selection: Selection,
        sent: Mapping[str, ChosenFeatures],
    ) -> None:
        from scipy.spatial import cKDTree

        self._features, self._selection = features, selection
        self._scales = {name: np.ones(len(item)) if item.scales is None else item.scales for name, item in features.items()}
        self._near = {name: cKDTree(item.keypoints.astype(np.float64)) for name, item in features.items()}
        self._sent = {name: frozenset(sent[name].rows.tolist()) for name in features if name in sent}
        self._free = {name: np.ones(len(item), dtype=bool) for name, item in features.items()}
        self._available = Counter(pair for track in tracks for pair in _pairs(track))
        self._taken: Counter[_Pair] = Counter()
        self.rows: dict[str, list[int]] = {name: [] for name in features}

    def worth(self, track: Track) -> float:
        """Worth of a track for each of its features, which falls as others are taken; 0 if less than two features are free.

        It is the squared scale times a sum over pairs of images, which counts those more that have few tracks: Eq. 16 of
        release.md.
        """
        free = self._of(track)
        if len(free) < 2:
            return 0.0
        scales = [self._scales[name][row] for name, row in free]
        pairs = sum(1 / ((1 + self._taken[pair]) * self._available[pair] ** 0.5) for pair in _pairs(free))
        return float(np.median(scales)) ** 2 * pairs / len(free)

    def count_sent(self, track: Track) -> None:
        """Count a track for the pairs of images in which it left before."""
        self._taken.update(_pairs([(name, row) for name, row in track if row in self._sent.get(name, ())]))

    def take(self, track: Track) -> None:
        """Take the features of a track that are free."""
        free = self._of(track)
        for name, row in free:
            if name not in self._sent and self._free[name][row]:  # a track may have two features of an image
                self.rows[name].append(row)
                self._free[name][self._beside(name, row)] = False
        self._taken.update(pair for pair in _pairs(free) if not self._sent.keys() >= {*pair})  # those are counted

    def _of(self, track: Track) -> list[tuple[str, int]]:
        most = self._selection.features
        return [
            (name, row)
            for name, row in track
            if (row in self._sent[name] if name in self._sent else self._free[name][row])
            and (most is None or len(self.rows[name]) < most)
        ]

    def _beside(self, name: str, row: int) -> Int64[np.ndarray, "beside"]:
        center = self._features[name].keypoints[row].astype(np.float64)
        near = self._near[name].query_ball_point(center, self._selection.min_distance_px)
        return np.union1d(near, [row]).astype(np.int64)


def _pairs(track: Track) -> Iterable[_Pair]:
    """Pairs of different images of a track, in the order of their names."""
    return combinations(sorted({name for name, _ in track}), 2)

"""Pairs of images by tracks: few pairs are matched first, and points that they share name further pairs.

The most distinctive features of each image find the views that are nearest to its own. Matches of these give points that
several images see, and points find other images of the same place better and sooner than features of single images do. Images
that have too few such points are found by their features (docs/theory/scale.md#tracks).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import numpy as np
from jaxtyping import Float32, Int64

from veil.forms import Flat, Form, Subspaces
from veil.matching import Matches
from veil.matching.point_indexing import LEAST_VIEWS, index_points
from veil.matching.point_votes import ENTERED, similarity_by_points
from veil.matching.similar_images import Background
from veil.places.maps.lines.tracks import build_tracks, match_graph
from veil.places.pairs.candidates import BY_TRACKS, similar_pairs
from veil.progress import Progress

# How unusual the similarity of paired images must be, in standard deviations.
LEAST_SIMILARITY = 3.0
# An image with fewer features of tracks has not enough.
FEW = 50
# Share of the features of an image without enough tracks, the most distinctive, that is looked up in the index of tracks; and
# number of them that must vote for one image.
LOOKED_UP_SHARE, ENOUGH_VOTES = 0.5, 3
# Images whose tracks are made together: longer tracks are cut.
_TOGETHER = 200


def tracks_of(
    features: Mapping[str, int], matches: Mapping[tuple[str, str], Matches], max_ratio: float
) -> tuple[dict[str, tuple[Int64[np.ndarray, "tracked"], Int64[np.ndarray, "tracked"]]], int]:
    """Tracks of three images and more from matches with ratios up to `max_ratio`, and the number of tracks.

    For each image with tracks, the rows of its features and of their tracks. A match that would put two features of one image
    into a track is left out. Tracks are made of `_TOGETHER` images at a time, in an order that keeps matched ones together, and
    end there. Raises InputError for a match of an image that is not in `features`.
    """
    names = _in_order(matches)
    group = {name: row // _TOGETHER for row, name in enumerate(names)}
    inside: dict[int, dict[tuple[str, str], Matches]] = {}
    for (a, b), matched in matches.items():
        if group[a] == group[b]:
            inside.setdefault(group[a], {})[a, b] = matched
    tracked, count = {}, 0
    for number, own in sorted(inside.items()):
        counts = {name: features[name] for name in names[number * _TOGETHER : (number + 1) * _TOGETHER]}
        ratios = {pair: one.ratios for pair, one in own.items()}
        indices = {pair: one.indices for pair, one in own.items()}
        tracks = build_tracks(match_graph(counts, indices, ratios=ratios, max_ratio=max_ratio))
        long = np.bincount(tracks.track)[tracks.track] >= LEAST_VIEWS if len(tracks) else np.empty(0, dtype=bool)
        if not long.any():
            continue
        _, track = np.unique(tracks.track[long], return_inverse=True)
        image, feature = tracks.image[long], tracks.feature[long]
        for row in np.unique(image):
            at = image == row
            tracked[tracks.names[row]] = (feature[at], track[at] + count)
        count += int(track.max()) + 1
    return tracked, count


def _in_order(pairs: Collection[tuple[str, str]]) -> list[str]:
    """Names of the images in pairs, by reverse Cuthill-McKee (Cuthill and McKee 1969): those that are paired stand together."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    names = sorted({name for pair in pairs for name in pair})
    if not names:
        return []
    row_of = {name: row for row, name in enumerate(names)}
    rows = np.array([[row_of[a], row_of[b]] for a, b in sorted(pairs)])
    graph = coo_array((np.ones(2 * len(rows)), (rows.ravel(), rows[:, ::-1].ravel())), shape=(len(names), len(names))).tocsr()
    return [names[row] for row in reverse_cuthill_mckee(graph, symmetric_mode=True)]


def pairs_by_tracks(
    forms: Mapping[str, Form],
    tracked: Mapping[str, tuple[Int64[np.ndarray, "tracked"], Int64[np.ndarray, "tracked"]]],
    tracks: int,
    words: Float32[np.ndarray, "words dim"],
    *,
    count: int | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[list[tuple[str, str]], dict[str, Flat]]:
    """Pairs of images that see the same points, and images that neither tracks nor their index reach.

    - `forms`: points or subspaces of all images, by name; `tracked`, `tracks`: from `tracks_of`.
    - `words`, float32 (K, dim): the public dictionary in the forms' space.
    - `count`: images that each is paired with at most.
    - `progress`: called with the amount done and of all, first of points, then of words, then of images without tracks.

    Those without enough tracks are looked up in the index of tracks by their most distinctive features, and paired with what
    this finds; named are those for which it finds little, with these features: they may look like each other. Raises as
    `index_points` does.
    """
    untracked = {name: _flat(forms[name]) for name in sorted(forms) if len(tracked.get(name, ((), ()))[0]) < FEW}
    if not tracks:
        return [], untracked
    untracked = _distinctive(untracked, forms, words)
    most = count or BY_TRACKS
    seen = {name: (_flat(forms[name]).take(features), points) for name, (features, points) in sorted(tracked.items())}
    index = index_points(seen, words, tracks, entered=ENTERED, threads=threads, progress=progress)
    similarity = similarity_by_points(index, threads=threads, progress=progress)
    similarity[similarity < LEAST_SIMILARITY] = 0.0
    pairs = set(similar_pairs(index.image_names, similarity, count=most))
    alone = {}
    for row, (name, form) in enumerate(untracked.items()):
        if progress is not None:
            progress(row, len(untracked))
        scores = index.scores(form, threads=threads)
        best = [other for other in index.ranked(scores) if other != name][:most]
        pairs |= {(min(name, other), max(name, other)) for other in best}
        if index.votes_of(scores).max(initial=0.0) < ENOUGH_VOTES:
            alone[name] = form
    return sorted(pairs), alone


def _distinctive(
    some: Mapping[str, Flat], forms: Mapping[str, Form], words: Float32[np.ndarray, "words dim"]
) -> dict[str, Flat]:
    """The most distinctive features of some images, among all; of points, which have no reach, all features."""
    if not any(isinstance(form, Subspaces) for form in some.values()):
        return dict(some)
    background = Background.of(cast("Mapping[str, Subspaces]", forms), words)
    subspaces = cast("Mapping[str, Subspaces]", some)
    return {name: form.take(background.distinctive(form, LOOKED_UP_SHARE)[0]) for name, form in subspaces.items()}


def _flat(form: Form) -> Flat:
    assert isinstance(form, Flat)
    return form

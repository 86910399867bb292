"""Matching of two forms: the distance that belongs to their types, and the pairs of features that are kept.

- Two images: `neighbors` (by distance, or by shared words), `ratio` (thresholds), `rescoring` (log odds), `pairs` (many at a
  time). By a network, for raw descriptors: `placed_points`, `lightglue`, `attention`.
- Words: `inverted_index` (candidate points of a query), `retrieval` (images).
- Points of a map: `point_indexing` makes an index, `point_index` answers queries, `point_votes` compares tracks.
- Images by their subspaces: `similar_images`. Compiled distances of both: `voting`, `word_distances`.

Which pairs of images are matched is decided in `veil.places.pairs`.
"""

from veil.matching.neighbors import Matches, MatchOptions, match
from veil.matching.pairs import match_pairs

__all__ = ["MatchOptions", "Matches", "match", "match_pairs"]

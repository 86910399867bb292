"""Matching: which distance belongs to which two forms, and which pairs of features are kept."""

from veil.matching.neighbors import Matches, MatchOptions, match
from veil.matching.pairs import match_pairs

__all__ = ["MatchOptions", "Matches", "match", "match_pairs"]

"""Matching of two forms: the distance that belongs to their types, and the pairs of features that are kept."""

from veil.matching.neighbors import Matches, MatchOptions, match
from veil.matching.pairs import match_pairs

__all__ = ["MatchOptions", "Matches", "match", "match_pairs"]

"""Dictionaries: words that stand for descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from veil.codebooks.codebook import Codebook, Kind
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class Dictionary(Codebook):
    """Centroids of spherical k-means: the paper's W, and the words that are sent under local differential privacy."""

    kind: ClassVar[Kind] = "centroids"

    __repr__ = one_line

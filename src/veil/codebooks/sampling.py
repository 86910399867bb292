"""Samples of descriptors from a stream of images, in bounded memory."""

from __future__ import annotations

import numpy as np

from veil.errors import InputError, RangeError


class WordTraining:
    """Collects a bounded, uniform sample of descriptors from a stream of images (reservoir of whole rows)."""

    def __init__(self, capacity: int, *, seed: int) -> None:
        if capacity < 2:
            raise RangeError(f"capacity must be at least 2 descriptors, got {capacity!r}")
        self._capacity = capacity
        self._random = np.random.default_rng(seed)
        self._rows: np.ndarray | None = None
        self.seen = 0
        self.image_digests: list[str] = []

    def add(self, descriptors: np.ndarray, image_digest: bytes) -> None:
        """Offer one image's descriptors (N, dim); memory stays at `capacity` rows."""
        self.image_digests.append(image_digest[:8].hex())
        if self._rows is None:
            self._rows = np.empty((self._capacity, descriptors.shape[1]), dtype=descriptors.dtype)
        positions = np.arange(self.seen, self.seen + len(descriptors))
        early = positions < self._capacity
        self._rows[positions[early]] = descriptors[early]
        # Algorithm R: the i-th row (from 0) replaces a kept one with probability capacity / (i + 1).
        targets = self._random.integers(0, positions[~early] + 1)
        taken = targets < self._capacity  # where two rows replace the same one, the later stays
        self._rows[targets[taken]] = descriptors[~early][taken]
        self.seen += len(descriptors)

    def sample(self) -> np.ndarray:
        """Kept descriptors, shuffled in place; collecting ends. Raises InputError if nothing was."""
        if self._rows is None or self.seen < 2:
            raise InputError("no descriptors were found in these photographs; check the folder, or lower the threshold")
        kept = self._rows[: min(self.seen, self._capacity)]
        order = self._random.permutation(len(kept))
        for start in range(0, kept.shape[1], 16):  # a few columns at a time: a copy of all rows would double the memory
            kept[:, start : start + 16] = kept[order, start : start + 16]
        return kept

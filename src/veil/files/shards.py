"""Descriptors in a file that several processes read, each some of its rows: shards of k-means."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.codebooks.kmeans import Descriptors
from veil.codebooks.shards import SHARD_ROWS
from veil.errors import FileFormatError
from veil.files.atomic import writing


@dataclass(frozen=True, kw_only=True)
class SavedShard:
    """Some rows of a file of descriptors (`.npy`), whose path holds on every machine that works on them."""

    path: Path
    start: int
    stop: int

    def load(self) -> Descriptors:
        """Read the rows. Raises FileFormatError where the file cannot be read, or lacks some of them."""
        try:
            rows = np.load(self.path, mmap_mode="r", allow_pickle=False)[self.start : self.stop]
        except (OSError, ValueError) as error:
            raise FileFormatError(
                f"cannot read descriptors from {self.path}: {error}; every machine needs the folder under the same path"
            ) from None
        if len(rows) != self.stop - self.start:
            raise FileFormatError(f"{self.path} lacks rows before {self.stop}; it was changed while it was read")
        return np.array(rows)


@contextmanager
def saved_shards(folder: Path, sample: Descriptors, *, rows: int = SHARD_ROWS) -> Iterator[list[SavedShard]]:
    """Shards of a sample, of `rows` rows each, in a file in `folder` that its owner alone can read, and that is removed after.

    Raises InputError if nothing can be written there.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".veil-shards-") as name:  # mode 0700
            path = Path(name, "descriptors.npy")
            np.save(path, sample, allow_pickle=False)
            yield [
                SavedShard(path=path, start=start, stop=min(start + rows, len(sample))) for start in range(0, len(sample), rows)
            ]

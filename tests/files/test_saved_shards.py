"""Shards in a file: together the sample, in order, readable by its owner alone, and gone after."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.files.codebooks import saved_shards
from worlds import generator


def test_shards_are_the_sample_and_are_removed(tmp_path: Path) -> None:
    """Inverse pair: what was written is read, in shards that were sent as items; the last one is shorter."""
    sample = generator("shards").integers(0, 256, (50, 128), dtype=np.uint8)
    with saved_shards(tmp_path / "new", sample, rows=16) as shards:
        sent = pickle.loads(pickle.dumps(shards))
        assert [len(shard.load()) for shard in sent] == [16, 16, 16, 2]
        np.testing.assert_array_equal(np.concatenate([shard.load() for shard in sent]), sample)
        assert shards[0].path.is_absolute()
        assert stat.S_IMODE(shards[0].path.parent.stat().st_mode) == 0o700
        np.save(shards[0].path, sample[:20])
        with pytest.raises(FileFormatError, match="lacks rows before 32"):
            shards[1].load()
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(FileFormatError, match="every machine needs the folder"):
        sent[0].load()

"""The folder of an unfinished training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil_lab.files.trainings import Workshop
from veil_lab.training.photos import assembled
from worlds import generator, sift_like


def test_an_unfinished_training_is_resumed_and_no_other(tmp_path: Path) -> None:
    folder, random = tmp_path / "run", generator("workshop")
    workshop = Workshop(folder, "key", resume=False)
    item = assembled(
        random.integers(0, 256, (256, 260, 3), dtype=np.uint8),
        random.uniform(0, 256, (9, 2)).astype(np.float32),
        sift_like(random, 9),
        bytes(range(32)),
    )
    workshop.save_example(3, item)
    assert workshop.example(2) is None and workshop.state() is None
    workshop.save_state({"x": np.arange(3.0)}, {"step": 5})
    with pytest.raises(InputError, match=r"Workshop\(resume=True\)"):
        Workshop(folder, "key", resume=False)
    with pytest.raises(InputError, match="other photographs or options"):
        Workshop(folder, "another key", resume=True)
    again = Workshop(folder, "key", resume=True)
    resumed, state = again.example(3), again.state()
    assert resumed is not None and state is not None
    np.testing.assert_array_equal(resumed.rgb, item.rgb)
    np.testing.assert_array_equal(resumed.features.keypoints, item.features.keypoints)
    np.testing.assert_array_equal(resumed.features.descriptors, item.features.descriptors)
    assert resumed.features.image_digest == item.features.image_digest
    np.testing.assert_array_equal(state[0]["x"], np.arange(3.0))
    assert state[1] == {"step": 5}
    (folder / "example-000003.npz").write_bytes(b"half")
    assert again.example(3) is None  # made again, not a crash
    again.remove()
    assert not folder.exists()

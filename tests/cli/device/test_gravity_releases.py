"""Gravity beside positions in releases: the same draws, noted in the ledger, and another gravity is another release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.device.device import Device
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.errors import InputError, ReleaseRefused
from veil.mechanisms.release import HideInLines
from veil.wire import decode
from veil.wire.message import Upload
from worlds.material import photograph

DOWN = np.array([0.1, 2.0, 0.2])
WORDS = HideInWords(epsilon=4.0, features_sent=100)


def sent(message: bytes) -> Upload:
    upload = decode(message)
    assert isinstance(upload, Upload)
    return upload


@pytest.mark.parametrize("descriptors", [WORDS, HideInSubspaces()], ids=["words", "subspaces"])
def test_gravity_is_sent_beside_the_same_draws(tmp_path: Path, descriptors: HideInWords | HideInSubspaces) -> None:
    """The same secret draws the same message but for gravity, which is a unit vector, and notes it in the ledger."""
    device = Device(tmp_path)
    protection = Protection(descriptors=descriptors, gravity=DOWN)
    made = device.release(photograph(), protection)
    upload = sent(made.message)
    assert upload.gravity is not None
    np.testing.assert_allclose(upload.gravity, DOWN / np.linalg.norm(DOWN), atol=1e-15)
    (entry,) = device.ledger.entries()
    assert " positions gravity=" in entry.parameters
    assert device.release(photograph(), protection).message == made.message
    plain = device.release(photograph(), replace(protection, gravity=None), allow_second=True)
    assert sent(plain.message).gravity is None and len(made.message) == len(plain.message) + 24
    np.testing.assert_array_equal(sent(plain.message).keypoints, upload.keypoints)


@pytest.mark.parametrize("other", [None, np.array([0.1, 2.0, 0.3])], ids=["none", "another"])
def test_another_gravity_is_another_release(tmp_path: Path, other: np.ndarray | None) -> None:
    """A second message of a photograph is refused, whatever differs: the server would see that both are of one photograph."""
    device = Device(tmp_path)
    device.release(photograph(), Protection(descriptors=WORDS, gravity=DOWN))
    with pytest.raises(ReleaseRefused, match="already released with other choices"):
        device.release(photograph(), Protection(descriptors=WORDS, gravity=other))
    assert len(device.ledger.entries()) == 1


def test_gravity_that_no_camera_has_and_gravity_with_lines_are_refused() -> None:
    for bad in (np.zeros(3), np.array([0.0, -1.0, 0.0]), np.array([np.nan, 1.0, 0.0])):
        with pytest.raises(InputError, match="gravity"):
            Protection(descriptors=WORDS, gravity=bad)
    with pytest.raises(InputError, match="HideInLines"):
        Protection(descriptors=WORDS, gravity=DOWN, lines=HideInLines(gravity=DOWN))

"""Messages of sequences: decoding inverts encoding, a golden message, and hostile bytes."""

from __future__ import annotations

import hashlib
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.errors import InputError, WireError
from veil.geometry.rigid import Rigid
from veil.wire import decode, encode
from veil.wire.message import Upload
from veil.wire.sequence import Sequence, decode_sequence, encode_sequence, holds_sequence
from worlds import generator
from worlds.edges import flipped, outcome, truncated

WORDS = (Path(__file__).parents[1] / "mechanisms" / "golden" / "words.veil").read_bytes()
HARDENED = (Path(__file__).parents[1] / "mechanisms" / "golden" / "hardened.veil").read_bytes()
TURN = Rigid(rotation=np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), translation=np.array([0.5, 0.0, -2.0]))
STILL = Rigid(rotation=np.eye(3), translation=np.zeros(3))


def by_hand() -> bytes:
    """A sequence of two frames put together from docs/reference/wire.md#sequences."""
    body = b"VEIL" + bytes([1, 5]) + struct.pack("<H", 2)
    body += struct.pack("<12d", 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0) + struct.pack("<I", len(WORDS)) + WORDS
    body += struct.pack("<12d", 0, -1, 0, 1, 0, 0, 0, 0, 1, 0.5, 0, -2) + struct.pack("<I", len(WORDS)) + WORDS
    return body + hashlib.blake2b(body, digest_size=16, person=b"veil sequence v1").digest()


def sequence() -> Sequence:
    return Sequence(frames=(decode(WORDS), decode(WORDS)), cam_from_rig=(STILL, TURN))


def test_a_sequence_put_together_by_hand() -> None:
    """Golden: the bytes of the reference, and the frames and motions that veil reads of them."""
    assert encode_sequence(sequence()) == by_hand()
    got = decode_sequence(by_hand())
    assert holds_sequence(by_hand()) and not holds_sequence(WORDS)
    for motion, expected in zip(got.cam_from_rig, (STILL, TURN), strict=True):
        np.testing.assert_array_equal(motion.rotation, expected.rotation)
        np.testing.assert_array_equal(motion.translation, expected.translation)
    assert [encode(frame) for frame in got.frames] == [WORDS, WORDS]


def test_motions_come_back_to_the_last_bit() -> None:
    random = generator("sequence motions")
    frame = decode(WORDS)
    for count in (2, 5):
        motions = tuple(
            Rigid(rotation=Rotation.from_rotvec(random.normal(size=3)).as_matrix(), translation=random.normal(size=3))
            for _ in range(count)
        )
        got = decode_sequence(encode_sequence(Sequence(frames=(frame,) * count, cam_from_rig=motions)))
        for one, other in zip(got.cam_from_rig, motions, strict=True):
            np.testing.assert_array_equal(one.rotation, other.rotation)
            np.testing.assert_array_equal(one.translation, other.translation)


def test_one_image_and_a_sequence_are_not_taken_for_each_other() -> None:
    with pytest.raises(WireError, match="read one image by decode"):
        decode_sequence(WORDS)
    with pytest.raises(WireError, match="kind"):
        decode(by_hand())


def test_damaged_and_forged_sequences_are_refused_and_never_crash() -> None:
    """Hostile bytes: every truncation and thousands of flips fail with a message, as the checksum covers all."""
    data = by_hand()
    for piece in truncated(data, 200):
        assert isinstance(outcome(partial(decode_sequence, piece)), WireError)
    for piece in flipped(generator("flipped sequences"), data, 500):
        assert piece == data or isinstance(outcome(partial(decode_sequence, piece)), WireError)


def forged(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=16, person=b"veil sequence v1").digest()


def test_forged_lengths_motions_and_forms_are_named() -> None:
    """Forged with a right checksum: what the header claims is compared with what is there."""
    body = by_hand()[:-16]
    with pytest.raises(WireError, match="holds 65 frames"):
        decode_sequence(forged(body[:6] + struct.pack("<H", 65) + body[8:]))
    with pytest.raises(WireError, match="ends within frame 3"):
        decode_sequence(forged(body[:6] + struct.pack("<H", 3) + body[8:]))
    with pytest.raises(WireError, match="4294967295 bytes"):
        decode_sequence(forged(body[:104] + struct.pack("<I", (1 << 32) - 1) + body[108:]))
    with pytest.raises(WireError, match="left behind the last frame"):
        decode_sequence(forged(body + b"x"))
    with pytest.raises(WireError, match=r"frame 1: the motion contains NaN"):
        decode_sequence(forged(body[:8] + struct.pack("<d", np.nan) + body[16:]))
    with pytest.raises(WireError, match="mirrors"):
        decode_sequence(forged(body[:8] + struct.pack("<d", -1.0) + body[16:]))
    other = body[: 8 + 100 + len(WORDS)] + body[8 + 100 + len(WORDS) :][:96] + struct.pack("<I", len(HARDENED)) + HARDENED
    with pytest.raises(WireError, match="different forms"):
        decode_sequence(forged(other))
    with pytest.raises(WireError, match="version 2"):
        decode_sequence(forged(body[:4] + bytes([2]) + body[5:]))


def test_bad_motions_are_refused_by_name() -> None:
    frame = decode(WORDS)
    assert isinstance(frame, Upload)

    def with_motion(rotation: np.ndarray, translation: np.ndarray | None = None) -> None:
        moved = Rigid(rotation=rotation, translation=np.zeros(3) if translation is None else translation)
        Sequence(frames=(frame, frame), cam_from_rig=(STILL, moved))

    with pytest.raises(InputError, match=r"frame 2: the rotation is not orthonormal"):
        with_motion(1.01 * np.eye(3))
    with pytest.raises(InputError, match=r"frame 2: the rotation mirrors .* left-handed"):
        with_motion(np.diag([1.0, 1.0, -1.0]))
    with pytest.raises(InputError, match="NaN or infinity; was the tracking lost"):
        with_motion(np.full((3, 3), np.nan))
    with pytest.raises(InputError, match="NaN or infinity"):
        with_motion(np.eye(3), np.array([0.0, np.inf, 0.0]))
    with pytest.raises(InputError, match="2 frames need as many motions, got 1"):
        Sequence(frames=(frame, frame), cam_from_rig=(STILL,))
    with pytest.raises(InputError, match="2 to 64 frames, got 1"):
        Sequence(frames=(frame,), cam_from_rig=(STILL,))
    with pytest.raises(InputError, match="one form"):
        encode_sequence(Sequence(frames=(frame, decode(HARDENED)), cam_from_rig=(STILL, TURN)))

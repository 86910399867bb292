"""Gravity beside positions: decoding inverts encoding, messages without it are what they were, and hostile ones are refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError, WireError
from veil.wire.codec import CHECKSUM_BYTES, decode, encode
from veil.wire.message import Upload
from worlds import generator, unit
from worlds.word_uploads import subsets, word_upload

HEAD_BYTES, FLAGS = 106, 8


def sealed(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()


def with_gravity(count: int = 7) -> Upload:
    down = unit(generator("gravity on the wire").normal(size=3) * 0.1 + [0, 1, 0])
    sent = word_upload(subsets(count, 2, words=300))
    assert isinstance(sent, Upload)
    return replace(sent, gravity=down)


def test_gravity_comes_back() -> None:
    sent = with_gravity()
    got = decode(encode(sent))
    assert isinstance(got, Upload) and got.gravity is not None and sent.gravity is not None
    assert got.gravity.tobytes() == sent.gravity.tobytes()
    np.testing.assert_array_equal(got.keypoints, sent.keypoints)
    assert encode(got) == encode(sent)


def test_gravity_adds_a_flag_and_24_bytes_before_the_positions_and_nothing_else() -> None:
    """Layout: all the other bytes of both messages are equal, so that messages without gravity are what they were."""
    sent = with_gravity()
    assert sent.gravity is not None
    plain, message = encode(replace(sent, gravity=None)), encode(sent)
    start = HEAD_BYTES + 8 * len(sent.camera.params)
    assert message[start : start + 24] == sent.gravity.astype("<f8").tobytes()
    assert (plain[FLAGS], message[FLAGS]) == (5, 7)
    body = message[:FLAGS] + plain[FLAGS : FLAGS + 1] + message[FLAGS + 1 : start] + message[start + 24 : -CHECKSUM_BYTES]
    assert sealed(body) == plain


@pytest.mark.parametrize("down", [[0.0, 0.0, 0.0], [0.0, 1.1, 0.0], [np.nan, 1, 0], [np.inf, 0, 0]])
def test_gravity_that_is_no_unit_vector_is_refused(down: list[float]) -> None:
    sent = with_gravity()
    with pytest.raises(InputError, match="unit vector"):
        replace(sent, gravity=np.array(down))
    message = encode(sent)
    start = HEAD_BYTES + 8 * len(sent.camera.params)
    body = message[:start] + np.array(down).astype("<f8").tobytes() + message[start + 24 : -CHECKSUM_BYTES]
    with pytest.raises(WireError, match="unit vector"):
        decode(sealed(body))


def test_a_flag_without_its_bytes_is_refused() -> None:
    plain = encode(replace(with_gravity(), gravity=None))
    flagged = plain[:FLAGS] + bytes([7]) + plain[FLAGS + 1 : -CHECKSUM_BYTES]
    with pytest.raises(WireError, match="header asks for"):
        decode(sealed(flagged))
    other = plain[:FLAGS] + bytes([1 << 4]) + plain[FLAGS + 1 : -CHECKSUM_BYTES]
    with pytest.raises(WireError, match="unknown flag"):
        decode(sealed(other))


@pytest.mark.parametrize("index", range(200))
def test_damaged_messages_are_refused_or_read_to_the_same_bytes(index: int) -> None:
    """Fuzzing with a checksum that fits: what is read is written again as it was."""
    random = generator(f"gravity fuzz {index}")
    body = bytearray(encode(with_gravity())[:-CHECKSUM_BYTES])
    for place in random.integers(0, len(body), 3):
        body[place] ^= 1 << int(random.integers(8))
    message = sealed(bytes(body))
    try:
        got = decode(message)
    except WireError as error:
        assert str(error)
        return
    assert encode(got) == message

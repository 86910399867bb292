"""Messages: decoding inverts encoding, the layout is as documented, and ten thousand hostile messages are refused."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
from dataclasses import fields

import numpy as np
import pytest

from veil.distances import reference
from veil.errors import InputError, VeilError, WireError
from veil.forms import Lines, Subspaces
from veil.space import Space
from veil.wire.codec import CHECKSUM_BYTES, decode, encode
from veil.wire.message import LineUpload, Upload
from worlds import camera, generator, sift_like, subspaces, unit

HEAD = struct.Struct("<4sBBBBBBHHIHHf32s16s32s")
FUZZ_CASES = 10_000


def upload(count: int = 5, dim: int = 8, m: int = 2, *, releasable: bool = True) -> Upload:
    random = generator(f"upload {count} {dim} {m}")
    space = Space(descriptor="sift", normalization="L2", dim=dim)
    form = subspaces(random, unit(sift_like(random, count, dim)), m, space, releasable=releasable)
    return Upload(camera=camera(), keypoints=random.uniform(0, 400, (count, 2)).astype(np.float32), form=form)


def line_upload(count: int = 5, dim: int = 8, m: int = 2, *, gravity: bool = True, releasable: bool = True) -> LineUpload:
    random = generator(f"lines {count}")
    theta = random.uniform(0, np.pi, count)
    down = np.array([0.0, 0.8, 0.6])
    lines = Lines(
        coefficients=np.stack([np.cos(theta), np.sin(theta), random.uniform(-0.4, 0.4, count)], axis=1).astype(np.float32),
        aligned=(random.random(count) < 0.5) & gravity,
        gravity=down if gravity else None,
        releasable=releasable,
    )
    return LineUpload(camera=camera(), lines=lines, form=upload(count, dim, m).form)


def sealed(body: bytes) -> bytes:
    """Message body with a checksum that fits, as a hostile sender would make it."""
    return body + hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 4e-3)])
def test_what_is_encoded_is_decoded(dtype, tolerance: float) -> None:
    """Inverse pair: everything but the last digits comes back, and distances survive the rounding."""
    sent = upload(40, 64, 4)
    got = decode(encode(sent, dtype=dtype))
    assert isinstance(got, Upload) and isinstance(got.form, Subspaces) and isinstance(sent.form, Subspaces)
    assert (got.camera, got.form.space, got.form.profile) == (sent.camera, sent.form.space, sent.form.profile)
    assert got.form.releasable
    np.testing.assert_array_equal(got.keypoints, sent.keypoints)
    points = unit(sift_like(generator("probe"), 30, 64))
    before = reference.point_to_subspace(points, (sent.form.origin, sent.form.basis))
    after = reference.point_to_subspace(points, (got.form.origin, got.form.basis))
    np.testing.assert_allclose(after, before, atol=tolerance)
    gram = np.einsum("fin,fjn->fij", got.form.basis, got.form.basis)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(4), gram.shape), atol=1e-6)


@pytest.mark.parametrize("gravity", [True, False])
@pytest.mark.parametrize("count", [1, 8, 21])
def test_lines_come_back(gravity: bool, count: int) -> None:
    """Inverse pair, for counts on both sides of a full byte of flags."""
    sent = line_upload(count, gravity=gravity)
    got = decode(encode(sent, dtype="float16"))
    assert isinstance(got, LineUpload)
    np.testing.assert_array_equal(got.lines.coefficients, sent.lines.coefficients)
    np.testing.assert_array_equal(got.lines.aligned, sent.lines.aligned)
    assert (got.lines.gravity is None) == (not gravity)
    if sent.lines.gravity is not None and got.lines.gravity is not None:
        np.testing.assert_array_equal(got.lines.gravity, sent.lines.gravity)
    with pytest.raises(WireError, match="seeded study"):
        encode(line_upload(releasable=False), dtype="float16")
    with pytest.raises(InputError, match="one line a feature"):
        LineUpload(camera=sent.camera, lines=sent.lines, form=upload(count + 1).form)


def test_layout_of_version_one() -> None:
    """Golden: the header's fields in order, and the length to the byte."""
    message = encode(upload(), dtype="float16")
    head = HEAD.unpack_from(message)
    assert head[:12] == (b"VEIL", 1, 1, 2, 1, 5, 0, 640, 480, 5, 8, 2)
    assert head[13].rstrip(b"\0") == b"sift"
    assert head[14].rstrip(b"\0") == b"paper"
    assert head[15] == bytes(32)
    assert struct.unpack_from("<4d", message, HEAD.size) == camera().params
    assert len(message) == HEAD.size + 4 * 8 + 5 * 8 + 5 * 8 * 3 * 2 + CHECKSUM_BYTES
    assert sealed(message[:-CHECKSUM_BYTES]) == message


def test_an_upload_has_no_place_for_anything_else() -> None:
    """Uploads have these fields, and none for raw descriptors, scales, orientations, responses, EXIF or file names."""
    assert [f.name for f in fields(Upload)] == ["camera", "keypoints", "form", "gravity"]
    assert [f.name for f in fields(LineUpload)] == ["camera", "lines", "form"]
    assert {f.name for f in fields(Lines)} == {"coefficients", "aligned", "gravity", "releasable", "guarantee"}
    names = {f.name for f in fields(type(upload().form))}
    assert names == {"origin", "basis", "space", "guarantee", "profile", "releasable", "sent_as"}


def test_a_study_cannot_be_released() -> None:
    with pytest.raises(WireError, match="seeded study"):
        encode(upload(releasable=False), dtype="float32")


def test_uploads_refuse_what_they_cannot_mean() -> None:
    good = upload()
    with pytest.raises(InputError, match="one position a feature"):
        Upload(camera=good.camera, keypoints=good.keypoints[:3], form=good.form)
    with pytest.raises(InputError, match="NaN"):
        Upload(camera=good.camera, keypoints=good.keypoints * np.float32(np.nan), form=good.form)


def survives(message: bytes) -> bool:
    """Whether a message decodes to finite numbers (True) or raises WireError (False); anything else fails the test."""
    try:
        got = decode(message)
    except WireError as error:
        assert str(error)
        return False
    assert np.isfinite(got.keypoints if isinstance(got, Upload) else got.lines.coefficients).all()
    assert isinstance(got.form, Subspaces)
    assert np.isfinite(got.form.origin).all() and np.isfinite(got.form.basis).all()
    assert 1 <= got.form.m < got.form.space.dim
    return True


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_ten_thousand_hostile_messages() -> None:
    """Truncated, flipped, grown, resealed and random messages give WireError or a valid upload, never another exception."""
    random = generator("fuzz")
    good = [encode(upload(), dtype="float16"), encode(upload(3, 6, 1), dtype="float32")]
    good += [encode(line_upload(), dtype="float16"), encode(line_upload(3, 6, 1, gravity=False), dtype="float32")]
    assert all(survives(message) for message in good)
    cases = 0
    for message in good:
        for length in range(len(message)):
            assert not survives(message[:length])
            cases += 1
        for bit in range(8 * len(message)):
            flipped = bytearray(message)
            flipped[bit // 8] ^= 1 << bit % 8
            assert not survives(bytes(flipped))
            cases += 1
    resealed_accepted = 0
    while cases < FUZZ_CASES + 10_000:
        body = bytearray(good[cases // 2 % 4][:-CHECKSUM_BYTES])
        for _ in range(int(random.integers(1, 6))):
            body[int(random.integers(len(body)))] = int(random.integers(256))
        if cases % 5 == 1:
            body += random.bytes(int(random.integers(1, 40)))
        resealed_accepted += survives(sealed(bytes(body)))
        assert not survives(random.bytes(int(random.integers(0, 300))))
        cases += 2
    assert cases >= FUZZ_CASES
    assert resealed_accepted > 50  # harmless changes of numbers do pass: the checks behind the checksum were reached


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 6e4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_impossible_numbers_behind_a_good_checksum(value: float, dtype) -> None:
    """Impossible values in every number of the payload in turn are refused; zeros make the basis rank deficient."""
    message = encode(upload(), dtype=dtype)
    start = HEAD.size + 4 * 8
    item = np.dtype(dtype)
    for index in range(10):
        body = bytearray(message[:-CHECKSUM_BYTES])
        struct.pack_into("<f", body, start + 4 * index, value)
        if not np.isfinite(value):
            assert not survives(sealed(bytes(body)))
    payload = start + 5 * 8
    for index in range(5 * 8 * 3):
        body = bytearray(message[:-CHECKSUM_BYTES])
        place = payload + item.itemsize * index
        body[place : place + item.itemsize] = np.array(value, dtype=item).tobytes()
        accepted = survives(sealed(bytes(body)))
        assert not accepted or np.isfinite(value)
    body = bytearray(message[:-CHECKSUM_BYTES])
    body[payload + 5 * 8 * item.itemsize :] = bytes(len(body) - payload - 5 * 8 * item.itemsize)
    assert not survives(sealed(bytes(body)))


def test_memory_is_bounded_by_the_message() -> None:
    """Memory for headers that ask for gigabytes with few bytes behind them, and for a long honest message."""
    body = encode(upload(), dtype="float16")[:-CHECKSUM_BYTES]
    for count, dim, m in ((1 << 17, 4096, 4095), ((1 << 32) - 1, 4096, 4095), (5, 4096, 2), (1 << 17, 8, 2)):
        fields_ = list(HEAD.unpack_from(body))
        fields_[9], fields_[10], fields_[11] = count, dim, m
        hostile = sealed(HEAD.pack(*fields_) + body[HEAD.size :])
        assert _peak(hostile) < 1 << 20
    for dim, m in ((4096, 4095), (2048, 1024)):  # each basis of 2^20 numbers and more takes seconds and hundreds of megabytes
        fields_ = list(HEAD.unpack_from(body))
        fields_[9], fields_[10], fields_[11] = 1, dim, m
        hostile = sealed(HEAD.pack(*fields_) + bytes(4 * 8 + 8 + 2 * dim * (m + 1)))
        with pytest.raises(WireError, match=f"bases of {m} x {dim} numbers"):
            decode(hostile)
    honest = encode(upload(3000, 64, 4), dtype="float16")
    assert _peak(honest) < 8 * len(honest)


def _peak(message: bytes) -> int:
    tracemalloc.start()
    try:
        decode(message)
    except VeilError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FA00000, 0x7FC00000, 0x7F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x60000000])
def test_lines_of_no_length(bits: int) -> None:
    """Signaling NaNs, infinities and the largest floats in lines are refused before any arithmetic is done with them."""
    message = encode(line_upload(), dtype="float16")
    start = HEAD.size + 4 * 8 + 24
    for index in range(2):
        body = bytearray(message[:-CHECKSUM_BYTES])
        for other in range(index, 2):
            struct.pack_into("<I", body, start + 4 * other, bits)
        assert not survives(sealed(bytes(body)))
    for high in (0x7FF00000, 0x7FF40000, 0x7FEFFFFF):
        body = bytearray(message[:-CHECKSUM_BYTES])
        struct.pack_into("<II", body, start - 24, 1, high)
        assert not survives(sealed(bytes(body)))

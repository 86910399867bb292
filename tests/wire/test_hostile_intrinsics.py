"""Messages with a camera that no photograph has, or positions outside it, are refused quickly when they are decoded."""

from __future__ import annotations

import hashlib
import struct
import time

import numpy as np
import pytest

from veil.errors import InputError, WireError
from veil.geometry.camera import MODELS
from veil.space import Space
from veil.wire import LineUpload, Message, Upload, decode, encode
from veil.wire.codec import CHECKSUM_BYTES
from veil.wire.head import HEAD_BYTES
from worlds import camera, generator, sift_like, subspaces, unit
from worlds.hostile_cameras import HOSTILE
from worlds.word_uploads import subsets, word_line_upload, word_upload


def upload() -> Upload:
    """Upload of subspaces with positions."""
    random = generator("hostile intrinsics")
    form = subspaces(random, unit(sift_like(random, 5, 8)), 2, Space(descriptor="sift", normalization="L2", dim=8))
    return Upload(camera=camera(), keypoints=random.uniform(0, 400, (5, 2)).astype(np.float32), form=form)


def line_upload() -> LineUpload:
    """Upload of subspaces with lines."""
    return LineUpload(camera=camera(), lines=word_line_upload(subsets(5)).lines, form=upload().form)


SENT: dict[str, Message] = {
    "subspaces": upload(),
    "lines": line_upload(),
    "words": word_upload(),
    "words with lines": word_line_upload(),
}
_MODEL, _SIZE, _PARAMETERS = 7, 10, HEAD_BYTES  # docs/reference/wire.md: offsets


def forged(sent: Message, model: str, params: tuple[float, ...], size: tuple[int, int] = (640, 480)) -> bytes:
    """Message of `sent` with another camera and a checksum that fits, as no honest sender can make it."""
    body = bytearray(encode(sent)[:-CHECKSUM_BYTES])
    body[_MODEL] = list(MODELS).index(model)
    body[_SIZE : _SIZE + 4] = struct.pack("<HH", *size)
    body[_PARAMETERS : _PARAMETERS + 32] = struct.pack(f"<{len(params)}d", *params)
    return bytes(body) + hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SENT)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_intrinsics_are_refused(name: str, kind: str) -> None:
    """Intrinsics that made mappers hang and poses wrong are refused within milliseconds."""
    model, params = HOSTILE[name]
    message = forged(SENT[kind], model, params)
    begun = time.process_time()
    with pytest.raises(WireError, match=r"impossible values: .*; "):
        decode(message)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("kind", SENT)
def test_the_upload_that_collapsed_a_map_is_refused(kind: str) -> None:
    """A focal length of 1e-3 px, said to be known, on an image of 65535 x 65535 px is refused."""
    for focal in (1e-3, 50_000.0):  # the size alone suffices
        with pytest.raises(WireError, match="65535x65535 px"):
            decode(forged(SENT[kind], "PINHOLE", (focal, focal, 32767.0, 32767.0), size=(65535, 65535)))


@pytest.mark.parametrize("kind", SENT)
def test_an_honest_camera_is_still_read(kind: str) -> None:
    """Counterexample to the tests above: the same forgery with parameters of a real camera is read."""
    assert decode(forged(SENT[kind], "PINHOLE", (480.0, 482.0, 318.0, 243.0))).camera.params[0] == 480.0


def test_positions_outside_the_image_are_refused() -> None:
    """Positions more than 2 px outside the image are refused, for each coordinate of each keypoint, up to the largest float."""
    sent = upload()
    body = encode(sent)[:-CHECKSUM_BYTES]
    for index in range(2 * len(sent)):
        for value in (-2.5, 643.0, 1e38, -3e38):
            changed = bytearray(body)
            struct.pack_into("<f", changed, HEAD_BYTES + 32 + 4 * index, value)
            with pytest.raises(WireError, match="outside the image of 640x480 px"):
                decode(bytes(changed) + hashlib.blake2b(changed, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest())


def test_lines_that_pass_the_image_are_refused() -> None:
    sent = line_upload()
    body = encode(sent)[:-CHECKSUM_BYTES]
    for index in range(len(sent)):
        for value in (1.0, -1.0, 3e38):
            changed = bytearray(body)
            struct.pack_into("<f", changed, HEAD_BYTES + 32 + 24 + 12 * index + 8, value)
            with pytest.raises(WireError, match=f"line {index} does not meet the image"):
                decode(bytes(changed) + hashlib.blake2b(changed, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest())


def test_the_device_does_not_send_what_the_server_would_refuse() -> None:
    """An upload with such a camera or such positions cannot be made at all."""
    good = upload()
    with pytest.raises(InputError, match="outside the image"):
        type(good)(camera=good.camera, keypoints=good.keypoints + np.float32(1000), form=good.form)

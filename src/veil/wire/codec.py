"""Encoding of messages as bytes, version 1 (docs/reference/wire.md): lengths are checked before anything is allocated."""

from __future__ import annotations

import hashlib

import numpy as np

from veil.errors import InputError, WireError
from veil.forms import Lines, Subsets
from veil.wire import codec_subspaces, codec_words
from veil.wire.codec_subspaces import ITEM_BYTES, Dtype
from veil.wire.codec_words import mechanism_of
from veil.wire.head import GRAVITY_BYTES, HEAD_BYTES, MAX_FEATURES, Head, camera_and_space, head_of, read_head, text
from veil.wire.message import LineUpload, Message, Upload

CHECKSUM_BYTES = 16


def encode(upload: Message, *, dtype: Dtype = "float16") -> bytes:
    """The bytes of an upload as a message of version 1 (docs/reference/wire.md).

    `upload` is an `Upload` or a `LineUpload` from a release; `dtype` is the precision of a subspace's numbers, "float16" or
    "float32" (words and positions do not depend on it).
    Raises WireError for a form or lines that a seeded study made, InputError for no features or more than a message holds, and
    for numbers that do not fit.
    """
    form = upload.form
    lines = upload.lines if isinstance(upload, LineUpload) else None
    if not form.releasable:
        raise WireError("this form was drawn from a seeded study and must not be released; privatize with a secret")
    if lines is not None and not lines.releasable:
        raise WireError("these lines were drawn from a seeded study and must not be released; privatize with a secret")
    if not 1 <= len(form) <= MAX_FEATURES:
        raise InputError(f"an upload holds 1 to {MAX_FEATURES} features, got {len(form)}; extract more or fewer")
    if isinstance(form, Subsets):
        own, payload = codec_words.own_and_payload(form)
    else:
        own, payload = codec_subspaces.own_and_payload(form, dtype)
    head = head_of(
        upload.camera,
        form.space,
        features=len(form),
        m=form.m,
        has_words=isinstance(form, Subsets),
        has_lines=lines is not None,
        gravity_is_known=(upload.lines.gravity if isinstance(upload, LineUpload) else upload.gravity) is not None,
        item_bytes=0 if isinstance(form, Subsets) else ITEM_BYTES[dtype],
        own=own,
    )
    parameters = np.asarray(upload.camera.params, dtype="<f8").tobytes()
    body = b"".join([head.pack(), parameters, _encode_observations(upload), payload])
    return body + _checksum(body)


def _encode_observations(upload: Message) -> bytes:
    """Bytes of gravity and positions, or of gravity, lines, and one bit for each line that says if it is aligned.

    An unknown gravity has no bytes before positions, and zeros before lines.
    """
    if isinstance(upload, Upload):
        down = b"" if upload.gravity is None else upload.gravity.astype("<f8").tobytes()
        return down + np.ascontiguousarray(upload.keypoints, dtype="<f4").tobytes()
    lines = upload.lines
    gravity = np.zeros(3) if lines.gravity is None else lines.gravity
    aligned = np.packbits(lines.aligned, bitorder="little")
    return gravity.astype("<f8").tobytes() + lines.coefficients.astype("<f4").tobytes() + aligned.tobytes()


def decode(message: bytes) -> Message:
    """The `Upload` or `LineUpload` that the bytes of `message` hold (docs/reference/wire.md).

    Raises WireError for anything that `encode` would not have written. Memory stays proportional to the length of `message`:
    sizes are compared with it before the payload is touched.
    """
    if len(message) < HEAD_BYTES + CHECKSUM_BYTES:
        raise WireError(f"the message is truncated: {len(message)} bytes are less than a header")
    head = read_head(message)
    codec = codec_words if head.has_words else codec_subspaces
    length = message_length(head)
    if len(message) != length:
        raise WireError(f"the message has {len(message)} bytes but its header asks for {length}; transfer it again")
    if _checksum(memoryview(message)[:-CHECKSUM_BYTES]) != message[-CHECKSUM_BYTES:]:
        raise WireError("the checksum does not match: the message was damaged; transfer it again")
    camera, space = camera_and_space(message, head)
    try:
        form = codec.read_payload(message, head, space)
        if head.has_lines:
            return LineUpload(camera=camera, lines=_decode_lines(message, head), form=form)
        start, gravity = head.observations_offset, None
        if head.gravity_is_known:
            gravity = np.frombuffer(message, "<f8", 3, start).astype(np.float64)
            start += GRAVITY_BYTES
        keypoints = np.frombuffer(message, "<f4", 2 * head.features, start).reshape(head.features, 2)
        return Upload(camera=camera, keypoints=keypoints.astype(np.float32), form=form, gravity=gravity)
    except InputError as error:
        raise WireError(f"the message holds impossible values: {error}") from None


def message_length(head: Head) -> int:
    """Length in bytes of the message that a header begins. Raises WireError for sizes that no message may have."""
    codec = codec_words if head.has_words else codec_subspaces
    return head.payload_offset + codec.payload_bytes(head) + CHECKSUM_BYTES


def _decode_lines(message: bytes, head: Head) -> Lines:
    """Lines of a message whose length was checked. Raises WireError for bytes that `encode` would not have written."""
    start = head.observations_offset
    gravity = np.frombuffer(message, "<f8", 3, start).astype(np.float64)
    if not head.gravity_is_known and any(
        message[start : start + GRAVITY_BYTES]
    ):  # bytes: -0.0 is not what encode writes either
        raise WireError("gravity is given although the header says that it is not known")
    coefficients = np.frombuffer(message, "<f4", 3 * head.features, start + GRAVITY_BYTES).reshape(head.features, 3)
    packed = np.frombuffer(message, np.uint8, (head.features + 7) // 8, start + GRAVITY_BYTES + 12 * head.features)
    bits = np.unpackbits(packed, bitorder="little")
    if bits[head.features :].any():
        raise WireError("bits are set behind the last line")
    return Lines(
        coefficients=coefficients.astype(np.float32),
        aligned=bits[: head.features].astype(bool),
        gravity=gravity if head.gravity_is_known else None,
        releasable=True,
    )


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()


PREFIX = "veil:"


def sanitization(head: Head) -> tuple[str, str]:
    """Sanitization of descriptors and of positions (docs/reference/geopose.md#what-was-done-to-the-features).

    Such as ("veil:words:epsilon=8", "veil:lines"). Raises WireError for a header that gives no mechanism or profile.
    """
    if head.has_words:
        descriptors = f"{PREFIX}words:epsilon={mechanism_of(head).epsilon:g}"
    else:
        descriptors = f"{PREFIX}subspaces:{text(head.own, 'profile')}"
    return descriptors, f"{PREFIX}lines" if head.has_lines else f"{PREFIX}positions"

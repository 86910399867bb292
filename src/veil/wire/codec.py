"""Messages as bytes, version 1 (docs/reference/wire.md): every length is checked before anything is allocated."""

from __future__ import annotations

import hashlib
import struct
from typing import Literal, NamedTuple

import numpy as np

from veil.errors import InputError, WireError
from veil.forms import Lines, Subspaces, canonical, lifted_guarantee
from veil.geometry.camera import MODELS, Camera
from veil.space import NORMALIZATIONS, Space
from veil.wire.message import LineUpload, Message, Upload

MAGIC = b"VEIL"
VERSION = 1
CHECKSUM_BYTES = 16
MAX_FEATURES = 1 << 17
MAX_ORIGIN = 1e3  # descriptors have unit length; float16 ends at 65504
Dtype = Literal["float16", "float32"]

# magic, version, kind, item bytes, camera model, flags, normalization, width, height, features, dim, m,
# dither steps, descriptor, profile, codebook digest
_HEAD = struct.Struct("<4sBBBBBBHHIHHf32s16s32s")
_KIND_POSITIONS, _KIND_LINES = 1, 2
_FOCAL_KNOWN, _GRAVITY_KNOWN = 1, 2
_MODEL_NAMES = tuple(MODELS)
_ITEM_BYTES: dict[Dtype, int] = {"float16": 2, "float32": 4}
_PROFILE_BYTES = 16
_CHUNK_FLOATS = 1 << 16  # float64 numbers of bases at a time: half a megabyte


def encode(upload: Message, *, dtype: Dtype) -> bytes:
    """The message of `upload`. Raises WireError for a form that a seeded study made, InputError if it does not fit."""
    _require_encodable(upload.form)
    form, camera = upload.form, upload.camera
    lines = upload.lines if isinstance(upload, LineUpload) else None
    if lines is not None and not lines.releasable:
        raise WireError("these lines were drawn from a seeded study and must not be released; privatize with a secret")
    flags = _FOCAL_KNOWN * camera.focal_is_known
    if lines is not None and lines.gravity is not None:
        flags |= _GRAVITY_KNOWN
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        _KIND_POSITIONS if lines is None else _KIND_LINES,
        _ITEM_BYTES[dtype],
        _MODEL_NAMES.index(camera.model),
        flags,
        NORMALIZATIONS.index(form.space.normalization),
        camera.width_px,
        camera.height_px,
        len(form),
        form.space.dim,
        form.m,
        form.space.dither_steps,
        form.space.descriptor.encode("ascii"),
        form.profile.encode("ascii"),
        bytes.fromhex(form.space.codebook) if form.space.codebook else bytes(32),
    )
    item = np.dtype(dtype).newbyteorder("<")
    body = b"".join(
        [
            head,
            np.asarray(camera.params, dtype="<f8").tobytes(),
            _encode_positions(upload),
            form.origin.astype(item).tobytes(),
            form.basis.astype(item).tobytes(),
        ]
    )
    return body + _checksum(body)


def _encode_positions(upload: Message) -> bytes:
    """Positions, or gravity (zeros if unknown), lines, and one bit a line for those along gravity."""
    if isinstance(upload, Upload):
        return np.ascontiguousarray(upload.keypoints, dtype="<f4").tobytes()
    lines = upload.lines
    gravity = np.zeros(3) if lines.gravity is None else lines.gravity
    aligned = np.packbits(lines.aligned, bitorder="little")
    return gravity.astype("<f8").tobytes() + lines.coefficients.astype("<f4").tobytes() + aligned.tobytes()


def _require_encodable(form: Subspaces) -> None:
    if not form.releasable:
        raise WireError("this form was drawn from a seeded study and must not be released; privatize with a secret")
    if not 1 <= len(form) <= MAX_FEATURES:
        raise InputError(f"an upload holds 1 to {MAX_FEATURES} features, got {len(form)}; extract more or fewer")
    if not (1 <= len(form.profile) <= _PROFILE_BYTES and form.profile.isascii() and form.profile.isprintable()):
        raise InputError(f"a profile's name must be 1 to {_PROFILE_BYTES} printable ASCII characters, got {form.profile!r}")
    if not ((np.abs(form.origin) < MAX_ORIGIN).all() and (np.abs(form.basis) < MAX_ORIGIN).all()):  # also catches NaN
        raise InputError("a subspace holds NaN, infinity or numbers far from any descriptor; privatize the image again")


def decode(message: bytes) -> Message:
    """Read a message. Raises WireError for anything that `encode` would not have written.

    Memory stays proportional to len(message): sizes are compared with the length before the payload is touched.
    """
    head = _read_head(message)
    camera, space = _interpret(message, head)
    item = np.dtype("<f2" if head.item_bytes == 2 else "<f4")
    offset = head.payload_offset + head.position_bytes
    origin = np.frombuffer(message, item, head.features * head.dim, offset).reshape(head.features, head.dim)
    offset += origin.nbytes
    basis = np.frombuffer(message, item, head.features * head.m * head.dim, offset).reshape(head.features, head.m, head.dim)
    profile = _text(head.profile, "profile")
    try:
        origin, basis = _canonical_chunks(origin, basis)
        form = Subspaces(
            origin=origin,
            basis=basis,
            space=space,
            guarantee=lifted_guarantee(profile),
            profile=profile,
            releasable=True,
        )
        if head.kind == _KIND_LINES:
            return LineUpload(camera=camera, lines=_decode_lines(message, head), form=form)
        keypoints = np.frombuffer(message, "<f4", 2 * head.features, head.payload_offset).reshape(head.features, 2)
        return Upload(camera=camera, keypoints=keypoints.astype(np.float32), form=form)
    except InputError as error:
        raise WireError(f"the message holds impossible values: {error}") from None


def _decode_lines(message: bytes, head: _Head) -> Lines:
    start = head.payload_offset
    gravity = np.frombuffer(message, "<f8", 3, start).astype(np.float64)
    known = bool(head.flags & _GRAVITY_KNOWN)
    if not known and gravity.any():
        raise WireError("gravity is given although the header says that it is not known")
    coefficients = np.frombuffer(message, "<f4", 3 * head.features, start + 24).reshape(head.features, 3)
    packed = np.frombuffer(message, np.uint8, (head.features + 7) // 8, start + 24 + 12 * head.features)
    bits = np.unpackbits(packed, bitorder="little")
    if bits[head.features :].any():
        raise WireError("bits are set behind the last line")
    return Lines(
        coefficients=coefficients.astype(np.float32),
        aligned=bits[: head.features].astype(bool),
        gravity=gravity if known else None,
        releasable=True,
    )


class _Head(NamedTuple):
    """The fixed part of a message, field by field as `_HEAD` packs it."""

    magic: bytes
    version: int
    kind: int
    item_bytes: int
    model: int
    flags: int
    normalization: int
    width_px: int
    height_px: int
    features: int
    dim: int
    m: int
    dither_steps: float
    descriptor: bytes
    profile: bytes
    codebook: bytes

    @property
    def payload_offset(self) -> int:
        return _HEAD.size + 8 * MODELS[_MODEL_NAMES[self.model]]

    @property
    def position_bytes(self) -> int:
        if self.kind == _KIND_POSITIONS:
            return 8 * self.features
        return 24 + 12 * self.features + (self.features + 7) // 8

    @property
    def message_bytes(self) -> int:
        floats = self.features * self.dim * (self.m + 1)
        return self.payload_offset + self.position_bytes + self.item_bytes * floats + CHECKSUM_BYTES


def _read_head(message: bytes) -> _Head:
    if len(message) < _HEAD.size + CHECKSUM_BYTES:
        raise WireError(f"the message is truncated: {len(message)} bytes are less than a header")
    head = _Head(*_HEAD.unpack_from(message))
    if head.magic != MAGIC:
        raise WireError("this is not a veil message; give a file that `veil privatize` wrote")
    if head.version != VERSION:
        raise WireError(f"message version {head.version} is not supported (this veil reads {VERSION}); update veil")
    if head.kind not in (_KIND_POSITIONS, _KIND_LINES) or head.item_bytes not in (2, 4) or head.model >= len(_MODEL_NAMES):
        raise WireError("the header names a kind, precision or camera model that does not exist")
    if head.flags & ~(_FOCAL_KNOWN | _GRAVITY_KNOWN * (head.kind == _KIND_LINES)) or head.normalization >= len(NORMALIZATIONS):
        raise WireError("the header holds an unknown flag or normalization")
    if not (1 <= head.features <= MAX_FEATURES and 1 <= head.m < head.dim):
        raise WireError(f"the header asks for {head.features} subspaces of dimension {head.m} in {head.dim}-D")
    if len(message) != head.message_bytes:
        raise WireError(f"the message has {len(message)} bytes but its header asks for {head.message_bytes}; transfer it again")
    if _checksum(memoryview(message)[:-CHECKSUM_BYTES]) != message[-CHECKSUM_BYTES:]:
        raise WireError("the checksum does not match: the message was damaged; transfer it again")
    return head


def _interpret(message: bytes, head: _Head) -> tuple[Camera, Space]:
    model = _MODEL_NAMES[head.model]
    try:
        space = Space(
            descriptor=_text(head.descriptor, "descriptor"),
            normalization=NORMALIZATIONS[head.normalization],
            dim=head.dim,
            codebook=head.codebook.hex() if any(head.codebook) else "",
            dither_steps=head.dither_steps,
        )
        camera = Camera(
            model=model,
            width_px=head.width_px,
            height_px=head.height_px,
            params=struct.unpack_from(f"<{MODELS[model]}d", message, _HEAD.size),
            focal_is_known=bool(head.flags & _FOCAL_KNOWN),
        )
    except InputError as error:
        raise WireError(f"the header holds impossible values: {error}") from None
    return camera, space


def _canonical_chunks(origin: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal again in float64 after the wire's rounding, a few features at a time."""
    origins = np.empty(origin.shape, dtype=np.float32)
    bases = np.empty(basis.shape, dtype=np.float32)
    step = max(1, _CHUNK_FLOATS // basis[0].size)
    for start in range(0, len(origin), step):
        part = slice(start, start + step)
        # Before any arithmetic: converting a signaling NaN is itself an invalid operation.
        if not (np.isfinite(origin[part]).all() and np.isfinite(basis[part]).all()):
            raise WireError("a subspace contains NaN or infinity")
        o, b = canonical(origin[part].astype(np.float64), basis[part].astype(np.float64))
        if not (np.abs(o) < MAX_ORIGIN).all():
            raise WireError("an origin lies far outside the space of descriptors")
        origins[part], bases[part] = o, b
    return origins, bases


def _text(field: bytes, name: str) -> str:
    text = field.rstrip(b"\0")
    if not text.isascii() or not text or not text.decode("ascii").isprintable():
        raise WireError(f"the {name} name is not printable ASCII")
    return text.decode("ascii")


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()

"""Header of a message: the fixed part, common to all kinds (docs/reference/wire.md)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

from veil.errors import InputError, Remedy, WireError
from veil.geometry.camera import GUESS, MODELS, UNDISCLOSED, Camera, FocalPrior, checked_camera
from veil.space import NORMALIZATIONS, Space

MAGIC = b"VEIL"
VERSION = 1
MAX_FEATURES = 1 << 17

# magic, version, kind, item bytes, camera model, flags, normalization, width, height, features, dim, m,
# dither steps, descriptor, the form's own, codebook digest
_HEAD = struct.Struct("<4sBBBBBBHHIHHf32s16s32s")
HEAD_BYTES = _HEAD.size
OWN_BYTES = 16
GRAVITY_BYTES = 24
MAX_M = (1 << 16) - 1
_LAST_KIND = 4
_FOCAL_KNOWN, _GRAVITY_KNOWN = 1, 2
# Relative deviations of known focal lengths by the two bits that stand for them; the first is that of messages without any.
_DEVIATIONS = (0.05, 0.01, 0.02, 0.1)
_DEVIATION_SHIFT, _DEVIATION_MASK = 2, 3
_MODEL_NAMES = tuple(MODELS)


class Head(NamedTuple):
    """Fields of a header, in the order in which `_HEAD` packs them; the meaning of `own` depends on the form."""

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
    own: bytes
    codebook: bytes

    @property
    def has_words(self) -> bool:
        """Whether the form is in words, not subspaces."""
        return self.kind > 2

    @property
    def has_lines(self) -> bool:
        """Whether lines take the place of positions."""
        return self.kind % 2 == 0

    @property
    def gravity_is_known(self) -> bool:
        """Whether lines or positions come with gravity."""
        return bool(self.flags & _GRAVITY_KNOWN)

    @property
    def focal(self) -> FocalPrior:
        """How well the focal length is known; of an undisclosed origin, or a guess."""
        deviation = _DEVIATIONS[self.flags >> _DEVIATION_SHIFT & _DEVIATION_MASK]
        return replace(UNDISCLOSED, deviation=deviation) if self.flags & _FOCAL_KNOWN else GUESS

    @property
    def observations_offset(self) -> int:
        """Offset in bytes of the positions or lines."""
        return HEAD_BYTES + 8 * MODELS[_MODEL_NAMES[self.model]]

    @property
    def payload_offset(self) -> int:
        """Offset in bytes of the form."""
        flags_of_lines = (self.features + 7) // 8
        positions = 8 * self.features + GRAVITY_BYTES * self.gravity_is_known
        lines = GRAVITY_BYTES + 12 * self.features + flags_of_lines
        return self.observations_offset + (lines if self.has_lines else positions)

    def pack(self) -> bytes:
        """Header as bytes."""
        return _HEAD.pack(*self)


def head_of(
    camera: Camera,
    space: Space,
    *,
    features: int,
    m: int,
    has_words: bool,
    has_lines: bool,
    gravity_is_known: bool,
    item_bytes: int,
    own: bytes,
) -> Head:
    """Header of a message about an image of `camera` whose form lives in `space`.

    `item_bytes` is the size of a subspace's number (0 for words), `own` what the form defines of the header.
    """
    return Head(
        magic=MAGIC,
        version=VERSION,
        kind=1 + has_lines + 2 * has_words,
        item_bytes=item_bytes,
        model=_MODEL_NAMES.index(camera.model),
        flags=_focal_flags(camera.focal.as_sent) | _GRAVITY_KNOWN * gravity_is_known,
        normalization=NORMALIZATIONS.index(space.normalization),
        width_px=camera.width_px,
        height_px=camera.height_px,
        features=features,
        dim=space.dim,
        m=m,
        dither_steps=space.dither_steps,
        descriptor=space.descriptor.encode("ascii"),
        own=own,
        codebook=bytes.fromhex(space.codebook) if space.codebook else bytes(32),
    )


def _focal_flags(sent: FocalPrior) -> int:
    """Bits of a header for a focal length as it is sent (`FocalPrior.as_sent`)."""
    return 0 if sent == GUESS else _FOCAL_KNOWN | _DEVIATIONS.index(sent.deviation) << _DEVIATION_SHIFT


def read_head(message: bytes) -> Head:
    """Header of `message`, which must be at least as long as one. Raises WireError for fields that no message may have."""
    head = Head(*_HEAD.unpack_from(message))
    if head.magic != MAGIC:
        raise WireError("this is not a veil message", remedy=Remedy("make", "messages"))
    if head.version != VERSION:
        raise WireError(f"message version {head.version} is not supported (this veil reads {VERSION}); update veil")
    if not 1 <= head.kind <= _LAST_KIND or head.item_bytes not in ((0,) if head.has_words else (2, 4)):
        raise WireError("the header names a kind or precision that does not exist; a newer veil may read it")
    if head.model >= len(_MODEL_NAMES) or head.normalization >= len(NORMALIZATIONS):
        raise WireError("the header names a camera model or normalization that does not exist")
    if head.flags & ~(_FOCAL_KNOWN | _GRAVITY_KNOWN | _DEVIATION_MASK << _DEVIATION_SHIFT):
        raise WireError("the header holds an unknown flag")
    if not head.flags & _FOCAL_KNOWN and head.flags >> _DEVIATION_SHIFT:
        raise WireError("the header gives a deviation of a focal length that is a guess")
    if not 1 <= head.features <= MAX_FEATURES:
        raise WireError(f"the header asks for {head.features} features; a message holds 1 to {MAX_FEATURES}")
    return head


def camera_and_space(message: bytes, head: Head) -> tuple[Camera, Space]:
    """Camera and space that the header names. Raises WireError for values that no camera or space may have."""
    model = _MODEL_NAMES[head.model]
    try:
        space = Space(
            descriptor=text(head.descriptor, "descriptor"),
            normalization=NORMALIZATIONS[head.normalization],
            dim=head.dim,
            codebook=head.codebook.hex() if any(head.codebook) else "",
            dither_steps=head.dither_steps,
        )
        camera = Camera(
            model=model,
            width_px=head.width_px,
            height_px=head.height_px,
            params=struct.unpack_from(f"<{MODELS[model]}d", message, HEAD_BYTES),
            focal=head.focal,
        )
        checked_camera(camera)
    except InputError as error:
        raise WireError(f"the header holds impossible values: {error}") from None
    return camera, space


def text(field: bytes, name: str) -> str:
    """Name in a field that is padded with zeros. Raises WireError if it is empty or not printable ASCII."""
    stripped = field.rstrip(b"\0")
    if not stripped.isascii() or not stripped or not stripped.decode("ascii").isprintable():
        raise WireError(f"the {name} name is not printable ASCII")
    return stripped.decode("ascii")

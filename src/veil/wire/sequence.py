"""Several frames and their motions: a record, and the bytes of one message that holds them.

Format: docs/reference/wire.md#sequences.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from veil.errors import InputError, WireError
from veil.forms import Subsets
from veil.geometry.rigid import Rigid
from veil.one_line import line
from veil.wire.codec import CHECKSUM_BYTES, decode, encode
from veil.wire.head import MAGIC, VERSION
from veil.wire.message import LineUpload, Message

MOST_FRAMES = 64
SEQUENCE_KIND = 5
# magic, version, kind, number of frames
_HEAD = struct.Struct("<4sBBH")
# rotation by rows, translation, length of the frame's message
_FRAME = struct.Struct("<9d3dI")
# Largest entry of R R^T - 1 of a rotation.
ORTHONORMAL = 1e-6

Frame = TypeVar("Frame", covariant=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequence(Generic[Frame]):
    """Several frames of one camera or rig, and how they stand to each other.

    - `frames`: messages, or raw features on the device, in the order in which they were taken.
    - `cam_from_rig`: for each frame, the motion that takes coordinates of the rig to its camera (x right, y down, z forward).
      The rig is any frame that all motions share, as the first camera or the origin of a device's tracking. All lengths have
      one unit, such as the meter.

    Raises InputError for fewer than two frames or more than 64, another number of motions, numbers that are not finite,
    rotations that are not orthonormal, and mirrored axes.
    """

    frames: tuple[Frame, ...]
    cam_from_rig: tuple[Rigid, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "frames", tuple(self.frames))
        object.__setattr__(self, "cam_from_rig", tuple(self.cam_from_rig))
        if not 2 <= len(self.frames) <= MOST_FRAMES:
            raise InputError(f"a sequence has 2 to {MOST_FRAMES} frames, got {len(self.frames)}")
        if len(self.cam_from_rig) != len(self.frames):
            raise InputError(f"{len(self.frames)} frames need as many motions, got {len(self.cam_from_rig)}")
        for number, motion in enumerate(self.cam_from_rig, start=1):
            require_motion(motion, f"frame {number}")

    def __repr__(self) -> str:
        return line(self, {"frames": len(self.frames)}.items())

    def __len__(self) -> int:
        return len(self.frames)


def require_motion(motion: Rigid, name: str) -> None:
    """Raise InputError unless a motion is rigid: finite, of an orthonormal rotation, and not a mirror image.

    `name` says whose it is.
    """
    rotation, translation = np.asarray(motion.rotation), np.asarray(motion.translation)
    if rotation.shape != (3, 3) or translation.shape != (3,):
        raise InputError(f"{name}: a motion is a rotation (3, 3) and a translation (3,)")
    if not (np.isfinite(rotation).all() and np.isfinite(translation).all()):
        raise InputError(f"{name}: the motion contains NaN or infinity; was the tracking lost there? Leave the frame out")
    bounded = bool((np.abs(rotation) < 2).all())
    off = float(np.abs(rotation @ rotation.T - np.eye(3)).max()) if bounded else math.inf
    if not off <= ORTHONORMAL:
        raise InputError(
            f"{name}: the rotation is not orthonormal (R R^T differs from 1 by {off:.2g}); does it hold a scale, or too few "
            "digits?"
        )
    if float(np.linalg.det(rotation)) < 0:
        raise InputError(
            f"{name}: the rotation mirrors (determinant -1); are the axes left-handed? Use x right, y down, z forward"
        )


def encode_sequence(sequence: Sequence[Message], *, dtype: Literal["float16", "float32"] = "float16") -> bytes:
    """The bytes of a sequence as one message: its motions, and the message of each frame.

    `sequence` holds messages of one form. `dtype` is that of subspaces, as `veil.wire.codec.encode` has it. Raises InputError
    for frames of different forms, and what that raises.
    """
    kinds = {kind_of(frame) for frame in sequence.frames}
    if len(kinds) > 1:
        raise InputError(f"the frames of a sequence have one form, got {', '.join(sorted(kinds))}")
    return joined_messages([encode(frame, dtype=dtype) for frame in sequence.frames], sequence.cam_from_rig)


def joined_messages(messages: Collection[bytes], cam_from_rig: Iterable[Rigid]) -> bytes:
    """The bytes of a sequence from the messages of its frames, which have one form, and their motions."""
    parts = [_HEAD.pack(MAGIC, VERSION, SEQUENCE_KIND, len(messages))]
    for message, motion in zip(messages, cam_from_rig, strict=True):
        parts += [_FRAME.pack(*motion.rotation.ravel(), *motion.translation, len(message)), message]
    body = b"".join(parts)
    return body + _checksum(body)


def holds_sequence(message: bytes) -> bool:
    """Whether bytes begin as the message of a sequence does."""
    return len(message) >= _HEAD.size and message[:4] == MAGIC and message[5] == SEQUENCE_KIND


def decode_sequence(message: bytes) -> Sequence[Message]:
    """The frames and motions that the bytes of a sequence hold (docs/reference/wire.md#sequences).

    Raises WireError for anything that `encode_sequence` would not have written. Memory stays proportional to the length of
    `message`.
    """
    if not holds_sequence(message):
        raise WireError("this is not the message of a sequence; read one image by decode")
    _, version, _, count = _HEAD.unpack_from(message)
    if version != VERSION:
        raise WireError(f"message version {version} is not supported (this veil reads {VERSION}); update veil")
    if not 2 <= count <= MOST_FRAMES:
        raise WireError(f"the message holds {count} frames; a sequence has 2 to {MOST_FRAMES}")
    end = len(message) - CHECKSUM_BYTES
    if end < _HEAD.size or _checksum(message[:end]) != message[end:]:
        raise WireError("the checksum does not match: the message was damaged; transfer it again")
    place, frames, motions = _HEAD.size, [], []
    for number in range(1, count + 1):
        if place + _FRAME.size > end:
            raise WireError(f"the message ends within frame {number}; transfer it again")
        *numbers, length = _FRAME.unpack_from(message, place)
        place += _FRAME.size
        if length > end - place:
            raise WireError(f"frame {number} asks for {length} bytes, and {end - place} are left; transfer it again")
        frames.append(decode(message[place : place + length]))
        motions.append(Rigid(rotation=np.array(numbers[:9]).reshape(3, 3), translation=np.array(numbers[9:])))
        place += length
    if place != end:
        raise WireError(f"{end - place} bytes are left behind the last frame; transfer it again")
    if len({kind_of(frame) for frame in frames}) > 1:
        raise WireError("the frames of the message have different forms")
    try:
        return Sequence(frames=tuple(frames), cam_from_rig=tuple(motions))
    except InputError as error:
        raise WireError(f"the message holds impossible motions: {error}") from None


def kind_of(frame: Message) -> str:
    """Phrase that names what the frames of one sequence have in common: positions or lines, form and space."""
    form = frame.form
    of = f"words ({form.mechanism}, dictionary {form.dictionary[:12]})" if isinstance(form, Subsets) else "subspaces"
    return f"{of} with {'lines' if isinstance(frame, LineUpload) else 'positions'} in {form.space}"


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil sequence v1").digest()

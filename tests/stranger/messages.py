"""Messages: bytes to values and back, as docs/reference/wire.md has them."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

# The order of bits in a byte, for word ids and for flags of lines. Tests break it.
BITS: Literal["little", "big"] = "little"
PARAMETERS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
}
NORMALIZATIONS = ("L2", "L1_ROOT")
DEVIATIONS = (0.05, 0.01, 0.02, 0.1)
FIXED = struct.Struct("<4sBBBBBBHHIHHf32s16s32s")
WORDS = struct.Struct("<IdI")


class Refused(ValueError):
    """Bytes that are no message of version 1."""


@dataclass(kw_only=True)
class Message:
    """One image as the server sees it; arrays have the shapes of the page.

    Subspaces have `profile`, `origins` and `bases`, words have `dictionary_size`, `epsilon`, `dictionary` and `ids`. Positions
    are `xy`; lines are `lines` with `aligned`. `gravity` is None where it is not known, and `focal_deviation` where the
    focal length is a guess.
    """

    model: str
    width: int
    height: int
    params: tuple[float, ...]
    focal_deviation: float | None
    descriptor: str
    normalization: str
    dimension: int
    m: int
    dither: float = 0.0
    codebook: bytes = bytes(32)
    gravity: tuple[float, ...] | None = None
    xy: Any = None
    lines: Any = None
    aligned: Any = None
    profile: str = ""
    origins: Any = None
    bases: Any = None
    dictionary_size: int = 0
    epsilon: float = 0.0
    dictionary: bytes = b""
    ids: Any = field(default=None)

    @property
    def kind(self) -> int:
        """1 to 4."""
        return 1 + (self.lines is not None) + 2 * (self.ids is not None)

    @property
    def features(self) -> int:
        """The number of features."""
        return len(self.xy if self.lines is None else self.lines)


def checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16, person=b"veil wire v1").digest()


def width_of(words: int, m: int) -> int:
    """Bits of a remainder."""
    return (4812 * (2 * words - m + 1) // (20000 * (m + 1))).bit_length()


def packed(ids: np.ndarray, words: int) -> bytes:
    """Word ids, (features, m) ascending, after Rice."""
    width = width_of(words, ids.shape[1])
    values: np.ndarray = np.diff(ids.astype(np.int64), axis=1, prepend=-1).ravel() - 1
    remainders = (values[:, None] >> np.arange(width)) & 1
    quotients = np.zeros(int((values >> width).sum()) + len(values), dtype=np.uint8)
    quotients[np.cumsum((values >> width) + 1) - 1] = 1
    parts = (remainders.astype(np.uint8).ravel(), quotients)
    return b"".join(np.packbits(part, bitorder=BITS).tobytes() for part in parts)


def unpacked(data: bytes, features: int, m: int, words: int) -> np.ndarray:
    """Word ids, (features, m). Refuses bytes that hold none."""
    width, count = width_of(words, m), features * m
    middle = (count * width + 7) // 8
    first, second = (
        np.unpackbits(np.frombuffer(part, np.uint8), bitorder=BITS).astype(np.int64) for part in (data[:middle], data[middle:])
    )
    ends = np.flatnonzero(second)
    if len(ends) != count:
        raise Refused(f"{count} quotients are due, and {len(ends)} came")
    remainders = first[: count * width].reshape(count, width) @ (1 << np.arange(width, dtype=np.int64))
    values = (np.diff(ends, prepend=-1) - 1 << width) + remainders
    ids = np.cumsum(values.reshape(features, m) + 1, axis=1) - 1
    if ids.max() >= words:
        raise Refused("a word is none of the dictionary")
    return ids


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    has_words = message.ids is not None
    ids = packed(message.ids, message.dictionary_size) if has_words else b""
    own = WORDS.pack(message.dictionary_size, message.epsilon, len(ids)) if has_words else message.profile.encode("ascii")
    head = FIXED.pack(
        b"VEIL",
        1,
        message.kind,
        0 if has_words else message.origins.dtype.itemsize,
        list(PARAMETERS).index(message.model),
        flags_of_focal(message.focal_deviation) | (message.gravity is not None) << 1,
        NORMALIZATIONS.index(message.normalization),
        message.width,
        message.height,
        message.features,
        message.dimension,
        message.m,
        message.dither,
        message.descriptor.encode("ascii"),
        own,
        message.codebook,
    )
    body = head + struct.pack(f"<{len(message.params)}d", *message.params) + seen(message)
    body += message.dictionary + ids if has_words else message.origins.tobytes() + message.bases.tobytes()
    return body + checksum(body)


def flags_of_focal(deviation: float | None) -> int:
    """Bits 0, 2 and 3 of the flags."""
    classes = [] if deviation is None else [sent for sent in DEVIATIONS if sent >= deviation]
    return 1 | DEVIATIONS.index(min(classes)) << 2 if classes else 0


def seen(message: Message) -> bytes:
    """Gravity and positions, or gravity, lines and their flags."""
    down = struct.pack("<3d", *(message.gravity or (0.0, 0.0, 0.0)))
    if message.lines is None:
        return (down if message.gravity is not None else b"") + message.xy.astype("<f4").tobytes()
    flags = np.packbits(message.aligned.astype(np.uint8), bitorder=BITS)
    return down + message.lines.astype("<f4").tobytes() + flags.tobytes()


def decode(data: bytes) -> Message:
    """The message of some bytes. Refuses another length and another checksum than its own."""
    if len(data) < FIXED.size + 16 or data[:5] != b"VEIL\x01" or checksum(data[:-16]) != data[-16:]:
        raise Refused("this is no message, or it was damaged")
    (_, _, kind, item, model, flags, norm, width, height, count, n, m, dither, name, own, codebook) = FIXED.unpack_from(data)
    reader = Reader(data, FIXED.size)
    model_name = list(PARAMETERS)[model]
    message = Message(
        model=model_name,
        width=width,
        height=height,
        params=reader.numbers("d", PARAMETERS[model_name]),
        focal_deviation=DEVIATIONS[flags >> 2] if flags & 1 else None,
        descriptor=name.rstrip(b"\0").decode("ascii"),
        normalization=NORMALIZATIONS[norm],
        dimension=n,
        m=m,
        dither=dither,
        codebook=codebook,
    )
    if kind % 2 == 0 or flags & 2:
        down = reader.numbers("d", 3)
        message.gravity = down if flags & 2 else None
    if kind % 2:
        message.xy = reader.array("<f4", count, 2)
    else:
        message.lines = reader.array("<f4", count, 3)
        flagged = np.unpackbits(reader.array("u1", (count + 7) // 8), bitorder=BITS)
        message.aligned = flagged[:count].astype(bool)
    if kind <= 2:
        message.profile = own.rstrip(b"\0").decode("ascii")
        message.origins, message.bases = reader.array(f"<f{item}", count, n), reader.array(f"<f{item}", count, m, n)
    else:
        message.dictionary_size, message.epsilon, length = WORDS.unpack(own)
        message.dictionary = reader.array("u1", 32).tobytes()
        message.ids = unpacked(reader.array("u1", length).tobytes(), count, m, message.dictionary_size)
    if reader.at != len(data) - 16:
        raise Refused("the message is longer or shorter than its header says")
    return message


class Reader:
    """Bytes that are read from one end to the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def numbers(self, kind: str, count: int) -> tuple[float, ...]:
        values = struct.unpack_from(f"<{count}{kind}", self.data, self.at)
        self.at += struct.calcsize(f"<{count}{kind}")
        return values

    def array(self, kind: str, *shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        values = np.frombuffer(self.data, kind, count, self.at).reshape(shape)
        self.at += values.nbytes
        return values

"""Messages and their bytes."""

from veil.wire.codec import decode, encode
from veil.wire.message import Upload

__all__ = ["Upload", "decode", "encode"]

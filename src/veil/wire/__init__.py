"""Messages of uploads, and their encoding as bytes."""

from veil.wire.codec import decode, encode
from veil.wire.message import LineUpload, Message, Upload

__all__ = ["LineUpload", "Message", "Upload", "decode", "encode"]

"""Messages of uploads, and their encoding as bytes.

`message` has all that may leave. `codec` encodes and decodes it: `head` is the fixed part, `codec_subspaces`, and `codec_words`
with `packing`, are the forms. `sequence` holds several of them. `receipts` chains deletions, and
`names` are those of maps in requests.
"""

from veil.wire.codec import decode, encode
from veil.wire.message import LineUpload, Message, Upload

__all__ = ["LineUpload", "Message", "Upload", "decode", "encode"]

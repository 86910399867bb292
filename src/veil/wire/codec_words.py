"""Encoding of words in a message: the dictionary's hash and the packed ids (docs/reference/wire.md).

A file of its own: it has the names of `codec_subspaces`, which does the same for the other form.
"""

from __future__ import annotations

import math
import struct

from veil.errors import InputError, RangeError, WireError
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.space import Space
from veil.wire.head import MAX_M, Head
from veil.wire.packing import packed, packed_sizes, unpacked

# Number of words in the dictionary, epsilon, number of bytes of packed ids.
_OWN = struct.Struct("<IdI")
_DICTIONARY_BYTES = 32
_MAX_UINT32 = (1 << 32) - 1
# Most ids of all features together: 32 for each of the most features. An id of one bit on the wire takes four bytes here.
MAX_IDS = 1 << 22


def own_and_payload(form: Subsets) -> tuple[bytes, bytes]:
    """Bytes of the header that the form defines (the mechanism), and the bytes of the dictionary's hash and the ids.

    Raises InputError if they do not fit.
    """
    mechanism = form.mechanism
    if mechanism.dictionary_size > _MAX_UINT32 or form.m > MAX_M:
        raise InputError(
            f"a message holds at most {MAX_M} words a feature out of {_MAX_UINT32}, "
            f"got {form.m} out of {mechanism.dictionary_size}"
        )
    if len(form) * form.m > MAX_IDS or packed_sizes(len(form), form.m, mechanism.dictionary_size)[-1] > _MAX_UINT32:
        raise InputError(
            f"{len(form)} features of {form.m} words each make too long a message (at most {MAX_IDS} words); extract fewer, "
            "or send fewer words of each"
        )
    ids = packed(form.ids, mechanism.dictionary_size)
    own = _OWN.pack(mechanism.dictionary_size, abs(mechanism.epsilon), len(ids))  # abs: zero has one sign on the wire
    return own, bytes.fromhex(form.dictionary) + ids


def payload_bytes(head: Head) -> int:
    """Length in bytes of the payload that the header asks for.

    Raises WireError for no mechanism, too many ids, or a length that ids of the mechanism cannot have.
    """
    mechanism, length = _read_own(head)
    if head.features * head.m > MAX_IDS:
        raise WireError(
            f"the header asks for {head.features} features of {head.m} words; a message holds at most {MAX_IDS} words: "
            "release fewer features or fewer words of each"
        )
    if length not in packed_sizes(head.features, mechanism.m, mechanism.dictionary_size):
        raise WireError(
            f"{head.features} sets of {mechanism.m} out of {mechanism.dictionary_size} words cannot take "
            f"the header's {length} bytes"
        )
    return _DICTIONARY_BYTES + length


def read_payload(message: bytes, head: Head, space: Space) -> Subsets:
    """Form in a message whose length was checked. Raises WireError or InputError for ids that are no form."""
    mechanism, length = _read_own(head)
    ids_offset = head.payload_offset + _DICTIONARY_BYTES
    ids = memoryview(message)[ids_offset : ids_offset + length]
    return Subsets(
        ids=unpacked(ids, head.features, mechanism.m, mechanism.dictionary_size),
        mechanism=mechanism,
        space=space,
        dictionary=message[head.payload_offset : ids_offset].hex(),
        releasable=True,
    )


def mechanism_of(head: Head) -> SubsetMechanism:
    """Mechanism of a header of words. Raises WireError for no mechanism."""
    return _read_own(head)[0]


def _read_own(head: Head) -> tuple[SubsetMechanism, int]:
    """Mechanism of the header, and its number of bytes of packed ids. Raises WireError for no mechanism."""
    words, epsilon, length = _OWN.unpack(head.own)
    if math.copysign(1.0, epsilon) < 0 and not math.isnan(epsilon):
        raise WireError(f"the header gives a negative epsilon: {epsilon!r}")
    try:
        return SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=head.m), length
    except RangeError as error:
        raise WireError(f"the header gives no mechanism: {error}") from None

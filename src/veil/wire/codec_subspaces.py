"""Encoding of subspaces in a message: origins and bases as floats of two or four bytes (docs/reference/wire.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from veil.errors import InputError, WireError
from veil.forms import Subspaces, canonical, lifted_guarantee
from veil.space import Space
from veil.wire.head import OWN_BYTES, Head, text

MAX_NUMBERS = 1 << 20  # m n numbers of a basis; larger ones take seconds and hundreds of megabytes each to make orthonormal
MAX_ORIGIN = 1e3  # descriptors have unit length; float16 ends at 65504
Dtype = Literal["float16", "float32"]
ITEM_BYTES: dict[Dtype, int] = {"float16": 2, "float32": 4}
_CHUNK_FLOATS = 1 << 16  # float64 numbers of bases at a time: half a megabyte


def own_and_payload(form: Subspaces, dtype: Dtype) -> tuple[bytes, bytes]:
    """Bytes of the header that the form defines (the profile's name), and the bytes of its numbers.

    Raises InputError if they do not fit.
    """
    if not (1 <= len(form.profile) <= OWN_BYTES and form.profile.isascii() and form.profile.isprintable()):
        raise InputError(f"a profile's name must be 1 to {OWN_BYTES} printable ASCII characters, got {form.profile!r}")
    if not ((np.abs(form.origin) < MAX_ORIGIN).all() and (np.abs(form.basis) < MAX_ORIGIN).all()):  # also catches NaN
        raise InputError("a subspace holds NaN, infinity or numbers far from any descriptor; privatize the image again")
    if form.m * form.space.dim > MAX_NUMBERS:
        raise InputError(f"subspaces of dimension {form.m} in {form.space.dim}-D are too large to send; use a smaller m")
    item = np.dtype(dtype).newbyteorder("<")
    return form.profile.encode("ascii"), form.origin.astype(item).tobytes() + form.basis.astype(item).tobytes()


def payload_bytes(head: Head) -> int:
    """Length in bytes of the payload that the header asks for. Raises WireError for dimensions that no form may have."""
    if not 1 <= head.m < head.dim:
        raise WireError(f"the header asks for {head.features} subspaces of dimension {head.m} in {head.dim}-D")
    if head.m * head.dim > MAX_NUMBERS:
        raise WireError(
            f"the header asks for bases of {head.m} x {head.dim} numbers; a message holds at most {MAX_NUMBERS} in one: "
            "release with a smaller m"
        )
    return head.item_bytes * head.features * head.dim * (head.m + 1)


def read_payload(message: bytes, head: Head, space: Space) -> Subspaces:
    """Form in a message whose length was checked. Raises WireError or InputError for numbers that are no form."""
    item = np.dtype("<f2" if head.item_bytes == 2 else "<f4")
    origin = np.frombuffer(message, item, head.features * head.dim, head.payload_offset).reshape(head.features, head.dim)
    behind = head.payload_offset + origin.nbytes
    basis = np.frombuffer(message, item, head.features * head.m * head.dim, behind).reshape(head.features, head.m, head.dim)
    profile = text(head.own, "profile")
    origin, basis = _canonical_chunks(origin, basis)
    return Subspaces(
        origin=origin,
        basis=basis,
        space=space,
        guarantee=lifted_guarantee(profile),
        profile=profile,
        releasable=True,
        sent_as="float16" if head.item_bytes == 2 else "float32",
    )


def as_sent(form: Subspaces, dtype: Dtype) -> Subspaces:
    """Form as a server gets it if it is sent as `dtype`: rounded, then orthonormal again."""
    origin, basis = _canonical_chunks(form.origin.astype(dtype), form.basis.astype(dtype))
    return replace(form, origin=origin, basis=basis, sent_as=dtype)


def _canonical_chunks(origin: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Origins and bases in canonical form again after the wire's rounding, in float64 and a few features at a time.

    Raises WireError for numbers that are not finite or far from any descriptor.
    """
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

"""A Merkle tree over the tiles of a map: each tile carries the proof that the manifest's root stands for it.

Leaves and inner nodes are hashed with different prefixes, so that neither passes for the other (RFC 6962, section 2.1). The
leaves are filled up to a power of two, so that all proofs have one length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from veil.errors import WireError

HASH_BYTES = 32
# What is hashed at a leaf, at an inner node, and in place of a leaf that is not there, begins with these bytes.
LEAF, NODE, EMPTY = b"\x00", b"\x01", b"\x02"


def depth_of(count: int) -> int:
    """Number of hashes in each proof for `count` leaves: the least d with 2^d >= count."""
    return max(0, count - 1).bit_length()


def leaf_hash(data: bytes) -> bytes:
    """Hash of a leaf's data, 32 bytes."""
    return hashlib.sha256(LEAF + data).digest()


def levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """The hashes of all levels of the tree, from the leaves' own (filled up) to the root alone."""
    level = [*leaves, *([hashlib.sha256(EMPTY).digest()] * ((1 << depth_of(len(leaves))) - len(leaves)))]
    made = [level]
    while len(level) > 1:
        level = [_node(level[i], level[i + 1]) for i in range(0, len(level), 2)]
        made.append(level)
    return made


def proof(tree: Sequence[Sequence[bytes]], index: int) -> bytes:
    """The proof for leaf `index`: the sibling at each level of `levels`, from the leaf upward, one after the other."""
    return b"".join(level[(index >> height) ^ 1] for height, level in enumerate(tree[:-1]))


def require_proof(data: bytes, index: int, path: bytes, root: bytes) -> None:
    """Raise WireError unless `path` proves that the root stands for `data` at leaf `index`."""
    current = leaf_hash(data)
    depth, rest = divmod(len(path), HASH_BYTES)
    if rest or index >> depth:
        raise WireError(f"a proof of {len(path)} bytes cannot belong to tile {index}")
    for height in range(depth):
        sibling = path[height * HASH_BYTES : (height + 1) * HASH_BYTES]
        current = _node(sibling, current) if index >> height & 1 else _node(current, sibling)
    if current != root:
        raise WireError(f"tile {index} is not the one that the manifest names: the server or the network changed it")


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(NODE + left + right).digest()

"""The Merkle tree over tiles: its definition by hand, proofs of every leaf, and what must not pass for one."""

from __future__ import annotations

import hashlib

import pytest

from veil.errors import WireError
from veil.tiles.merkle import depth_of, leaf_hash, levels, proof, require_proof


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_the_root_is_what_the_format_says() -> None:
    """Oracle: the definition of docs/reference/tiles.md, written out for three leaves."""
    a, b, c = (sha(b"\x00" + name) for name in (b"a", b"b", b"c"))
    root = sha(b"\x01" + sha(b"\x01" + a + b) + sha(b"\x01" + c + sha(b"\x02")))
    tree = levels([leaf_hash(name) for name in (b"a", b"b", b"c")])
    assert tree[-1] == [root]
    assert proof(tree, 2) == sha(b"\x02") + sha(b"\x01" + a + b)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9])
def test_each_leaf_is_proved_and_no_other_is(count: int) -> None:
    """Oracle: the inverse pair of proof and check; every other leaf, place and changed bit is refused."""
    data = [bytes([index]) * 40 for index in range(count)]
    tree = levels([leaf_hash(item) for item in data])
    root = tree[-1][0]
    for index, item in enumerate(data):
        path = proof(tree, index)
        assert len(path) == 32 * depth_of(count)
        require_proof(item, index, path, root)
        wrong = [(item + b"x", index, path), (item, index + (1 << depth_of(count)), path), (item, index, path + b"\0" * 32)]
        wrong += [(item, other, path) for other in range(count) if other != index]
        wrong += [(item, index, path[:k] + bytes([path[k] ^ 1]) + path[k + 1 :]) for k in range(0, len(path), 17)]
        for bad in wrong:
            with pytest.raises(WireError):
                require_proof(*bad, root)


def passes_without_prefixes(data: bytes, path: list[bytes], root: bytes) -> bool:
    """A check as it is often written, without prefixes: the broken twin."""
    current = sha(data)
    for sibling in path:
        current = sha(current + sibling)
    return current == root


def test_an_inner_node_is_no_leaf() -> None:
    """The second preimage that prefixes prevent: two hashes side by side as the data of a leaf higher up."""
    plain = [sha(name) for name in (b"a", b"b", b"c", b"d")]
    right = sha(plain[2] + plain[3])
    assert passes_without_prefixes(plain[0] + plain[1], [right], sha(sha(plain[0] + plain[1]) + right))
    tree = levels([leaf_hash(name) for name in (b"a", b"b", b"c", b"d")])
    for forged in (tree[0][0] + tree[0][1], b"\x01" + tree[0][0] + tree[0][1]):
        with pytest.raises(WireError):
            require_proof(forged, 0, tree[1][1], tree[-1][0])

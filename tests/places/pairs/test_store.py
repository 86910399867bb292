"""The store of matches: what is written is read again, killed runs go on, and what must go is gone."""

from __future__ import annotations

import dataclasses
import hashlib
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.forms import Points
from veil.matching import Matches
from veil.places.pairs.images import form_digest
from veil.places.pairs.store import MAGIC, PLAN, SUFFIX, DigestPair, MatchStore, block_name, decode_block, encode_block, turned
from veil.space import Space
from worlds import generator

KIND = "tests 1"


def some_matches(case: str, count: int) -> Matches:
    chance = generator(case)
    indices = np.stack([chance.permutation(1000)[:count], chance.permutation(1000)[:count]], axis=1)
    return Matches(indices=indices, distances=chance.random(count), ratios=chance.random(count))


def digest(number: int) -> str:
    return f"{number:064x}"


def block(numbers: range) -> dict[DigestPair, Matches]:
    return {(digest(a), digest(b)): some_matches(f"{a} {b}", a + b) for a, b in combinations(numbers, 2)}


def same(a: Matches, b: Matches) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("indices", "distances", "ratios"))


def test_a_block_is_read_as_it_was_written_bit_by_bit() -> None:
    """Inverse pair, also of blocks without pairs and pairs without matches; equal blocks are equal bytes."""
    for written in (block(range(5)), {}, {(digest(0), digest(1)): some_matches("none", 0)}):
        data = encode_block(KIND, written)
        kind, again = decode_block(data)
        assert kind == KIND and list(again) == list(written) and all(same(again[pair], written[pair]) for pair in written)
        assert encode_block(KIND, again) == data


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    """Enumeration: every third byte of a block is changed in turn, and it is cut at every seventh."""
    data = encode_block(KIND, block(range(3)))
    for place in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[place] ^= 4
        with pytest.raises(FileFormatError):
            decode_block(bytes(damaged))
    for size in range(0, len(data), 7):
        with pytest.raises(FileFormatError):
            decode_block(data[:size])


def test_pairs_are_found_either_way_round(tmp_path: Path) -> None:
    """Second method: matches turned by hand, in the order of the rows on the left."""
    written = block(range(4))
    MatchStore(tmp_path, KIND).write(written)
    store = MatchStore(tmp_path, KIND)
    assert len(store) == 6 and (digest(2), digest(0)) in store and (digest(2), digest(9)) not in store
    asked = store.matches([(digest(3), digest(1)), (digest(0), digest(2)), (digest(0), digest(9))])
    assert list(asked) == [(digest(3), digest(1)), (digest(0), digest(2))]
    assert same(asked[digest(0), digest(2)], written[digest(0), digest(2)])
    back = asked[digest(3), digest(1)]
    rows = sorted((b, a) for a, b in written[digest(1), digest(3)].indices.tolist())
    assert back.indices.tolist() == [list(row) for row in rows] and same(turned(turned(back)), back)


def test_damaged_blocks_and_other_kinds_count_as_missing(tmp_path: Path) -> None:
    path = MatchStore(tmp_path, KIND).write(block(range(3)))
    MatchStore(tmp_path, "another kind").write(block(range(3, 6)))
    assert len(MatchStore(tmp_path, KIND)) == 3
    path.write_bytes(path.read_bytes()[:-5])
    assert len(MatchStore(tmp_path, KIND)) == 0
    with pytest.raises(FileFormatError, match="not a whole block"):
        MatchStore(tmp_path, KIND).adopt(path)


def test_a_block_of_another_version_stops_the_run_and_stays(tmp_path: Path) -> None:
    data = encode_block(KIND, block(range(3)))
    newer = tmp_path / f"newer{SUFFIX}"
    newer.write_bytes(MAGIC + (2).to_bytes(2, "little") + data[len(MAGIC) + 2 :])
    with pytest.raises(FileFormatError, match=r"version 2.*give another folder"):
        MatchStore(tmp_path, KIND)
    assert newer.exists()


@pytest.mark.parametrize("written_as", [KIND, "another kind"])
def test_forgotten_images_leave_no_byte(tmp_path: Path, written_as: str) -> None:
    """Planted bytes: the digest, and the matches of its pairs, are in no file; a broken twin, before, finds them. Whoever
    forgets need not know how the pairs were matched."""
    written = block(range(5))
    MatchStore(tmp_path, written_as).write(written)
    store = MatchStore(tmp_path, KIND)
    gone = {pair: matches for pair, matches in written.items() if digest(2) in pair}
    planted = [digest(2).encode(), *(matches.ratios[:1].tobytes() for matches in gone.values())]

    def held() -> list[bool]:
        data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        return [mark in data for mark in planted]

    assert all(held())
    assert store.forget([digest(2), digest(77)]) == 4
    assert not any(held()) and digest(2) not in store.images and digest(1) in store.images
    assert len(store) == (6 if written_as == KIND else 0) and store.forget([digest(2)]) == 0
    again = MatchStore(tmp_path, written_as)
    assert len(again) == 6
    assert all(same(again.matches([pair])[pair], written[pair]) for pair in written if pair not in gone)


def test_a_block_is_named_by_what_it_is_computed_from() -> None:
    """Second method: SHA-256 of the version, the kind and the pairs as text; each of them changes it."""
    pairs = [(digest(0), digest(1))]
    text = f'[1,"{KIND}",[["{digest(0)}","{digest(1)}"]]]'
    assert block_name(KIND, pairs) == hashlib.sha256(text.encode()).hexdigest() + SUFFIX
    assert len({block_name(KIND, pairs), block_name("x", pairs), block_name(KIND, [pairs[0][::-1]])}) == 3


def test_the_plan_of_an_unfinished_run_is_kept_until_it_ends(tmp_path: Path) -> None:
    store = MatchStore(tmp_path, KIND)
    assert store.plan() == []
    blocks = [[(digest(0), digest(1))], [(digest(0), digest(2)), (digest(1), digest(2))]]
    store.save_plan(blocks)
    assert MatchStore(tmp_path, KIND).plan() == blocks and MatchStore(tmp_path, "x").plan() == []
    (tmp_path / PLAN).write_text("{")
    assert store.plan() == []
    store.finish()
    assert not (tmp_path / PLAN).exists()


def test_a_digest_tells_spaces_apart_that_have_one_line() -> None:
    """Golden value: SHA-256 of the text that the definition gives, with every field of the space, and of the numbers."""
    space = Space(descriptor="sift", normalization="L2", dim=2, dither_steps=4.0, codebook="ab" * 32)
    vectors = np.eye(2, dtype=np.float32)
    text = f"points [Space(descriptor='sift', normalization='L2', dim=2, codebook='{'ab' * 32}', dither_steps=4.0)]"
    expected = hashlib.sha256(text.encode() + b"<f4(2, 2)" + vectors.tobytes()).hexdigest()
    assert form_digest(Points(vectors=vectors, space=space)) == expected
    other = dataclasses.replace(space, codebook="cd" * 32)
    assert repr(other) == repr(space) and form_digest(Points(vectors=vectors, space=other)) != expected

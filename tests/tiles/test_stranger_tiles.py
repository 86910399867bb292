"""The second implementation (tests/stranger) reads and asks for tiles as docs/reference/tiles.md says.

Oracles: the tiles that were cut, veil's own readers and servers, and laws of what is drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
import pytest

from stranger import hintless as packed
from stranger import one_server as theirs
from stranger import tiles as stranger
from stranger.canonical import canonical, read
from stranger.service import Answer
from stranger.tiles import Tiles
from veil.errors import PirError
from veil.files.maps.places import place_facts, place_of
from veil.pir import hintless, one_server
from veil.pir.hintless_layout import HintlessLayout, most_hintless_columns
from veil.pir.layout import Layout, most_columns
from veil.pir.two_servers import answers
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.manifest import decode_manifest, encode_manifest
from veil.tiles.tile_format import decode_tile
from worlds.discrete_gaussian import require_discrete_gaussian
from worlds.places import PLACE
from worlds.power import require_even
from worlds.tile_streets import street

SEED = bytes(range(32))


@cache
def made(bits: int = 4, cameras: int = 26) -> CutMap:
    return cut(street("stranger", cameras=cameras).scene, CutOptions(tile_bytes=6000, words=8, asked=3, bits=bits))


class Served:
    """A server's answers about tiles, without a network: what is asked for is remembered."""

    def __init__(self, *, parts: int = 2, damaged: bool = False, cameras: int = 26) -> None:
        self.records = made(cameras=cameras).records.copy()
        self.records[:, 100] ^= np.uint8(damaged)
        layout = Layout(records=len(self.records), size=self.records.shape[1], parts=parts)
        self.matrix = one_server.arranged(self.records, layout)
        hint = one_server.hint(self.matrix, SEED).astype("<u4").tobytes()
        text, binary, self.version = encode_manifest(made(cameras=cameras).manifest)
        self.files = {"manifest.json": text, "manifest.bin": binary, "tiles.bin": self.records.tobytes(), "hint.bin": hint}
        facts = {"dimension": 1408, "parts": parts, "seed": SEED.hex(), "hint_sha256": hashlib.sha256(hint).hexdigest()}
        self.layout = HintlessLayout(records=len(self.records), size=self.records.shape[1], parts=parts)
        lengths = {"query_bytes": self.layout.query_bytes, "answer_bytes": self.layout.answer_bytes}
        without = {"degree": 2048, "parts": parts, "seed": SEED.hex(), **lengths}
        said = {"version": self.version, "exits": {"one-server": facts, "hintless": without}}
        self.files["exits.json"] = json.dumps(said).encode()
        self.bodies: list[bytes] = []

    @cached_property
    def prepared(self) -> tuple[hintless.ByteRows, hintless.PreparedPacking]:
        """What the hintless exit needs."""
        matrix = hintless.arranged_rows(self.records, self.layout)
        return matrix, hintless.prepared(matrix, self.layout, SEED)

    def get(self, path: str) -> bytes:
        return self.files[path.rsplit("/", 1)[1]]

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        assert (method, headers) == ("POST", {"Content-Type": "application/vnd.veil.tile-queries"})
        self.bodies.append(body)
        if path.endswith("/two-servers"):
            records = answers(self.records, pieces(body, -(-len(self.records) // 8)))
        elif path.endswith("/hintless"):
            matrix, made = self.prepared
            records = hintless.answers(matrix, made, self.layout, pieces(body, self.layout.query_bytes))
        else:
            records = one_server.answers(self.matrix, pieces(body, self.matrix.layout.query_bytes))
        return Answer(status=200, headers={}, data=b"".join(records))


def pieces(data: bytes, size: int) -> list[bytes]:
    assert len(data) % size == 0
    return [data[at : at + size] for at in range(0, len(data), size)]


def tiles(*servers: Served) -> Tiles:
    return Tiles(list(servers), "street")  # type: ignore[arg-type]


def test_the_version_is_that_of_the_manifest() -> None:
    """Oracle: veil's version, also with a place on Earth. Twin: a number that is written in another way."""
    placed = replace(made().manifest, place=place_of(PLACE))
    assert placed.place is not None and place_facts(placed.place)
    for manifest in (made().manifest, placed):
        text, _, version = encode_manifest(manifest)
        assert stranger.version_of(text) == version
    text, binary, version = encode_manifest(placed)
    assert decode_manifest(text, binary).version == version
    assert b'"scale": 10.0' in text and stranger.version_of(text.replace(b'"scale": 10.0', b'"scale": 10')) != version


def test_canonical_json_is_what_python_writes() -> None:
    """Oracle: `json.dumps` with the options that the page names, of values with every kind of character and number."""
    value = {
        "ü": ['"\\\b\f\n\r\t\x00\x1f\x7f/', "é€😀\u2028"],
        "z": {"b": 1764167275.0, "a": 1e-05, "B": 1e16, "": 0.1},
        "a": [True, False, None, -0.0, 12, 5e-324],
    }
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"))
    for text in (json.dumps(value), json.dumps(value, indent=3, ensure_ascii=False)):
        assert canonical(read(text)) == expected
    assert canonical(read('{"a": 1.0}')) != canonical(read('{"a": 1}')) == '{"a":1}'


@pytest.mark.parametrize("bits", [4, 8])
def test_each_tile_is_proved_and_read(bits: int) -> None:
    """Oracle: veil's reader. No record passes for another tile, nor with any of its parts changed."""
    text, _, _ = encode_manifest(made(bits).manifest)
    manifest = json.loads(text)
    assert manifest["tiles"] > 4 and manifest["tiles"] & (manifest["tiles"] - 1), "the tree has places without a tile"
    for index, row in enumerate(made(bits).records):
        record = row.tobytes()
        tile = stranger.tile_of(stranger.proved(record, index, manifest), index)
        ours = decode_tile(record[: manifest["tile_bytes"]], index=index, axes=manifest["axes"], bits=bits)
        assert tile.origin == tuple(ours.origin)
        for name, other in (("places", "places"), ("counts", "counts"), ("directions", "directions"), ("sizes", "sizes")):
            assert np.array_equal(getattr(tile, name), getattr(ours, other)), name
        assert np.array_equal(tile.levels, ours.descriptors)
        for wrong, place in ((record, index ^ 1), (record[:-1] + bytes([record[-1] ^ 1]), index), (record[:-32], index)):
            with pytest.raises(stranger.Refused):
                stranger.proved(wrong, place, manifest)


def test_siblings_in_the_other_order_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: a reader that hashes left and right exchanged accepts no tile at all."""
    server = Served()
    records = tiles(server).all_at_once()
    assert all(stranger.proved(record, index, tiles(server).manifest) for index, record in enumerate(records))
    node = stranger.node
    monkeypatch.setattr(stranger, "node", lambda left, right: node(right, left))
    for index, record in enumerate(records):
        with pytest.raises(stranger.Refused, match="root does not stand"):
            stranger.proved(record, index, tiles(server).manifest)


@pytest.mark.parametrize("servers", [2, 3])
def test_records_of_several_servers_are_those_of_the_map(servers: int) -> None:
    """Oracle: the records that were cut."""
    hosts = [Served() for _ in range(servers)]
    records = tiles(*hosts).from_several([4, 1])
    assert {4, 1} < records.keys() and len(records) == 3
    assert all(record == made().records[index].tobytes() for index, record in records.items())
    assert [len(host.bodies) for host in hosts] == [1] * servers


def test_queries_with_the_other_order_of_bits_bring_other_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: a device that takes the highest bit of a byte for the first tile. No root stands for what it gets.

    Of tiles that do not fill their bytes, a server refuses the queries where bits after the last tile are set.
    """
    chosen_by = stranger.chosen_by

    def turned(index: int, count: int, servers: int) -> list[bytes]:
        queries = (np.frombuffer(query, np.uint8) for query in chosen_by(index, count, servers))
        return [np.packbits(np.unpackbits(query, bitorder="little")).tobytes() for query in queries]

    monkeypatch.setattr(stranger, "chosen_by", turned)
    fetched = tiles(Served(cameras=16), Served(cameras=16))
    assert fetched.count == 8
    for index, record in fetched.from_several([4, 1]).items():
        with pytest.raises(stranger.Refused):
            stranger.proved(record, index, fetched.manifest)
    filled = tiles(Served(), Served())
    assert filled.count % 8
    with pytest.raises(PirError, match="padding"):
        for _ in range(100):
            filled.from_several([4, 1])


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 5, 7])
def test_records_of_one_server_are_those_of_the_map(parts: int) -> None:
    """Oracle: the records that were cut; sizes that `parts` does not divide are filled up."""
    server = Served(parts=parts)
    records = tiles(server).from_one([4, 1])
    assert {4, 1} < records.keys() and len(records) == 3
    assert all(record == made().records[index].tobytes() for index, record in records.items())
    assert len(server.bodies[0]) == 3 * parts * 4 * parts * len(made().manifest)


@pytest.mark.slow
def test_one_server_and_the_stranger_agree_beyond_a_block_of_the_public_matrix() -> None:
    """Oracle: random records in 2,100 columns, so that the public matrix has three blocks, the last one short."""
    random = np.random.default_rng(7)
    rows = random.integers(0, 256, (700, 31), dtype=np.uint8)
    layout = Layout(records=700, size=31, parts=3)
    matrix = one_server.arranged(rows, layout)
    exit = theirs.Exit(tiles=700, record_bytes=31, parts=3, seed=SEED)
    assert (exit.rows, exit.columns) == (layout.rows, layout.columns) == (11, 2100)
    asked = theirs.ask(exit, [699, 0, 341])
    hint = one_server.hint(matrix, SEED).astype("<u4").tobytes()
    answered = b"".join(one_server.answers(matrix, pieces(asked.queries, layout.query_bytes)))
    assert theirs.records(exit, asked, answered, hint) == [rows[index].tobytes() for index in (699, 0, 341)]
    forgotten = theirs.Asked(queries=asked.queries, secrets=asked.secrets, sums=asked.sums + 1_000_000)
    assert theirs.records(exit, forgotten, answered, hint) != [rows[index].tobytes() for index in (699, 0, 341)]


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "cameras"), [(4, 16), (3, 26)])
def test_records_without_a_hint_are_those_of_the_map(parts: int, cameras: int) -> None:
    """Oracle: the records that were cut, where the rows of a part fit into one polynomial or need two."""
    server = Served(parts=parts, cameras=cameras)
    fetched = tiles(server)
    records = fetched.without_hint([4, 1])
    assert {4, 1} < records.keys() and len(records) == 3
    assert all(record == made(cameras=cameras).records[index].tobytes() for index, record in records.items())
    assert len(server.bodies[0]) == 3 * parts * 4 * (parts * fetched.count + 10 * 2048)


@pytest.mark.slow
def test_without_a_hint_the_stranger_agrees_beyond_a_block_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: random records in 2,100 columns. Broken twins: the secret of another query, a forgotten noise, another key."""
    rows = np.random.default_rng(7).integers(0, 256, (700, 31), dtype=np.uint8)
    layout = HintlessLayout(records=700, size=31, parts=3)
    matrix = hintless.arranged_rows(rows, layout)
    made = hintless.prepared(matrix, layout, SEED)
    exit = theirs.Exit(tiles=700, record_bytes=31, parts=3, seed=SEED)
    assert packed.lengths(exit) == (layout.query_bytes, layout.answer_bytes)

    def fetched(change: Callable[[theirs.Asked], theirs.Asked] = lambda asked: asked) -> bool:
        asked = packed.ask(exit, [699, 0])
        answered = b"".join(hintless.answers(matrix, made, layout, pieces(asked.queries, layout.query_bytes)))
        return packed.records(exit, change(asked), answered) == [rows[index].tobytes() for index in (699, 0)]

    assert fetched()
    assert not fetched(lambda asked: replace(asked, secrets=np.roll(asked.secrets, 1, axis=0)))
    assert not fetched(lambda asked: replace(asked, sums=asked.sums + 1_000_000))
    monkeypatch.setattr(packed, "at_power", lambda values, power: values)
    assert not fetched()


def test_facts_of_the_hintless_exit_that_are_others_are_refused() -> None:
    """Twins: another degree, other sizes, more columns than noise allows."""
    fetched = tiles(Served())
    facts = fetched.exits["hintless"]
    for change in ({"degree": 1024}, {"query_bytes": 1}, {"answer_bytes": 1}):
        fetched.exits["hintless"] = {**facts, **change}
        with pytest.raises(stranger.Refused, match="the hintless exit has"):
            fetched.without_hint([1])
    for size in (10, 4096, 32 << 10, 1 << 20):
        most = most_hintless_columns(size)
        packed.require(theirs.Exit(tiles=most, record_bytes=size, parts=1, seed=SEED))
        with pytest.raises(ValueError, match="too many"):
            packed.require(theirs.Exit(tiles=most + 1, record_bytes=size, parts=1, seed=SEED))


def test_the_bound_on_columns_is_the_same() -> None:
    """Oracle: veil's bound."""
    for size in (10, 4096, 32 << 10, 1 << 20):
        most = most_columns(size)
        theirs.require(theirs.Exit(tiles=most, record_bytes=size, parts=1, seed=SEED))
        with pytest.raises(ValueError, match="too many"):
            theirs.require(theirs.Exit(tiles=most + 1, record_bytes=size, parts=1, seed=SEED))


@pytest.mark.slow
def test_noise_has_its_law() -> None:
    """Oracle: the discrete Gaussian by its definition. Twin: rounded normal numbers of a larger sigma."""
    require_discrete_gaussian(theirs.noise(200_000), sees=0.03)
    wider = np.rint(np.random.default_rng(3).normal(0, 6.6, 200_000)).astype(np.int64)
    with pytest.raises(AssertionError, match="p ="):
        require_discrete_gaussian(wider, sees=0.03)


@pytest.mark.slow
def test_dummies_are_distinct_uniform_and_anywhere_in_the_order() -> None:
    """Oracles: equal shares of each other tile, and of each place of the wanted one. Twin: dummies that are the next tiles."""
    fetched = tiles(Served(parts=1))
    count, asked = fetched.count, fetched.asked
    drawn = [fetched.indices([2]) for _ in range(40_000)]
    assert all(len(set(one)) == len(one) == asked and 2 in one for one in drawn)
    others = np.bincount(np.concatenate(drawn), minlength=count)
    q, n = asked - 1, count - 1
    require_even(np.delete(others, 2), sees=0.05, spread=(n - q) / (n - 1))
    require_even(np.bincount([one.index(2) for one in drawn], minlength=asked), sees=0.05)
    with pytest.raises(AssertionError, match="p ="):
        require_even(np.delete(np.bincount([3, 4] * 20_000, minlength=count), 2), sees=0.05)


def test_a_damaged_record_is_refused_whatever_brought_it() -> None:
    """A server that changes all records: nothing of them is used, from any exit."""
    fetched = tiles(Served(damaged=True), Served(damaged=True))
    for index, record in [*enumerate(fetched.all_at_once()), *fetched.from_several([1]).items()]:
        with pytest.raises(stranger.Refused):
            stranger.proved(record, index, fetched.manifest)

"""Tiles: their manifest, proofs and bytes, and what is asked for, as docs/reference/tiles.md has it."""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from stranger import hintless, one_server
from stranger.canonical import canonical, read
from stranger.service import Server

QUERIES = "application/vnd.veil.tile-queries"
HEAD = struct.Struct("<8sHHHHIII4s3q")


class Refused(ValueError):
    """Bytes that are not those of the tiles that the manifest names."""


def version_of(manifest: bytes) -> str:
    """The version that a manifest must have."""
    facts = {key: value for key, value in read(manifest).items() if key != "version"}
    return hashlib.sha256(b"veil tiles\0" + canonical(facts).encode("ascii")).hexdigest()


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def proved(record: bytes, index: int, manifest: dict[str, Any]) -> bytes:
    """The tile in a record. Refuses one for which the root does not stand."""
    size, depth = manifest["tile_bytes"], (manifest["tiles"] - 1).bit_length()
    tile, proof = record[:size], record[size:]
    if len(proof) != 32 * depth:
        raise Refused("the record has another length")
    digest = hashlib.sha256(b"\x00" + tile).digest()
    for height in range(depth):
        sibling = proof[32 * height : 32 * height + 32]
        digest = node(sibling, digest) if index >> height & 1 else node(digest, sibling)
    if digest.hex() != manifest["merkle_root"]:
        raise Refused(f"the root does not stand for tile {index}")
    return tile


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Points and aspects of a tile in the numbers of the page: places (P, 3), counts (P,), the others (Q, ...)."""

    origin: tuple[int, ...]
    places: np.ndarray
    counts: np.ndarray
    directions: np.ndarray
    sizes: np.ndarray
    levels: np.ndarray


def tile_of(data: bytes, index: int) -> Tile:
    """The points of a tile. Refuses bytes that none has."""
    magic, version, axes, bits, zero, number, points, aspects, more, *origin = HEAD.unpack_from(data)
    if (magic, version, zero, number, more) != (b"VEILTILE", 1, 0, index, bytes(4)) or bits not in (4, 8):
        raise Refused("this is no such tile")
    sizes = [8 * points, points, 2 * aspects, 2 * aspects, axes * bits * aspects // 8]
    ends = [HEAD.size + sum(sizes[: number + 1]) for number in range(5)]
    places, counts, directions, seen, levels = (
        np.frombuffer(data[end - size : end], np.uint8) for size, end in zip(sizes, ends, strict=True)
    )
    if any(data[ends[-1] :]) or counts.sum(dtype=np.int64) != aspects or not ((counts >= 1) & (counts <= 4)).all():
        raise Refused("the tile's numbers do not fit each other")
    if bits == 4:  # the earlier axis in the lower half, signs by two's complement
        halves = np.stack([levels & 15, levels >> 4], axis=1).astype(np.int8)
        levels = np.where(halves > 7, halves - 16, halves)
    packed = places.view("<u8")
    return Tile(
        origin=tuple(origin),
        places=np.stack([packed >> (21 * axis) & (2**21 - 1) for axis in range(3)], axis=1).astype(np.int64),
        counts=counts,
        directions=directions.reshape(-1, 2),
        sizes=seen.reshape(-1, 2),
        levels=levels.view(np.int8).reshape(aspects, axes) if bits == 8 else levels.reshape(aspects, axes),
    )


class Tiles:
    """Tiles of one name from one or more servers, of one version."""

    def __init__(self, servers: list[Server], name: str) -> None:
        said = [json.loads(server.get(f"/v1/tiles/{name}/exits.json")) for server in servers]
        self.servers, self.exits = servers, said[0]["exits"]
        self.path = f"/v1/tiles/{name}/{said[0]['version']}"
        if any(item["version"] != said[0]["version"] for item in said):
            raise Refused("the servers have different versions; nothing was asked")
        text, arrays = (servers[0].get(f"{self.path}/manifest.{end}") for end in ("json", "bin"))
        self.manifest: dict[str, Any] = json.loads(text)
        if not version_of(text) == self.manifest["version"] == said[0]["version"]:
            raise Refused("the manifest is of another version")
        if hashlib.sha256(arrays).hexdigest() != self.manifest["binary_sha256"]:
            raise Refused("the arrays are not those of the manifest")
        self.count, self.size, self.asked = (self.manifest[key] for key in ("tiles", "record_bytes", "asked"))

    def indices(self, wanted: list[int]) -> list[int]:
        """Indices of the wanted tiles and of dummies, all different, in random order."""
        chance = secrets.SystemRandom()
        others = [index for index in range(self.count) if index not in wanted]
        asked = [*wanted, *chance.sample(others, self.asked - len(wanted))]
        chance.shuffle(asked)
        return asked

    def all_at_once(self) -> list[bytes]:
        """All records, whichever are wanted."""
        data = self.servers[0].get(f"{self.path}/tiles.bin")
        return [data[at : at + self.size] for at in range(0, len(data), self.size)]

    def from_several(self, wanted: list[int]) -> dict[int, bytes]:
        """Records by index from servers that do not all collude: the wanted ones and the dummies."""
        asked = self.indices(wanted)
        queries = [chosen_by(index, self.count, len(self.servers)) for index in asked]
        answers = [
            self._answer(server, "two-servers", b"".join(query[number] for query in queries))
            for number, server in enumerate(self.servers)
        ]
        whole = reduce(xor, answers)
        return {index: whole[at * self.size : (at + 1) * self.size] for at, index in enumerate(asked)}

    def from_one(self, wanted: list[int]) -> dict[int, bytes]:
        """Records by index from one server, under learning with errors."""
        facts = self.exits["one-server"]
        if facts["dimension"] != one_server.N:
            raise Refused("the exit by one server has another dimension")
        exit = self._exit(facts)
        one_server.require(exit)
        hint = self.servers[0].get(f"{self.path}/hint.bin")
        if hashlib.sha256(hint).hexdigest() != facts["hint_sha256"] or len(hint) != 4 * one_server.N * exit.rows:
            raise Refused("the hint is not the one that was announced")
        asked = self.indices(wanted)
        made = one_server.ask(exit, asked)
        answers = self._answer(self.servers[0], "one-server", made.queries)
        return dict(zip(asked, one_server.records(exit, made, answers, hint), strict=True))

    def without_hint(self, wanted: list[int]) -> dict[int, bytes]:
        """Records by index from one server, under ring learning with errors."""
        facts = self.exits["hintless"]
        if facts["degree"] != hintless.D:
            raise Refused("the hintless exit has another degree")
        exit = self._exit(facts)
        hintless.require(exit)
        if (facts["query_bytes"], facts["answer_bytes"]) != hintless.lengths(exit):
            raise Refused("the hintless exit has other sizes")
        asked = self.indices(wanted)
        made = hintless.ask(exit, asked)
        answers = self._answer(self.servers[0], "hintless", made.queries)
        return dict(zip(asked, hintless.records(exit, made, answers), strict=True))

    def _exit(self, facts: dict[str, Any]) -> one_server.Exit:
        seed = bytes.fromhex(facts["seed"])
        return one_server.Exit(tiles=self.count, record_bytes=self.size, parts=facts["parts"], seed=seed)

    def _answer(self, server: Server, exit: str, queries: bytes) -> bytes:
        return server.ask("POST", f"{self.path}/answers/{exit}", queries, {"Content-Type": QUERIES}).data


def chosen_by(index: int, count: int, servers: int) -> list[bytes]:
    """A query for each server."""
    drawn = [secrets.randbits(count) for _ in range(servers - 1)]
    last = reduce(lambda one, other: one ^ other, drawn) ^ 1 << index
    return [bits.to_bytes(-(-count // 8), "little") for bits in [*drawn, last]]


def xor(one: bytes, other: bytes) -> bytes:
    return (np.frombuffer(one, np.uint8) ^ np.frombuffer(other, np.uint8)).tobytes()

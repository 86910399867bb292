"""Connections that are cut at every point of an exchange: the same bytes again, one contribution, one entry of the ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veil.client import Client, Unreachable
from veil.device.device import Device
from veil.device.protection import HideInSubspaces, Protection
from veil.features import Features
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.recorders import Cutter, cutting
from worlds.releases import taken
from worlds.servers import Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = ServerSettings(workers=1, body_s=2.0)
    with running(Service(tmp_path_factory.mktemp("server"), settings), jobs=False) as server:
        yield server


# Bytes that pass of the request (a head of some 300, a body of some 30,000), or of the answer.
CUTS = {"request": (0, 1, 100, 330, 400, 5_000, 20_000), "answer": (0, 1, 20, 200, 400)}


@pytest.mark.slow
@pytest.mark.parametrize(("what", "count"), [(what, count) for what in CUTS for count in CUTS[what]])
def test_a_cut_connection_leaves_one_contribution(
    server: Running, door: dict[str, Features], tmp_path: Path, what: str, count: int
) -> None:
    """The message is acknowledged by the second attempt, whatever became of the first, and once.

    Oracles: the server's records, the bodies on the network, the ledger. Broken twin below.
    """
    record = server.service.records.make(f"{what} {count}", MapPolicy())
    _, secret = server.service.tokens.make("robot", ["localize", "contribute"])
    features = taken(next(iter(door.values())), np.arange(80))
    with cutting(server.port) as cutter, Client(f"http://127.0.0.1:{cutter.port}", secret, Device(tmp_path)) as client:
        setattr(cutter, f"{what}_bytes", count)
        assert client.contribute(record.id, features, name="once") is None
        ((_, message),) = client.outbox.waiting()
        with pytest.raises(Unreachable):
            client.send()
        cutter.request_bytes = cutter.answer_bytes = None
        (accepted,) = client.send()
        assert list(client.outbox.waiting()) == [] and client.send() == []
        (item,) = server.service.records.contributions(record.id)
        assert item.id == accepted.contribution and item.digest == hashlib.sha256(message).hexdigest()
        assert server.service.records.blobs.get(item.digest) == message
        assert len(client.device.ledger.entries()) == 1
        assert bodies(cutter) == {message} and len(cutter.sent) >= 3
        # A query that is cut is asked again by its user, with the same bytes.
        cutter.answer_bytes = 0
        with pytest.raises(Unreachable):
            client.localize(record.id, features, Protection(descriptors=HideInSubspaces()), name="once")
        cutter.answer_bytes = None
        client.localize(record.id, features, Protection(descriptors=HideInSubspaces()), name="once")
        assert bodies(cutter) == {message} and len(client.device.ledger.entries()) == 1


def bodies(cutter: Cutter) -> set[bytes]:
    """The bodies that clients sent whole."""
    whole = set()
    for sent in map(bytes, cutter.sent):
        while b"\r\n\r\n" in sent:
            head, _, sent = sent.partition(b"\r\n\r\n")
            length = next((int(line.split()[1]) for line in head.splitlines() if line.startswith(b"Content-Length:")), 0)
            if 0 < length <= len(sent):
                whole.add(sent[:length])
            sent = sent[length:]
    return whole


@pytest.mark.slow
def test_draws_of_each_attempt_would_be_seen(server: Running, door: dict[str, Features], tmp_path: Path) -> None:
    """The broken twin: a client that releases afresh for its second attempt, as another device would, is two contributions."""
    record = server.service.records.make("twice", MapPolicy())
    _, secret = server.service.tokens.make("naive", ["contribute"])
    features = taken(next(iter(door.values())), np.arange(80))
    with cutting(server.port) as cutter:
        cutter.answer_bytes = 0
        for attempt in range(2):
            with Client(f"http://127.0.0.1:{cutter.port}", secret, Device(tmp_path / str(attempt))) as client:
                client.contribute(record.id, features)
            cutter.answer_bytes = None
        assert len(bodies(cutter)) == len(server.service.records.contributions(record.id)) == 2


@pytest.mark.slow
def test_a_deleted_contribution_is_not_sent_again(server: Running, door: dict[str, Features], tmp_path: Path) -> None:
    """Its acknowledgement was lost, so that it waits; deleting it takes it out of the queue."""
    record = server.service.records.make("deleted", MapPolicy())
    _, secret = server.service.tokens.make("robot", ["contribute"])
    with cutting(server.port) as cutter, Client(f"http://127.0.0.1:{cutter.port}", secret, Device(tmp_path)) as client:
        cutter.answer_bytes = 0
        assert client.contribute(record.id, taken(next(iter(door.values())), np.arange(80))) is None
        cutter.answer_bytes = None
        (item,) = client.contributions()
        assert client.delete(item.contribution).content["message_sha256"] == item.message_sha256
        assert client.send() == [] and client.contributions() == []

"""Deletions before a receipt, beside the message: blobs that no row ever named, old versions, and matches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veil.matching.neighbors import Matches
from veil.places.pairs.blocks import KIND
from veil.places.pairs.store import MatchStore
from veil.server.access.tokens import Token
from veil.server.deletion import erase
from veil.server.maps.contributions import Contribution, add_contribution, set_state
from veil.server.maps.policy import MapPolicy
from veil.server.maps.records import put_version
from veil.server.service import Service
from veil.server.store.blob_use import sweep_loose


def given(service: Service, token: Token, map_id: str, message: bytes) -> Contribution:
    """A contribution that nobody looked at."""
    digest, record = service.records.keep(message, map_id), service.map_record(map_id)
    with service.database.transaction() as transaction:
        return add_contribution(
            transaction, record, token=token.id, digest=digest, size_bytes=len(message), facts={"form": "words"}
        )


def test_what_was_never_named_goes_with_its_map_or_what_is_deleted_of_it(tmp_path: Path) -> None:
    """A kill came between the message and its row. What came for another map stays; whoever is sending it can go on."""
    service = Service(tmp_path / "store")
    token = service.tokens.make("owner", ["admin"])[0]
    one, other = (service.records.make(name, MapPolicy()) for name in ("one", "other"))
    kept = service.records.keep(b"for the other map", other.id)
    for delete in (
        lambda item: service.delete(token, item.id),
        lambda item: service.delete_map(token, item.map_id),
    ):
        never = service.records.keep(b"never acknowledged", one.id)
        item = given(service, token, one.id, b"a message")
        assert set(service.records.blobs.names()) == {kept, never, item.digest}
        delete(item)
        assert set(service.records.blobs.names()) == {kept}
    with service.database.transaction() as transaction:
        assert transaction.one("SELECT name FROM loose WHERE name = :name", name=kept) is not None
    # What comes for a map that is gone is never named.
    late = service.records.keep(b"of a job that went on", one.id)
    assert sweep_loose(service.database, service.records.blobs) >= 1
    assert set(service.records.blobs.names()) == {kept} - {late}
    service.close()


def test_what_is_sent_while_another_is_deleted_is_there(tmp_path: Path) -> None:
    """It was kept and has no row yet: it is dropped, stays loose, and is written again within the transaction that names it."""
    service = Service(tmp_path / "store")
    token = service.tokens.make("owner", ["admin"])[0]
    record = service.records.make("one", MapPolicy())
    digest = service.records.keep(b"on its way", record.id)
    service.delete(token, given(service, token, record.id, b"deleted").id)
    assert not service.records.blobs.has(digest)
    with service.database.transaction() as transaction:
        assert transaction.one("SELECT name FROM loose WHERE name = :name", name=digest) is not None, (
            "a kill would leave it for good"
        )
        add_contribution(transaction, record, token=token.id, digest=digest, size_bytes=9, facts={"form": "words"})
        service.records.keep_again(b"on its way")
    assert service.records.blobs.get(digest) == b"on its way"
    service.close()


def test_matches_go_before_the_receipt(tmp_path: Path) -> None:
    """A job matched a contribution and made no map: its name, digest and pairs are in a file, and gone with the answer."""
    service = Service(tmp_path / "store")
    token = service.tokens.make("owner", ["admin"])[0]
    record = service.records.make("one", MapPolicy())
    gone, *others = (given(service, token, record.id, b"message %d" % number) for number in range(3))
    store = MatchStore(service.folder / "matches" / record.id, KIND)
    digests = {item.id: character * 64 for item, character in zip((gone, *others), "abc", strict=True)}
    store.note_names(digests)
    matches = Matches(indices=np.zeros((3, 2), np.int64), distances=np.zeros(3), ratios=np.full(3, 0.5))
    names = list(digests.values())
    store.write({(names[0], names[1]): matches, (names[1], names[2]): matches})
    receipt, job = service.delete(token, gone.id)
    assert receipt is not None and job is None
    held = b"".join(path.read_bytes() for path in store.folder.iterdir())
    assert gone.id.encode() not in held and names[0].encode() not in held and names[1].encode() in held
    service.close()


def test_an_old_version_that_a_kill_left_goes_before_the_receipt(tmp_path: Path) -> None:
    """A kill came when the new version was there: another turn of the job writes the receipt, and first clears the old one."""
    service = Service(tmp_path / "store")
    token = service.tokens.make("owner", ["admin"])[0]
    record = service.records.make("one", MapPolicy())
    item = given(service, token, record.id, b"a message")
    for number in (1, 2):
        files = {"descriptors.h5": service.records.keep(b"version %d" % number, record.id)}
        present = service.map_record(record.id)
        with service.database.transaction() as transaction:
            put_version(transaction, present, files, {})
        service.version_folder(service.map_record(record.id))
    with service.database.transaction() as transaction:
        set_state(transaction, item.id, "leaving", "asked")
    (receipt,) = erase(service, [item.id])
    assert receipt.content["contribution"] == item.id
    held = [path.read_bytes() for path in service.folder.rglob("*") if path.is_file()]
    assert not [data for data in held if data in (b"version 1", b"a message")]
    assert held.count(b"version 2") == 2
    service.close()

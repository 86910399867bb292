"""The outbox of a client: waiting messages, notes of acknowledged ones, and damaged files."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from veil.errors import FileFormatError
from veil.files.device.outbox import Outbox, Sending


def sending(message: bytes, map_id: str = "m1") -> Sending:
    digest = hashlib.sha256(message).hexdigest()
    return Sending(server="https://a", map_id=map_id, name="a.jpg", message_sha256=digest)


def test_a_message_waits_until_it_is_acknowledged(tmp_path: Path) -> None:
    """One message for two maps is kept until both have it."""
    box, message = Outbox(tmp_path), b"a message"
    one, two = sending(message), sending(message, "m2")
    for item in (one, two, one):
        box.put(item, message)
    assert {item.map_id for item, data in box.waiting() if data == message} == {"m1", "m2"}
    box.acknowledge(replace(one, contribution="c1", receipts_head="0"))
    assert [item for item, _ in Outbox(tmp_path).waiting()] == [two]
    box.drop(two)
    assert list(box.waiting()) == [] and not list((tmp_path / "client" / "messages").glob("*/*"))
    (sent,) = box.sent()
    assert (sent.contribution, sent.name) == ("c1", "a.jpg")
    box.forget(sent)
    assert box.sent() == []


def test_its_files_are_the_owners_and_damage_is_named(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    box.put(sending(b"x"), b"x")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2 and all(path.stat().st_mode & 0o077 == 0 for path in files)
    note = next(path for path in files if path.suffix == ".json")
    for text in ("", "[]", "{}", '{"server": 1}'):
        note.write_text(text)
        with pytest.raises(FileFormatError, match="damaged"):
            list(box.waiting())


def test_a_message_that_a_kill_left_without_a_note_goes_in_a_minute(tmp_path: Path) -> None:
    """Between message and note, and between the end of the note and that of the message. One with a note stays."""
    box = Outbox(tmp_path)
    box.put(sending(b"waits"), b"waits")
    never = box._messages.put(b"never noted")
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    young = box._messages.put(b"being noted")
    assert [data for _, data in Outbox(tmp_path).waiting()] == [b"waits"]
    assert set(box._messages.names()) == {young, hashlib.sha256(b"waits").hexdigest()} and never != young

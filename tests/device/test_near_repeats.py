"""A device that answers near repeats with earlier draws: it repeats itself, charges what is new, and seals what it keeps."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.device.device import releasing
from veil.device.protection import Purpose
from veil.errors import FileFormatError, ReleaseRefused
from veil.features import Features
from veil.files.device import drawn
from veil.forms import Subspaces
from veil.ldp.budget import Budget
from veil.ldp.composition import composed_epsilon
from veil.mechanisms.repeats import DrawnFeatures
from veil.randomness import Secret
from worlds import features, generator, unit

WORDS = veil.HideInWords(epsilon=5.0)
FORMS = {"subspaces": veil.Protection(descriptors=veil.HideInSubspaces()), "words": veil.Protection(descriptors=WORDS)}
PURPOSES: tuple[Purpose, ...] = ("localize", "map")


def frame(number: int) -> Features:
    """A frame of a video in which nothing moves: descriptors and positions have a little noise, and the last ten are new."""
    first = features(generator("video"), 80)
    random = generator(f"frame {number}")
    moved = np.maximum(unit(first.descriptors) + 0.05 * unit(random.normal(size=(80, 128))), 0)
    descriptors = np.clip(np.round(512 * unit(moved)), 0, 255).astype(np.uint8)
    if number:
        descriptors[70:] = features(random, 10).descriptors
    return replace(first, descriptors=descriptors, image_digest=f"frame {number}".encode().ljust(32, b"."))


@pytest.mark.parametrize("form", FORMS)
def test_frames_leave_as_they_did_and_again_the_same(form: str, tmp_path: Path) -> None:
    """Each frame shows what the first one did but for ten features, and its release is repeated whatever left behind it."""
    device = veil.Device(tmp_path / "home")
    made = [device.release(frame(number), FORMS[form], purpose="localize") for number in range(4)]
    assert made[0].shown_before == 0 and all(60 <= one.shown_before <= 70 for one in made[1:])
    assert all(6 <= len(one.upload) - one.shown_before <= 12 for one in made[1:])
    for number in (2, 0, 3, 1):
        repeated = device.release(frame(number), FORMS[form], purpose="localize")
        assert repeated.message == made[number].message and repeated.released_as == made[number].released_as
    name = "ids" if form == "words" else "origin"
    rows = [{row.tobytes() for row in getattr(veil.decode(one.message).form, name)} for one in made]
    assert all(len(rows[0] & later) >= 60 for later in rows[1:])
    # Broken twin: drawn anew, hardly anything is equal.
    anew = veil.Device(tmp_path / "other")
    pair = [
        getattr(veil.decode(anew.release(frame(number), FORMS[form], purpose="map").message).form, name) for number in (0, 1)
    ]
    assert len({row.tobytes() for row in pair[0]} & {row.tobytes() for row in pair[1]}) < 10


def test_frames_of_one_call_know_each_other(tmp_path: Path) -> None:
    device = veil.Device(tmp_path / "home")
    with releasing(device, purpose="localize") as make:
        first, second = (make(frame(number), FORMS["subspaces"], "") for number in (0, 1))
        assert (first.shown_before, len(device.ledger.entries())) == (0, 0) and second.shown_before >= 60
    assert device.release(frame(1), FORMS["subspaces"], purpose="localize").message == second.message


def test_words_are_charged_once(tmp_path: Path) -> None:
    """Oracle: the composition of what was drawn. A budget that two frames drawn anew would exceed holds five answered ones."""
    device = veil.Device(tmp_path / "home")
    charged = [len(device.release(frame(0), FORMS["words"], purpose="localize").upload)]
    limit = composed_epsilon({WORDS.mechanism: 140}, 1e-6)
    device.set_budget(Budget(unit="session", epsilon=limit, delta=1e-6))
    for number in range(1, 6):
        one = device.release(frame(number), FORMS["words"], purpose="localize")
        charged.append(len(one.upload) - one.shown_before)
    assert [entry.charge.features for entry in device.ledger.entries() if entry.charge] == charged and sum(charged) <= 140
    with pytest.raises(ReleaseRefused, match="session"):
        device.release(frame(6), FORMS["words"], purpose="map")


def test_an_image_leaves_as_it_did_whatever_is_asked(tmp_path: Path) -> None:
    """A query that is contributed later, and a contribution that asks later, are the messages that they were."""
    device = veil.Device(tmp_path / "home")
    first, second = (device.release(frame(number), FORMS["subspaces"], purpose="localize") for number in (0, 1))
    third = device.release(frame(2), FORMS["subspaces"], purpose="map")
    assert second.shown_before >= 60 and third.shown_before == 0
    for number, made in enumerate((first, second, third)):
        for purpose in PURPOSES:
            assert device.release(frame(number), FORMS["subspaces"], purpose=purpose).message == made.message
    assert len(device.ledger.entries()) == 3


def test_the_oldest_are_forgotten_and_what_they_gave_is_not_drawn_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one release: the second frame cannot be repeated, and is refused rather than drawn anew."""
    monkeypatch.setattr(drawn, "MOST_REMEMBERED", 85)
    device = veil.Device(tmp_path / "home")
    for number in (0, 1):
        device.release(frame(number), FORMS["subspaces"], purpose="localize")
    other = replace(features(generator("elsewhere"), 80), image_digest=b"elsewhere".ljust(32, b"."))
    device.release(other, FORMS["subspaces"], purpose="localize")
    with pytest.raises(ReleaseRefused, match="other draws of earlier releases"):
        device.release(frame(1), FORMS["subspaces"], purpose="localize")


def test_each_seal_is_opened_once_and_what_another_device_wrote_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two devices on one ledger, in turns. Oracle: a device that is new for each frame, which has opened nothing before."""
    opened: list[bytes] = []
    read = drawn._read

    def noted(blob: bytes, secret: Secret) -> DrawnFeatures:
        opened.append(blob)
        return read(blob, secret)

    monkeypatch.setattr(drawn, "_read", noted)
    home, other = tmp_path / "home", tmp_path / "other"
    pair = [veil.Device(home), veil.Device(home)]
    other.mkdir()
    (other / "secret").write_bytes((home / "secret").read_bytes())
    (other / "secret").chmod(0o600)
    made = [pair[number % 2].release(frame(number), FORMS["subspaces"], purpose="localize") for number in range(6)]
    assert all(60 <= one.shown_before <= 70 for one in made[1:])
    assert len(opened) == 9 and len(set(opened)) == 5  # by one device frames 0 to 3, by the other one 0 to 4
    anew = [veil.Device(other).release(frame(number), FORMS["subspaces"], purpose="localize") for number in range(6)]
    assert [one.message for one in made] == [one.message for one in anew] and len(opened) == 9 + 15
    # Draws that the ledger has forgotten are not used again, although they were opened.
    monkeypatch.setattr(drawn, "MOST_REMEMBERED", 85)
    far = replace(features(generator("elsewhere"), 80), image_digest=b"elsewhere".ljust(32, b"."))
    pair[1].release(far, FORMS["subspaces"], purpose="localize")
    assert pair[0].release(frame(6), FORMS["subspaces"], purpose="localize").shown_before == 0
    assert sum(len(item) for item in pair[0]._drawn._opened.values()) <= 85


def test_what_is_kept_is_sealed(tmp_path: Path) -> None:
    """The ledger's file holds neither sketches nor subspaces in the clear, and refuses what another secret sealed."""
    home = tmp_path / "home"
    device = veil.Device(home)
    sent = device.release(frame(0), FORMS["subspaces"], purpose="localize")
    content = b"".join(path.read_bytes() for path in home.glob("ledger.sqlite*"))
    form = sent.upload.form
    assert isinstance(form, Subspaces)
    for row in form.origin.astype(np.float16):
        assert row.tobytes()[:16] not in content
    with sqlite3.connect(home / "ledger.sqlite") as connection:
        (blob,) = connection.execute("SELECT sealed FROM drawn").fetchone()
        assert blob[:2] != b"PK" and b"sketches" not in blob  # as NumPy writes them
        connection.execute("UPDATE drawn SET sealed = ?", (blob[:-1] + bytes([blob[-1] ^ 1]),))
    with pytest.raises(FileFormatError, match="not sealed by this secret"):
        device.release(frame(1), FORMS["subspaces"], purpose="localize")
    assert device.release(frame(1), FORMS["subspaces"], purpose="map").shown_before == 0

"""Nothing raw in any request of the client: forms, names and ways of sending by hypothesis, and a photograph with EXIF."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from veil.cli import main
from veil.client import Client
from veil.client.connection import Connection
from veil.device.device import Device
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.errors import VeilError
from veil.features import Features
from veil.files.photographs.examples import lund_door
from veil.mechanisms.release import HideInLines
from veil.wire import decode
from worlds.recorders import Recorder, recording
from worlds.releases import taken

FORMS = {
    "subspaces": Protection(descriptors=HideInSubspaces()),
    "subspaces, lines": Protection(descriptors=HideInSubspaces(), lines=HideInLines()),
    "words": Protection(descriptors=HideInWords(epsilon=5.0)),
    "words, lines": Protection(descriptors=HideInWords(epsilon=5.0), lines=HideInLines()),
}
NO_POSE = b'{"status": "no pose", "reason": "none"}'
# A part of a name that is shorter stands in random bytes by chance: 8 bytes in 100 kB once in 10^14.
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x24F, exclude_characters="/\x7f"), min_size=8, max_size=60)


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        recorder.answer = (200, {}, NO_POSE)
        yield recorder


def raw_parts(features: Features, name: str) -> Iterator[bytes]:
    """Bytes that give an image away: its name, its digest, rows of descriptors in any precision, keypoints as detected."""
    for coding in ("utf-8", "utf-16-le", "latin-1"):
        with contextlib.suppress(UnicodeEncodeError):
            yield name.encode(coding)
    yield json.dumps(name).encode()[1:-1]
    yield features.image_digest
    yield features.image_digest.hex().encode()
    for row in features.descriptors:
        unit = row / np.linalg.norm(row.astype(np.float64))
        for values in (row, unit, 512 * unit):
            for dtype in ("uint8", "float16", "float32", "float64"):
                part = np.asarray(values).astype(dtype).tobytes()[16:32]
                # Descriptors are sparse: a few bytes that are nearly all zero stand in any message.
                if len(set(part)) > 4:
                    yield part
    # Positions are sent, shuffled: six of twenty stand in their old order in one of two million messages, three in one of 380.
    for dtype in ("float32", "float64"):
        yield features.keypoints[:6].astype(dtype).tobytes()


def told(recorder: Recorder, features: Features, name: str) -> list[bytes]:
    """Raw parts that stand in what was sent."""
    sent = b"".join(
        "\n".join([method, path, *(f"{key}: {value}" for key, value in headers.items())]).encode() + b"\n" + body
        for method, path, headers, body in recorder.requests
    )
    return [part for part in raw_parts(features, name) if part in sent]


def send(recorder: Recorder, folder: Path, features: Features, form: str, name: str, way: str) -> None:
    """Send an image as a contribution, as a query, or from the queue after the server was away."""
    recorder.requests.clear()
    device = Device(folder)
    if way == "queue":
        assert (
            Client("http://127.0.0.1:9", "veil_token", device).contribute("m0123456789abcdef", features, FORMS[form], name=name)
            is None
        )
        (waiting,) = Client(recorder.url, "veil_token", device).outbox.waiting()
        Connection(recorder.url, "veil_token").post_message(
            "v1", "maps", "m0123456789abcdef", "contributions", message=waiting[1]
        )
    with Client(recorder.url, "veil_token", device) as client:
        if way == "localize":
            client.localize("m0123456789abcdef", features, FORMS[form], name=name)
        else:
            with contextlib.suppress(VeilError):  # the recorder does not acknowledge
                client.contribute("m0123456789abcdef", features, FORMS[form], name=name)
                client.send()


@pytest.mark.slow
@pytest.mark.planted
@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    form=st.sampled_from(sorted(FORMS)),
    way=st.sampled_from(["contribute", "localize", "queue"]),
    name=NAMES,
    first=st.integers(0, 500),
    count=st.integers(20, 60),
)
def test_nothing_raw_whatever_is_sent(
    recorder: Recorder, door: dict[str, Features], form: str, way: str, name: str, first: int, count: int
) -> None:
    """Any form, name and part of an image's features; the twins below send parts that the test must detect."""
    features = taken(next(iter(door.values())), np.arange(first, first + count) % 500)
    with TemporaryDirectory() as folder:
        send(recorder, Path(folder), features, form, name, way)
    bodies = [body for *_, body in recorder.requests if body]
    assert bodies and len(set(bodies)) == 1 and len(decode(bodies[0])) > 0
    assert told(recorder, features, name) == []
    # What the standard library adds, and nothing that names the device.
    for _, _, headers, _ in recorder.requests:
        assert set(headers) <= {
            "Host",
            "Authorization",
            "User-Agent",
            "Accept",
            "Content-Type",
            "Content-Length",
            "Accept-Encoding",
        }


@pytest.mark.slow
@pytest.mark.planted
@pytest.mark.parametrize("leak", ["name", "digest", "descriptors", "keypoints"])
def test_each_leak_would_be_seen(
    recorder: Recorder, door: dict[str, Features], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak: str
) -> None:
    """Broken twins: clients that send one raw thing beside the message."""
    features, name = taken(next(iter(door.values())), np.arange(30)), "holiday-in-paris.jpg"
    more = {
        "name": name.encode(),
        "digest": features.image_digest,
        "descriptors": (features.descriptors / np.float32(512)).astype(np.float16).tobytes() + features.descriptors.tobytes(),
        "keypoints": features.keypoints.astype(np.float32).tobytes(),
    }[leak]
    post = Connection.post_message

    def leaking(connection: Connection, *path: str, message: bytes) -> object:
        return post(connection, *path, message=message + more)

    monkeypatch.setattr(Connection, "post_message", leaking)
    send(recorder, tmp_path, features, "subspaces", name, "localize")
    assert told(recorder, features, name)


@pytest.mark.slow
@pytest.mark.planted
def test_nothing_of_a_photograph_is_sent(recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`veil client` on a JPEG with EXIF: neither camera, place, comment, name, folder, nor any of its bytes are sent.

    Broken twin: the file itself, in which all of them stand.
    """
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "planted-folder-name"
    folder.mkdir()
    path = folder / "planted-file-name.jpg"
    with lund_door() as example:
        picture = Image.open(sorted(example.folder.glob("*.jpg"))[0])
        camera = ",".join([example.camera.model, *map(str, example.camera.params)])
        exif = Image.Exif()
        planted = {0x010F: "planted-maker", 0x0110: "planted-model", 0x010E: "planted-comment", 0x013B: "planted-artist"}
        for tag, text in planted.items():
            exif[tag] = text
        picture.save(path, exif=exif, quality=95)
    (tmp_path / "token").write_text("veil_token\n")
    recorder.requests.clear()
    record = {"map": "m0123456789abcdef", "name": "lobby", "mapped": True}
    recorder.answer = (404, {}, b"{}")  # there are no tiles
    recorder.answers = {"/v1/maps": json.dumps({"maps": [record]}).encode(), f"/v1/maps/{record['map']}/localize": NO_POSE}
    options = ["--map", "lobby", "--server", recorder.url, "--token-file", str(tmp_path / "token"), "--camera", camera]
    assert main(["client", "localize", str(path), *options]) == 3
    sent = b"".join(f"{path} {headers}".encode() + body for _, path, headers, body in recorder.requests)
    assert b"VEIL" in sent
    data = path.read_bytes()
    parts = [*(text.encode() for text in planted.values()), b"planted", str(tmp_path).encode()]
    parts += [data[place : place + 16] for place in range(len(data) // 4, len(data) - 16, 997)]
    pixels = np.asarray(Image.open(path).convert("L")).tobytes()
    parts += [part for place in range(0, len(pixels) - 16, 9973) if len(set(part := pixels[place : place + 16])) > 8]
    assert not [part for part in parts if part in sent]
    assert [part for part in parts if part in data + pixels + str(folder).encode()] == parts

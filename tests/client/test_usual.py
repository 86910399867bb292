"""What a client sends to a map where nobody names a protection: what a server says makes it stronger, never weaker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.client import Client, RemotePose, ServerError
from veil.device.device import Device
from veil.errors import ReleaseRefused
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.forms import Subsets, Subspaces
from veil.geometry.camera import GIVEN
from veil.places.poses.answer import NoPose
from veil.wire import decode
from veil.wire.message import LineUpload, Upload
from worlds import features, generator
from worlds.recorders import Recorder, recording

MAP = "m0123456789abcdef"
DOWN = np.array([0.0, 1.0, 0.0])
POLICY = {"forms": ["subspaces", "words"], "max_epsilon": None, "lines_only": False}
PUBLIC = {"public": True, "words": True, "gravity": True, "dictionaries": [bundled_codebook().digest]}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        recorder.answer = (404, {}, json.dumps({"status": "no pose", "reason": "nothing matches"}).encode())
        yield recorder


def asked(recorder: Recorder, tmp_path: Path, facts: dict[str, Any], policy: dict[str, Any]) -> tuple[Client, Features]:
    """A client of a server that says this of its map, and a photograph whose focal length is known."""
    told = {"map": MAP, "name": "door", "mapped": True, **facts, "policy": {**POLICY, **policy}}
    recorder.answers["/v1/maps"] = json.dumps({"maps": [told]}).encode()
    recorder.answers[f"/v1/maps/{MAP}/localize"] = json.dumps({"status": "no pose", "reason": "nothing matches"}).encode()
    made = features(generator("usual"), 60)
    photograph = replace(made, camera=replace(made.camera, focal=GIVEN))
    return Client(recorder.url, "t", Device(tmp_path / "home")), photograph


def sent(recorder: Recorder) -> list[Any]:
    return [decode(body) for method, path, _, body in recorder.requests if method == "POST" and body]


def test_a_public_map_is_asked_in_words(recorder: Recorder, tmp_path: Path) -> None:
    client, photograph = asked(recorder, tmp_path, PUBLIC, {})
    assert isinstance(client.localize(MAP, photograph, gravity=DOWN), NoPose)
    (message,) = sent(recorder)
    assert isinstance(message, Upload) and isinstance(message.form, Subsets) and message.form.mechanism.epsilon == 4
    assert message.gravity is not None
    client.localize("door", photograph, gravity=DOWN)
    assert [path for _, path, *_ in recorder.requests].count("/v1/maps") == 1  # what a map takes is asked once


@pytest.mark.parametrize("most", [1.5, 50.0])
def test_a_policy_lowers_the_epsilon_and_never_raises_it(most: float, recorder: Recorder, tmp_path: Path) -> None:
    client, photograph = asked(recorder, tmp_path, PUBLIC, {"max_epsilon": most})
    client.localize(MAP, photograph, gravity=DOWN)
    assert [message.form.mechanism.epsilon for message in sent(recorder)] == [min(most, 4.0)]


@pytest.mark.parametrize(
    ("facts", "policy", "cause"),
    [
        (PUBLIC, {"forms": ["subspaces"]}, "answers no words"),
        ({**PUBLIC, "gravity": False}, {}, "does not know gravity"),
        ({**PUBLIC, "dictionaries": ["ab" * 32]}, {}, "another dictionary"),
        (PUBLIC, {"lines_only": True}, "lines alone"),
    ],
)
def test_a_server_cannot_ask_for_less(
    facts: dict[str, Any], policy: dict[str, Any], cause: str, recorder: Recorder, tmp_path: Path
) -> None:
    """A map that takes no words gets no subspaces by that: nothing leaves, and nothing is entered in the ledger."""
    client, photograph = asked(recorder, tmp_path, facts, policy)
    with pytest.raises(ReleaseRefused, match=cause):
        client.localize(MAP, photograph, gravity=DOWN)
    assert sent(recorder) == [] and list(client.device.ledger.entries()) == []


def test_contributions_are_subspaces_in_lines_where_these_are_asked_for(recorder: Recorder, tmp_path: Path) -> None:
    for lines in (False, True):
        client, photograph = asked(recorder, tmp_path / str(lines), {}, {"lines_only": lines})
        recorder.requests.clear()
        with pytest.raises(ServerError):  # the recorder acknowledges nothing
            client.contribute(MAP, photograph, gravity=DOWN)
        (message,) = sent(recorder)
        assert isinstance(message.form, Subspaces) and isinstance(message, LineUpload) == lines
    client, photograph = asked(recorder, tmp_path / "words", {}, {"forms": ["words"]})
    with pytest.raises(ReleaseRefused, match="takes words alone"):
        client.contribute(MAP, photograph, gravity=DOWN)


def test_where_there_are_tiles_nothing_leaves(recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the requests. The tiles are asked for once, and neither a message nor the token goes anywhere for them."""
    client, photograph = asked(recorder, tmp_path, PUBLIC, {})
    recorder.answers["/v1/tiles/door/exits.json"] = b"{}"
    monkeypatch.setattr(
        Client, "_from_tiles", lambda self, name, image, tiles: NoPose(reason=f"tiles of {name}", correspondences=0)
    )
    for _ in range(2):
        answer = client.localize(MAP, photograph)
        assert isinstance(answer, NoPose) and answer.reason == "tiles of door" and not isinstance(answer, RemotePose)
    asked_for = [(path, "Authorization" in headers) for _, path, headers, _ in recorder.requests]
    assert [item for item in asked_for if "tiles" in item[0]] == [("/v1/tiles/door/exits.json", False)]
    assert sent(recorder) == [] and list(client.device.ledger.entries()) == []

"""A map answers exactly the forms of query that it lists: each form against each kind of map, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from veil.device.device import Device
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.features import Features
from veil.files.maps.format import write_map
from veil.mechanisms.release import HideInLines
from veil.scene import Scene
from veil.server.maps.answerable import answered_forms
from veil.server.maps.policy import FORMS, MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import decode
from worlds.releases import planted_map, taken
from worlds.servers import Running, running

QUERIES = {
    "subspaces": Protection(descriptors=HideInSubspaces()),
    "subspaces in lines": Protection(descriptors=HideInSubspaces(), lines=HideInLines()),
    "words": Protection(descriptors=HideInWords(epsilon=8.0)),
}
# What each kind of map answers; second method: the answers below.
ANSWERED = {"public": ["subspaces", "words"], "of subspaces": ["subspaces"], "of words": ["words"]}


@pytest.fixture(scope="module")
def features(door: dict[str, Features]) -> Features:
    return taken(next(iter(door.values())), np.arange(120))


@pytest.fixture(scope="module")
def messages(features: Features, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    device = Device(tmp_path_factory.mktemp("device"))
    none = {"random words": Protection(descriptors=HideInWords(epsilon=0.0))}
    return {
        name: device.release(features, way, name=name, allow_second=True).message for name, way in {**QUERIES, **none}.items()
    }


def of_form(scene: Scene, message: bytes) -> Scene:
    """A map whose images have the form of a message."""
    form = decode(message).form
    count = len(form)
    images = {
        name: replace(image, form=form, keypoints=image.keypoints[:count], point_rows=image.point_rows[:count])
        for name, image in scene.images.items()
    }
    return replace(scene, images=images, points=scene.points[:count])


@pytest.fixture(scope="module")
def server(features: Features, messages: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, scene = tmp_path_factory.mktemp("server"), planted_map(features, public=True)
    write_map(folder / "public", scene)
    write_map(folder / "of subspaces", of_form(scene, messages["subspaces"]))
    write_map(folder / "of words", of_form(scene, messages["words"]))
    service = Service(folder / "store", ServerSettings(workers=1))
    for name in ANSWERED:
        service.import_map(name, folder / name)
    with running(service, jobs=False) as server:
        yield server


def described(server: Running, name: str) -> dict:
    (record,) = [item for item in server.ask("GET", "/v1/maps").value["maps"] if item["name"] == name]
    return record


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANSWERED)
def test_a_map_answers_the_forms_that_it_lists_and_no_other(server: Running, messages: dict[str, bytes], kind: str) -> None:
    """Whoever is refused is told what to send, and nothing that only the server's owner could do."""
    record = described(server, kind)
    assert record["policy"]["forms"] == ANSWERED[kind]
    for name in QUERIES:
        answer = server.ask("POST", f"/v1/maps/{record['map']}/localize", body=messages[name])
        form = name.split()[0]
        if form in ANSWERED[kind]:
            assert answer.status == 200 and answer.value["status"] in ("localized", "no pose"), answer.data
        else:
            assert answer.status == 422 and answer.value["type"] == "urn:veil:refused"
            (other,) = ANSWERED[kind]
            assert answer.value["detail"].endswith(f"images of this map; send {other}")
    answer = server.ask("POST", f"/v1/maps/{record['map']}/localize", body=messages["random words"])
    told = "raise the epsilon" if "words" in ANSWERED[kind] else "send subspaces"
    assert answer.status == 422 and answer.value["detail"].endswith(told)


@pytest.mark.slow
def test_records_of_before_tell_nothing_and_are_answered_alike(server: Running, messages: dict[str, bytes]) -> None:
    """Broken twin of the list: without facts the policy's forms are listed, and the process that localizes says the same."""
    record = described(server, "of subspaces")
    with server.service.database.transaction(durable=True) as rows:
        rows.run("UPDATE maps SET facts = '{}' WHERE id = :id", id=record["map"])
    assert described(server, "of subspaces")["policy"]["forms"] == list(FORMS)
    answer = server.ask("POST", f"/v1/maps/{record['map']}/localize", body=messages["words"])
    assert answer.status == 422 and answer.value["detail"].endswith("images of this map; send subspaces")


@pytest.mark.slow
def test_words_of_another_dictionary_are_told_whose_words_to_send(
    server: Running, messages: dict[str, bytes], features: Features
) -> None:
    """The message's own dictionary is changed on the way; the answer names no folder of the server and no command for it."""
    from veil.wire.codec import encode

    upload = decode(messages["words"])
    other = encode(replace(upload, form=replace(upload.form, dictionary="ab" * 32)))  # type: ignore[arg-type]
    for kind in ("public", "of words"):
        record = described(server, kind)
        answer = server.ask("POST", f"/v1/maps/{record['map']}/localize", body=other)
        detail = answer.value["detail"]
        assert answer.status == 422 and "of dictionary abababababab; send words of" in detail
        assert all(digest[:12] in detail for digest in record["dictionaries"])
        assert "--" not in detail and str(server.service.folder) not in detail


def test_a_policy_limits_what_a_map_could_answer() -> None:
    """Oracle: by hand, for each policy and kind of map; a map that can answer nothing lists nothing."""
    facts = {"public": {"public": True, "words": True}, "of subspaces": {"words": False}, "of words": {"words": True}}
    facts["public without a dictionary"] = {"public": True, "words": False}
    for forms, expected in (
        (("subspaces", "words"), [["subspaces", "words"], ["subspaces"], ["words"], ["subspaces"]]),
        (("words",), [["words"], [], ["words"], []]),
        (("subspaces",), [["subspaces"], ["subspaces"], [], ["subspaces"]]),
    ):
        policy = MapPolicy(forms=forms)
        assert [answered_forms(policy, known) for known in facts.values()] == expected
        assert answered_forms(policy, {}) == list(forms)

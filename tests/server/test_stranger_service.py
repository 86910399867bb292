"""The second implementation (tests/stranger) uses a real server as docs/reference/service.md, tiles.md and geopose.md say.

Every form and every exit, from one end to the other. Oracles: what veil's own client is told for the same bytes, the receipts'
own digests, the tiles that were served.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from stranger import canonical, receipts, tiles
from stranger.codebooks import read_codebook
from stranger.messages import decode, encode
from stranger.service import Problem, Server
from veil import Client
from veil.cli import main
from veil.client.answers import RemotePose
from veil.client.connection import ServerError
from veil.codebooks.dictionary import Dictionary
from veil.device.device import Device
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.files.features import write_features
from veil.files.photographs.examples import lund_door
from veil.files.photographs.gravity import write_gravity
from veil.geometry.gravity import Gravity
from veil.mechanisms import HideInLines, Profile
from veil.server.maps.policy import MapPolicy
from veil.server.maps.receipts import add_receipt
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire.receipts import receipt_of
from worlds import unit
from worlds.places import PLACE
from worlds.releases import taken
from worlds.served_streets import NAME, serve_street
from worlds.servers import Running, running

TESTS = Path(__file__).parents[1]
EPSILON = 12.0


def gravity_of_the_door() -> dict[str, np.ndarray]:
    """Down in each camera's frame: the mean of their own downs in the frame of the reference poses."""
    with lund_door() as example:
        poses = example.poses
    down = unit(np.mean([pose.rotation[1] for pose in poses.values()], axis=0))
    return {name: pose.rotation @ down for name, pose in poses.items()}


GRAVITY = gravity_of_the_door()
DOWN = GRAVITY[sorted(GRAVITY)[::2][-1]]  # of the query, the last of the photographs that the fixture takes
WORDS, HARDENED = HideInWords(epsilon=EPSILON), HideInSubspaces(profile=Profile.hardened(quantized=True))
FORMS: dict[str, Protection] = {
    "hardened": Protection(descriptors=HARDENED),
    "hardened, gravity": Protection(descriptors=HARDENED, gravity=DOWN),
    "hardened, lines": Protection(descriptors=HARDENED, lines=HideInLines()),
    "hardened, lines, gravity": Protection(descriptors=HARDENED, lines=HideInLines(gravity=DOWN)),
    "paper": Protection(descriptors=HideInSubspaces(profile=Profile.paper(4))),
    "paper, lines": Protection(
        descriptors=HideInSubspaces(profile=Profile.paper(2, "random")), lines=HideInLines(gravity=DOWN)
    ),
    "words": Protection(descriptors=WORDS),
    "words, gravity": Protection(descriptors=HideInWords(epsilon=EPSILON, features_sent=90), gravity=DOWN),
    "words, lines": Protection(descriptors=WORDS, lines=HideInLines()),
    "words, lines, gravity": Protection(descriptors=WORDS, lines=HideInLines(gravity=DOWN)),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Two servers with the same tiles, and on the first one a public map, an empty one, and a token for clients."""

    host: Running
    other: Running
    public: str
    empty: str
    query: Features
    shown: dict[str, Features]

    @property
    def server(self) -> Server:
        return Server(port=self.host.port, token=self.host.admin)


@pytest.fixture(scope="module")
def place(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("stranger")
    shown = dict(list(door.items())[:-1])
    write_features(folder / "shown.h5", shown.items())
    write_gravity(folder / "gravity.csv", {name: Gravity(direction=GRAVITY[name]) for name in shown})
    assert main(["map", str(folder / "shown.h5"), "-o", str(folder / "map"), "--gravity", str(folder / "gravity.csv")]) == 0
    services = [Service(folder / name, ServerSettings(workers=1, map_workers=1)) for name in ("one", "two")]
    public = services[0].import_map("public", folder / "map", MapPolicy(least_profile="any")).id
    for service in services:
        serve_street(service, hintless=service is services[0])
    with ExitStack() as stack:
        host, other = (stack.enter_context(running(service)) for service in services)
        # Of few features one thing holds nearly all that a query shows.
        policy = {"least_profile": "any", "largest_object": None}
        made = host.ask("POST", "/v1/maps", value={"name": "door", "policy": policy})
        query = list(door.values())[-1]
        yield Place(host=host, other=other, public=public, empty=made.value["map"], query=query, shown=shown)


def message_of(features: Features, protection: Protection, folder: Path) -> bytes:
    """The message that a device of veil releases, after the second implementation has written it again, byte for byte."""
    ours = Device(folder).release(features, protection, purpose="map", allow_second=True).message
    again = encode(decode(ours))
    assert again == ours
    return again


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_localized_as_by_veils_client(place: Place, form: str, tmp_path: Path) -> None:
    """Oracle: the answer to veil's client, which sends the same bytes of the same device: equal bit for bit.

    Poses from lines differ by rounding each time that the server is asked. Words in lines without gravity are refused.
    """
    message = message_of(place.query, FORMS[form], tmp_path)
    client = Client(place.host.url, place.host.admin, Device(tmp_path))
    if form == "words, lines":
        with pytest.raises(Problem, match="422 invalid: words with lines are localized upright"):
            place.server.localize(place.public, message)
        with pytest.raises(ServerError, match="words with lines are localized upright"):
            client.localize(place.public, place.query, FORMS[form], allow_second=True)
        return
    answer = place.server.localize(place.public, message)
    ours = client.localize(place.public, place.query, FORMS[form], allow_second=True)
    assert isinstance(ours, RemotePose) and answer["status"] == "localized"
    pose, away = answer["cam_from_world"], 1e-4 if "lines" in form else 0.0
    assert np.abs(np.array(pose["rotation"]) - ours.cam_from_world.rotation).max() <= away
    assert np.abs(np.array(pose["translation"]) - ours.cam_from_world.translation).max() <= away
    assert away or answer["evidence"]["inliers"] == ours.inliers


@pytest.mark.slow
def test_policy_maps_and_use_are_told(place: Place) -> None:
    """Oracle: the service's own records. A token that is not known, and a photograph, are refused with a type of their own."""
    told = json.loads(Server(port=place.host.port).get("/v1/policy"))
    assert told["message_type"] == "application/vnd.veil.message" and set(told["forms"]) == {"subspaces", "words"}
    maps = {item["map"]: item for item in json.loads(place.server.get("/v1/maps"))["maps"]}
    assert maps[place.public]["mapped"] and maps[place.public]["dictionaries"] == [bundled_codebook().digest]
    used = json.loads(place.server.get("/v1/me/usage"))
    assert used["scopes"] == ["admin"] and used["used"]
    with pytest.raises(Problem, match="401 unauthorized"):
        Server(port=place.host.port, token="veil_" + "0" * 43).get("/v1/maps")
    with pytest.raises(Problem, match="415 not-a-message"):
        place.server.localize(place.public, b"\xff\xd8\xff" + bytes(1000))


@pytest.mark.slow
def test_contributions_make_a_map_and_go_with_a_receipt(place: Place, tmp_path: Path) -> None:
    """Oracles: SHA-256 of what was sent, the receipt's digest and chain by both implementations, and a pose on the map.

    Broken twins: a receipt whose time is written as another number, one with another content, a chain that lacks a link.
    """
    server, sent = place.server, {}
    for name, features in place.shown.items():
        message = message_of(features, FORMS["hardened"], tmp_path)
        told = server.contribute(place.empty, message)
        assert told["message_sha256"] == hashlib.sha256(message).hexdigest()
        assert server.contribute(place.empty, message)["contribution"] == told["contribution"], "a retry is harmless"
        sent[name] = told
    assert server.ended(told["job"])["state"] == "done"
    states = {item["contribution"]: item["state"] for item in json.loads(server.get("/v1/contributions"))["contributions"]}
    # Jobs begin while messages still come, so that a map of the first ones may leave a later one out.
    reached = [states[item["contribution"]] for item in sent.values()]
    assert set(reached) <= {"mapped", "left out"} and reached.count("mapped") >= 3
    query = message_of(place.query, FORMS["hardened"], tmp_path)
    assert server.localize(place.empty, query)["status"] == "localized"
    receipt = server.delete(told["contribution"])
    assert receipt["content"]["message_sha256"] == told["message_sha256"]
    links, noted = server.chain(), [item["receipts_head"] for item in sent.values()]
    receipts.require(receipt, links, noted)
    # What veil's own reader makes of the same receipt, which it reads as numbers.
    whole = server.get(f"/v1/contributions/{told['contribution']}/receipt")
    assert receipt_of(json.loads(whole)).digest == receipt["digest"]
    for wrong in (
        {**receipt, "content": {**receipt["content"], "bytes": canonical.Written("1")}},
        {**receipt, "content": {**receipt["content"], "deleted": canonical.Written(receipt["content"]["deleted"] + "0")}},
        {**receipt, "number": "2"},
    ):
        with pytest.raises(receipts.Refused, match="changed"):
            receipts.require(wrong, links, noted)
    for fewer, ends in ((links[1:], noted), (links[:-1], noted), (links, [*noted, "0" * 64])):
        with pytest.raises(receipts.Refused, match="chain"):
            receipts.require(receipt, fewer, ends)


@pytest.mark.slow
def test_numbers_of_a_receipt_are_answered_as_they_were_digested(place: Place) -> None:
    """Oracle: veil's digest of content with numbers that libraries write in several ways.

    Broken twin: a client that reads them as floats and writes them as JavaScript would.
    """
    content = {"deleted": 1764167275.0, "small": 1e-05, "large": 1e16, "points": 12, "why": "é"}
    service = place.host.service
    with service.database.transaction(durable=True) as rows:
        made = add_receipt(rows, contribution="c0", token="t0", content=content)
    receipt = canonical.read(place.server.get("/v1/contributions/c0/receipt"))
    receipts.require(receipt, place.server.chain(), [])
    assert receipt["digest"] == made.digest
    for name, other in (("deleted", "1764167275"), ("small", "0.00001"), ("large", "10000000000000000")):
        rewritten = {**receipt, "content": {**receipt["content"], name: canonical.Written(other)}}
        with pytest.raises(receipts.Refused, match="changed"):
            receipts.require(rewritten, place.server.chain(), [])


@pytest.mark.slow
def test_every_form_is_contributed_and_deleted(place: Place, tmp_path: Path) -> None:
    """Oracles: what the server says of each form, and a receipt for each in one chain. Forty features make no map."""
    made = place.host.ask("POST", "/v1/maps", value={"name": "all forms", "policy": {"least_profile": "any"}}).value["map"]
    server, noted, got = place.server, [], []
    for form, protection in FORMS.items():
        features = replace(taken(place.query, np.arange(40)), image_digest=form.encode().ljust(32))
        message = message_of(features, protection, tmp_path)
        told = server.contribute(made, message)
        said = decode(message)
        assert (told["features"], told["form"]) == (said.features, "words" if said.kind > 2 else "subspaces")
        assert told["positions"] == ("lines" if said.kind % 2 == 0 else "positions")
        assert (told["profile"] or "", told["epsilon"] or 0.0) == (said.profile, said.epsilon)
        noted.append(told["receipts_head"])
        got.append(server.delete(told["contribution"]))
    links = server.chain()
    for receipt in got:
        receipts.require(receipt, links, noted)
    assert len({receipt["digest"] for receipt in got}) == len(FORMS)


WALK = """
import json, sys
sys.modules["veil"] = None
tests, port, token, map_id, given, epsilon = sys.argv[1:]
sys.path.insert(0, tests)
import numpy as np
from stranger import codebooks, messages, words
from stranger.service import Server
server = Server(port=int(port), token=token)
digest = next(item for item in json.loads(server.get("/v1/maps"))["maps"] if item["map"] == map_id)["dictionaries"][0]
book = codebooks.read_codebook(server.get(f"/v1/dictionaries/{digest}"))
assert book.digest == digest and book.kind == "centroids"
with np.load(given) as raw:
    camera = (str(raw["model"]), int(raw["size"][0]), int(raw["size"][1]), tuple(raw["params"].tolist()))
    made = words.message_of(raw["descriptors"], raw["keypoints"], book, epsilon=float(epsilon), m=2, camera=camera,
                            focal_deviation=float(raw["deviation"]))
print(json.dumps(server.localize(map_id, messages.encode(made))))
"""


@pytest.mark.slow
def test_words_that_it_drew_are_localized(place: Place, tmp_path: Path) -> None:
    """A program in which veil cannot be imported: from raw features in a file, and the served dictionary, to a pose.

    Oracle: the pose of hardened subspaces of the same photograph on the same map.
    """
    camera, raw = place.query.camera, tmp_path / "raw.npz"
    np.savez(
        raw,
        descriptors=place.query.descriptors,
        keypoints=place.query.keypoints,
        model=camera.model,
        size=[camera.width_px, camera.height_px],
        params=np.array(camera.params),
        deviation=camera.focal.deviation,
    )
    given = [str(TESTS), str(place.host.port), place.host.admin, place.public, str(raw), str(EPSILON)]
    done = subprocess.run([sys.executable, "-I", "-c", WALK, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    expected = place.server.localize(place.public, message_of(place.query, FORMS["hardened"], tmp_path))
    assert answer["status"] == expected["status"] == "localized"
    rotations = [np.array(item["cam_from_world"]["rotation"]) for item in (answer, expected)]
    turn = np.degrees(np.arccos(np.clip((np.trace(rotations[0] @ rotations[1].T) - 1) / 2, -1, 1)))
    away = np.linalg.norm(np.subtract(answer["camera_center"], expected["camera_center"]))
    assert turn < 0.5 and away < 0.02 * np.linalg.norm(expected["camera_center"]) + 0.05
    assert answer["evidence"]["inliers"] >= 20


@pytest.mark.slow
@pytest.mark.parametrize("form", ["hardened", "words"])
def test_geopose_is_asked_for_and_told(place: Place, form: str, tmp_path: Path) -> None:
    """Oracle: the pose on Earth in the answer of the map itself. A claim that is not true of the message is refused."""
    assert place.host.ask("PUT", f"/v1/maps/{place.public}/place", value=PLACE).status == 200
    message = message_of(place.query, FORMS[form], tmp_path)
    expected = place.server.localize(place.public, message)["geopose"]
    true = {"hardened": "veil:subspaces:hardened", "words": f"veil:words:epsilon={EPSILON:g}"}[form]
    for path in ("/geopose", f"/v1/maps/{place.public}/geopose"):
        told = place.server.geopose(path, message, [true, "veil:positions"])
        assert (told["id"], told["type"], told["timestamp"]) == ("of a stranger", "geopose", 1795535402000)
        assert told["geopose"] == expected and 0 < told["accuracy"]["position"] < 100
    with pytest.raises(Problem, match="422 refused"):
        place.server.geopose("/geopose", message, ["veil:lines"])


@pytest.mark.slow
def test_tiles_come_from_every_exit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracles: the root for every record, and all records as one file. No token is shown, as none is asked for.

    Broken twin: with left and right exchanged, no record of any exit is a tile.
    """
    hosts = [Server(port=item.port) for item in (place.host, place.other)]
    both, one = tiles.Tiles(hosts, NAME), tiles.Tiles(hosts[:1], NAME)
    region = one.all_at_once()
    wanted = [both.count - 1, 3]
    by_one = one.from_one(wanted), one.without_hint(wanted)
    fetched: list[dict[int, bytes]] = [dict(enumerate(region)), both.from_several(wanted), *by_one]
    assert [len(records) for records in fetched] == [both.count, *3 * [both.asked]]
    for records in fetched:
        assert set(wanted) <= records.keys()
        for index, record in records.items():
            assert record == region[index]
            assert len(tiles.tile_of(tiles.proved(record, index, both.manifest), index).places) > 0
    node = tiles.node
    monkeypatch.setattr(tiles, "node", lambda left, right: node(right, left))
    for records in fetched:
        for index, record in records.items():
            with pytest.raises(tiles.Refused):
                tiles.proved(record, index, both.manifest)


@pytest.mark.slow
def test_queries_for_tiles_that_no_device_sends_are_refused(place: Place) -> None:
    """Oracle: the statuses that tiles.md names; padding is seen in `tests/tiles`, as these tiles fill their bytes."""
    host = Server(port=place.host.port)
    exits = tiles.Tiles([host], NAME)
    size = exits.exits["two-servers"]["query_bytes"] * exits.asked
    for exit, body, problem in (
        (f"{exits.path}/answers/two-servers", bytes(size - 1), "422 invalid"),
        (f"{exits.path}/answers/two-servers", bytes(size + 1), "413 too-large"),
        (f"/v1/tiles/{NAME}/{'0' * 64}/answers/two-servers", bytes(size), "404 not-found"),
    ):
        with pytest.raises(Problem, match=problem):
            host.ask("POST", exit, body, {"Content-Type": tiles.QUERIES})


@pytest.mark.slow
def test_the_served_dictionary_is_the_bundled_one(place: Place) -> None:
    """Oracle: veil's words. A dictionary that the server does not have is 404."""
    book = bundled_codebook()
    assert isinstance(book, Dictionary)
    theirs = read_codebook(place.server.get(f"/v1/dictionaries/{book.digest}"))
    assert np.array_equal(theirs.words, book.stored)
    assert np.allclose(theirs.unit, book.vectors, atol=1e-7)
    with pytest.raises(Problem, match="404 not-found"):
        place.server.get(f"/v1/dictionaries/{'0' * 64}")

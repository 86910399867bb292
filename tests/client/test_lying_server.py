"""A server that lies to its clients: which lies the client notices, and which it cannot (docs/threats.md)."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.client import Client, RemotePose, Unreachable
from veil.device.device import Device
from veil.device.protection import HideInSubspaces, Protection
from veil.errors import WireError
from veil.features import Features
from veil.files.device.outbox import Sending
from veil.files.service.blobs import FolderBlobs
from veil.places.poses.answer import NoPose
from veil.wire.receipts import BEGIN, Receipt
from worlds.certificates import write_certificate
from worlds.releases import taken


class Liar(ThreadingHTTPServer):
    """A server that answers each path with the JSON value that a test sets, whatever is true; `bodies` are what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.says: dict[str, Any] = {}
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def tell_chain(self, receipts: list[Receipt]) -> None:
        """Answer with this chain of receipts."""
        links = [[item.number, item.content_digest, item.digest] for item in receipts]
        self.says["/v1/receipts?after=0"] = {"links": links}
        self.says[f"/v1/receipts?after={len(links)}"] = {"links": []}


class _Handler(BaseHTTPRequestHandler):
    def _serve(self) -> None:
        assert isinstance(self.server, Liar)
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        data = json.dumps(self.server.says[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def liar() -> Iterator[Liar]:
    server = Liar()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def chain(*contents: str) -> list[Receipt]:
    """A chain of receipts of contributions of these names, as an honest server writes it."""
    receipts: list[Receipt] = []
    for name in contents:
        content = {"contribution": name, "message_sha256": "0" * 64, "nonce": f"nonce of {name}"}
        receipts.append(Receipt(number=len(receipts) + 1, content=content, before=receipts[-1].digest if receipts else BEGIN))
    return receipts


def noted(client: Client, head: str) -> None:
    """Have a client remember an end of the chain, as it does whenever a contribution is acknowledged."""
    sending = Sending(server=client._connection.url, map_id="m", name="", message_sha256="1" * 64)
    client.outbox.put(sending, b"message")
    client.outbox.acknowledge(Sending(**{**vars(sending), "contribution": "other", "receipts_head": head}))


def test_a_receipt_that_is_dropped_or_rewritten_is_noticed(liar: Liar, tmp_path: Path) -> None:
    """Each lie about an honest chain, by itself. Broken twin: a client that looks for its own receipt alone finds it there."""
    honest = chain("a", "mine", "c", "d")
    client, mine = Client(liar.url, "t", Device(tmp_path)), honest[1]
    noted(client, honest[2].digest)
    liar.tell_chain(honest)
    client.verify(mine)
    lies = {
        "dropped, the numbers as they were": [honest[0], *honest[2:]],
        "taken back, the rest written anew": chain("a", "c", "d"),
        "what was said before changed": chain("x", "mine", "c", "d"),
        "what was said after changed": chain("a", "mine", "x", "d"),
        "the end forgotten": honest[:2],
        "nothing was ever deleted": [],
    }
    for name, lie in lies.items():
        liar.tell_chain(lie)
        with pytest.raises(WireError):
            client.verify(mine)
        assert name
    rewritten = lies["what was said after changed"]
    assert rewritten[1].digest == mine.digest, "the twin finds its receipt there"
    forgetful = Client(liar.url, "t", Device(tmp_path / "new"))
    liar.tell_chain(rewritten)
    forgetful.verify(mine)


def test_two_chains_for_two_clients_are_noticed_when_they_compare_their_ends(liar: Liar, tmp_path: Path) -> None:
    """Alone, each of them sees a whole chain: what one noted is not in what the other is shown."""
    mine, theirs = chain("a", "mine"), chain("a", "theirs")
    first, second = Client(liar.url, "t", Device(tmp_path / "1")), Client(liar.url, "t", Device(tmp_path / "2"))
    noted(first, mine[1].digest)
    noted(second, theirs[1].digest)
    liar.tell_chain(mine)
    first.verify(mine[1])
    liar.tell_chain(theirs)
    second.verify(theirs[1])
    noted_of_both = Client(liar.url, "t", Device(tmp_path / "3"))
    noted(noted_of_both, mine[1].digest)
    with pytest.raises(WireError, match="rewritten"):
        noted_of_both.verify(theirs[1])


def test_a_wrong_pose_is_not_noticed(liar: Liar, door: dict[str, Features], tmp_path: Path) -> None:
    """Limit of the client: an invented pose with invented evidence is accepted as any other one.

    So does the lie that there is none. Only what is no pose at all is refused (tests/client/test_client.py).
    """
    client = Client(liar.url, "t", Device(tmp_path))
    features = taken(next(iter(door.values())), np.arange(30))
    made_up = {
        "status": "localized",
        "cam_from_world": {"rotation": np.eye(3).tolist(), "translation": [1.0, 2.0, 3.0]},
        "covariance": (1e-6 * np.eye(6)).tolist(),
        "evidence": {"inliers": 500, "correspondences": 600, "log10_nfa": -900.0},
        "map": "m0123456789abcdef",
        "map_version": 7,
    }
    liar.says["/v1/maps/m0123456789abcdef/localize"] = made_up
    answer = client.localize("m0123456789abcdef", features, Protection(descriptors=HideInSubspaces()))
    assert isinstance(answer, RemotePose) and answer.inliers == 500
    np.testing.assert_allclose(answer.cam_from_world.center, [-1, -2, -3])
    liar.says["/v1/maps/m0123456789abcdef/localize"] = {"status": "no pose", "reason": "it is dark"}
    assert isinstance(client.localize("m0123456789abcdef", features, Protection(descriptors=HideInSubspaces())), NoPose)


def test_a_copy_that_was_kept_is_not_noticed(liar: Liar, door: dict[str, Features], tmp_path: Path) -> None:
    """Limit of receipts: a server that kept every byte that it received writes a receipt that verifies all the same."""
    client = Client(liar.url, "t", Device(tmp_path))
    features = taken(next(iter(door.values())), np.arange(30))
    message = client.device.release(features, purpose="map").message
    digest = FolderBlobs(tmp_path / "copies").put(message)
    accepted = {"contribution": "mine", "map": "m0123456789abcdef", "message_sha256": digest, "state": "pending", "reason": ""}
    liar.says["/v1/maps/m0123456789abcdef/contributions"] = {**accepted, "job": None, "receipts_head": BEGIN}
    assert client.contribute("m0123456789abcdef", features, Protection(descriptors=HideInSubspaces())) is not None
    receipt = Receipt(number=1, content={"contribution": "mine", "message_sha256": digest, "nonce": "n"}, before=BEGIN)
    liar.says["/v1/contributions/mine"] = {"receipt": receipt.as_json(), "job": None}
    liar.tell_chain([receipt])
    assert client.delete("mine") == receipt
    assert liar.bodies[0] == message == FolderBlobs(tmp_path / "copies").get(digest)


def test_the_chain_tells_nothing_of_what_others_deleted() -> None:
    """Who knows all of a receipt but its nonce cannot tell whether it is in the chain: 128 random bits are covered, too."""
    content = {"contribution": "c1", "message_sha256": "2" * 64, "nonce": "0" * 32}
    known = {name: value for name, value in content.items() if name != "nonce"}
    receipt = Receipt(number=1, content=content, before=BEGIN)
    guesses = [known, {**known, "nonce": ""}, {**known, "nonce": "1" * 32}]
    assert all(Receipt(number=1, content=guess, before=BEGIN).content_digest != receipt.content_digest for guess in guesses)


def test_a_server_without_a_certificate_is_not_spoken_to(tmp_path: Path) -> None:
    """TLS with a certificate that nobody vouches for: the token is not sent. Broken twin: a client that is told to trust it."""
    write_certificate(tmp_path)
    server = Liar()
    server.says["/v1/maps"] = {"maps": []}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        client = Client(server.url.replace("http:", "https:"), "t", Device(tmp_path / "device"))
        with pytest.raises(Unreachable, match=r"certificate|CERTIFICATE"):
            client.maps()
        assert server.bodies == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(tmp_path / "both.pem"))
            assert Client(server.url.replace("http:", "https:"), "t", Device(tmp_path / "device")).maps() == []
    finally:
        server.shutdown()
        server.server_close()

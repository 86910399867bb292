"""HTTP as RFC 9110 has it: HEAD beside GET, conditional requests, `Allow`, hints about types, and addresses of IPv6."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from veil.client.connection import Connection
from veil.client.tile_access import TileHost
from veil.errors import InputError
from veil.files.codebooks import bundled_codebook
from veil.server.app import create_app
from veil.server.http.bodies import MOST_JSON
from veil.server.http.listening import address_of
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.served_streets import serve_street
from worlds.servers import MESSAGE_TYPE, Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    service = Service(tmp_path_factory.mktemp("server") / "store", ServerSettings(workers=1, body_s=5.0, demo_page=True))
    with running(service, jobs=False) as server:
        yield server


@pytest.fixture(scope="module")
def files(server: Running) -> list[str]:
    """Paths of files that never change: of tiles, of the dictionary, of the page, and the contract."""
    version, _, _ = serve_street(server.service)
    tiles = [f"{version}/{name}" for name in ("manifest.json", "manifest.bin", "tiles.bin", "hint.bin")]
    return [*tiles, f"/v1/dictionaries/{bundled_codebook().digest}", "/", "/static/page.js", "/openapi.json"]


def concrete(server: Running, files: list[str]) -> list[str]:
    """Paths of all routes that answer GET, with what is there or not in place of parameters."""
    app = create_app(server.service)
    paths = {path for path, operations in app.openapi()["paths"].items() if "get" in operations}
    assert len(paths) > 20
    return sorted({path.replace("{", "").replace("}", "") for path in paths} | set(files))


@pytest.mark.slow
def test_head_is_get_without_its_body(server: Running, files: list[str]) -> None:
    """Oracle: the GET of the same path, over a socket: status and headers are equal, and nothing follows them."""
    for path in concrete(server, files):
        for token in ("", None):
            got, told = (server.ask(method, path, token=token) for method in ("GET", "HEAD"))
            if path == "/metrics" and got.status == 200:  # counts what was asked meanwhile
                got.headers.pop("content-length"), told.headers.pop("content-length")
            got.headers.pop("date"), told.headers.pop("date")
            assert (told.status, told.data) == (got.status, b"") and told.headers == got.headers, path
            assert path == "/metrics" or int(told.headers["content-length"]) == len(got.data)


@pytest.mark.slow
def test_a_file_that_is_known_is_not_sent_again(server: Running, files: list[str]) -> None:
    """RFC 9110, Sec. 13.1.2: a list of tags, weak ones, and `*`; another tag, or a part of this one, has the file."""
    for path in files:
        whole = server.ask("GET", path)
        tag = whole.headers["etag"]
        assert whole.status == 200 and tag.startswith('"') and tag.endswith('"')
        for known in (tag, f'"x", {tag}', f"W/{tag}", "*"):
            for method in ("GET", "HEAD"):
                answer = server.ask(method, path, headers={"If-None-Match": known})
                assert (answer.status, answer.data, answer.headers["etag"]) == (304, b"", tag), (path, known)
                assert answer.headers.get("cache-control") == whole.headers.get("cache-control")
        for other in ('"x"', tag[:-2] + '"', tag.strip('"')):
            assert server.ask("GET", path, headers={"If-None-Match": other}).data == whole.data


def test_allow_names_every_method_of_a_path(server: Running) -> None:
    """Oracle: the methods that are answered otherwise than by 405."""
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
    answers = "/v1/tiles/street/" + "0" * 64 + "/answers/two-servers"
    paths = ("/v1/maps", "/v1/maps/m0", "/v1/contributions/c0", "/geopose", "/v1/tokens", "/openapi.json", "/", "/metrics")
    for path in (*paths, answers):
        by_method = {method: server.ask(method, path, body=b"") for method in methods}
        allowed = {method for method, answer in by_method.items() if answer.status != 405}
        assert allowed and allowed != set(methods)
        for method in set(methods) - allowed:
            assert set(by_method[method].headers["allow"].split(", ")) == allowed, (path, method)
            assert method == "HEAD" or by_method[method].value["type"] == "urn:veil:http"
    assert server.ask("POST", "/nowhere", body=b"").status == 404


@pytest.mark.slow
def test_a_body_without_its_type_is_told_which_to_send(server: Running) -> None:
    """A message of any length without its type, or JSON without one: 415 with the type; a JSON body that is too long: 413."""
    made = server.ask("POST", "/v1/maps", value={"name": "types"}).value["map"]
    for size in (100, MOST_JSON, MOST_JSON + 1, 10 * MOST_JSON):
        for kind in ("", "application/octet-stream"):
            for route in ("localize", "contributions"):
                answer = server.ask("POST", f"/v1/maps/{made}/{route}", body=b"VEIL" + bytes(size - 4), kind=kind or " ")
                assert answer.status == 415 and MESSAGE_TYPE in answer.value["detail"], (size, kind)
    long = json.dumps({"name": "x" * MOST_JSON}).encode()
    assert server.ask("POST", "/v1/maps", body=long, kind="application/json").status == 413
    for method, path in (("POST", "/v1/maps"), ("POST", "/v1/tokens"), ("PUT", f"/v1/maps/{made}/place")):
        answer = server.ask(method, path, body=b"{}", kind="text/plain")
        assert answer.status == 415 and "application/json" in answer.value["detail"]
        assert server.ask(method, path, body=b"{", kind="application/json").status == 422


@pytest.mark.slow
def test_an_address_of_ipv6_stands_in_brackets(tmp_path: Path) -> None:
    """RFC 3986, Sec. 3.2.2. Oracle: a server at ::1 that is reached at the printed address."""
    assert address_of("127.0.0.1", 8700) == "http://127.0.0.1:8700" and address_of("maps", 1) == "http://maps:1"
    assert address_of("::1", 8700) == "http://[::1]:8700"
    for broken in ("http://::1:8700", "http://[::1:8700", "http://127.0.0.1:x", "http://127.0.0.1:70000"):
        for made in (lambda url: Connection(url, "veil_x"), TileHost):
            with pytest.raises(InputError, match="no address"):
                made(broken)

    class Alive(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"host": self.headers["Host"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    class Six(http.server.HTTPServer):
        address_family = socket.AF_INET6

    try:
        listener = Six(("::1", 0), Alive)
    except OSError:
        pytest.skip("this machine has no IPv6")
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    url = address_of("::1", listener.server_port)
    assert Connection(url, "veil_x").get("healthz") == {"host": url.removeprefix("http://")}
    listener.shutdown()

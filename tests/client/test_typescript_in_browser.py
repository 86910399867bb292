"""The client in TypeScript in Chromium: its store, its search under a strict policy, and its localizer in a worker."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"
VEIL = Path(str(files("veil")))
POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"


class Pages(ThreadingHTTPServer):
    """A server of a folder, which keeps what a page posts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def do_POST(self) -> None:
        assert isinstance(self.server, Pages)
        self.server.said.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.slow
def test_in_chromium(tmp_path: Path) -> None:
    """Its own assertions, as `tests/browser.js` names them; the oracle of the bytes are the vectors of Python."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    shutil.copytree(VEIL / "server" / "static" / "client", tmp_path / "site" / "dist")
    shutil.copytree(CLIENT / "tests", tmp_path / "site" / "tests")
    shutil.copy(VEIL / "data" / "codebook-sift-l2.npz", tmp_path / "site" / "codebook.npz")
    server = Pages(tmp_path / "site")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    page = f"http://127.0.0.1:{server.server_address[1]}/tests/browser.html"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--remote-debugging-port=0"]
    browser = subprocess.Popen([chromium, *flags, page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        said = server.said.get(timeout=120)
    finally:
        browser.kill()
        browser.wait()
        server.shutdown()
        server.server_close()
    assert said["failed"] is None, said["failed"]
    of_store = ["keepsWhatItIsGiven", "tabsTakeTurns", "theTwinIsCaught", "framesKnowEachOther"]
    assert said["passed"] == [*of_store, "localizesAsPythonDoes"]
    assert said["search"]["words"] == 16384

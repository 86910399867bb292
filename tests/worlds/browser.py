"""Chromium without a window, driven through chromedriver's WebDriver protocol (W3C WebDriver 2), and what it sent."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# Nothing that the browser does by itself: only what the page asks for is in its log.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
)

# WebGL2 by the processor, where the machine has no graphics hardware.
SOFTWARE_GL = (*(flag for flag in FLAGS if flag != "--disable-gpu"), "--use-angle=swiftshader", "--enable-unsafe-swiftshader")


def chromium() -> str | None:
    """Why there is no browser to test with; None if there is one."""
    names = ("chromedriver", "chromium")
    missing = [name for name in names if shutil.which(name) is None]
    return f"needs {' and '.join(missing)} (apt-get install chromium chromium-driver)" if missing else None


@dataclass(frozen=True)
class Browser:
    """A tab of a browser: `port` is chromedriver's, `session` its name of the tab's session."""

    port: int
    session: str

    def command(self, method: str, path: str, value: object = None) -> Any:
        """Send one command, and return its value. Raises AssertionError with the driver's message if it fails."""
        return _ask(self.port, method, f"/session/{self.session}{path}", value)

    def open(self, address: str) -> None:
        """Load a page."""
        self.command("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a function's body in the page."""
        return self.command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *, seconds: float = 60.0) -> Any:
        """The value of a function's body in the page as soon as it is true."""
        until = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < until, f"never true: {script}; the page says {self.run('return document.body.innerText')}"
            time.sleep(0.1)
        return value

    def click(self, selector: str) -> None:
        """Click on an element as a user does: it must be visible."""
        self.command("POST", f"/element/{self._element(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type into an element; into an input of files, the path of one."""
        self.command("POST", f"/element/{self._element(selector)}/value", {"text": text})

    def devtools(self, command: str, **parameters: object) -> Any:
        """The result of a command of the DevTools protocol."""
        return self.command("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self) -> list[dict[str, Any]]:
        """The events of the DevTools protocol since the last call: `method` and `params` of each."""
        entries = self.command("POST", "/se/log", {"type": "performance"})
        return [json.loads(entry["message"])["message"] for entry in entries]

    def complaints(self) -> list[str]:
        """Messages of the page's console since the last call: errors, and violations of its policy."""
        return [entry["message"] for entry in self.command("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, *, width: int, height: int | None = None, scale: float = 1.0, dark: bool = False) -> bytes:
        """A PNG of the page (None: of its whole height) as a screen of this width shows it."""
        self.devtools(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        )
        size = {"width": width, "deviceScaleFactor": scale, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", height=height or 900, **size)
        time.sleep(0.4)
        if height is None:
            whole = self.run("return Math.ceil(document.documentElement.scrollHeight)")
            self.devtools("Emulation.setDeviceMetricsOverride", height=whole, **size)
            time.sleep(0.4)
        return base64.b64decode(self.devtools("Page.captureScreenshot", format="png")["data"])

    def _element(self, selector: str) -> str:
        return self.command("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]


@contextmanager
def browsing(flags: tuple[str, ...] = FLAGS) -> Iterator[Browser]:
    """A browser with an empty profile, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="veil-browser-", ignore_cleanup_errors=True) as profile:
        log = Path(profile) / "driver.log"
        driver = subprocess.Popen(["chromedriver", "--port=0", f"--log-path={log}"], stdout=subprocess.PIPE, text=True)
        try:
            port = _port(driver)
            options = {"args": [*flags, f"--user-data-dir={profile}/profile"], "binary": shutil.which("chromium")}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
            made = _ask(port, "POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            browser = Browser(port=port, session=made["sessionId"])
            browser.open("about:blank")
            browser.log()  # of the browser's own first page
            try:
                yield browser
            finally:
                browser.command("DELETE", "")
        finally:
            driver.terminate()
            driver.wait()
            assert driver.stdout is not None
            driver.stdout.close()


def _port(driver: subprocess.Popen[str]) -> int:
    """The port that chromedriver chose, as it says."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if "started successfully on port" in line:
            return int(line.rsplit(" ", 1)[1].strip(" .\n"))
    raise AssertionError("chromedriver did not start")


def _ask(port: int, method: str, path: str, value: object = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        body = None if method != "POST" else json.dumps(value or {})
        connection.request(method, path, body=body, headers={"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())["value"]
    finally:
        connection.close()
    assert not (isinstance(answer, dict) and "error" in answer), answer
    return answer

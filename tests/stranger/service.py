"""Requests to a server, as docs/reference/service.md and docs/reference/geopose.md have them."""

from __future__ import annotations

import base64
import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

from stranger.canonical import read
from stranger.messages import decode

MESSAGE = "application/vnd.veil.message"


class Problem(Exception):
    """A server's refusal: the status, the kind (`urn:veil:...`) and what to do."""

    def __init__(self, status: int, data: bytes) -> None:
        told = json.loads(data)
        self.status, self.kind = status, told["type"].removeprefix("urn:veil:")
        super().__init__(f"{status} {self.kind}: {told['detail']}")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The status, the headers (names in lower case) and the bytes of an answer."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.data)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server by its port on this machine, and the token that is shown to it ("" for none)."""

    port: int
    token: str = ""

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """One request. Raises Problem for what is refused, after coming again where the server is busy."""
        said = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        for _ in range(100):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            connection.request(method, path, body, {**said, **(headers or {})})
            answer = connection.getresponse()
            data, fields = answer.read(), {name.lower(): value for name, value in answer.getheaders()}
            connection.close()
            if answer.status != 503 or "retry-after" not in fields:
                break
            time.sleep(min(1.0, float(fields["retry-after"])))
        if answer.status >= 400:
            raise Problem(answer.status, data)
        return Answer(status=answer.status, headers=fields, data=data)

    def get(self, path: str) -> bytes:
        return self.ask("GET", path).data

    def send(self, path: str, message: bytes) -> Answer:
        return self.ask("POST", path, message, {"Content-Type": MESSAGE})

    def localize(self, map_id: str, message: bytes) -> dict[str, Any]:
        """The answer to a query."""
        return self.send(f"/v1/maps/{map_id}/localize", message).value

    def contribute(self, map_id: str, message: bytes) -> dict[str, Any]:
        """The server's answer to a contribution."""
        return self.send(f"/v1/maps/{map_id}/contributions", message).value

    def ended(self, job: str) -> dict[str, Any]:
        """A job once it has ended."""
        while (state := json.loads(self.get(f"/v1/jobs/{job}")))["state"] in ("queued", "running"):
            time.sleep(0.05)
        return state

    def delete(self, contribution: str) -> dict[str, Any]:
        """The receipt of a deletion, its numbers as they are written."""
        answer = self.ask("DELETE", f"/v1/contributions/{contribution}")
        if answer.status == 200:
            return read(answer.data)["receipt"]
        self.ended(answer.value["job"])
        return read(self.get(f"/v1/contributions/{contribution}/receipt"))

    def chain(self) -> list[list[str]]:
        """All links of the chain of receipts."""
        links: list[list[str]] = []
        while page := read(self.get(f"/v1/receipts?after={len(links)}"))["links"]:
            links += page
        return links

    def geopose(self, path: str, message: bytes, applied: list[str]) -> dict[str, Any]:
        """The response of the GeoPoseProtocol to a message, of which it is said what was done to the features."""
        said = decode(message)
        reading = {
            "timestamp": 1795535402000,
            "sensorId": "camera",
            "sequenceNumber": 1,
            "size": [said.width, said.height],
            "imageFormat": MESSAGE,
            "imageBytes": base64.b64encode(message).decode("ascii"),
            "privacy": {
                "dataRetention": [],
                "dataAcceptableUse": [],
                "dataSanitizationRequested": [],
                "dataSanitizationApplied": applied,
            },
        }
        request = {
            "id": "of a stranger",
            "timestamp": 1795535402000,
            "type": "geopose",
            "sensors": [{"id": "camera", "type": "camera"}],
            "sensorReadings": {"cameraReadings": [reading]},
        }
        headers = {"Content-Type": "application/json", "Accept": "application/vnd.oscp+json; version=2.0"}
        return self.ask("POST", path, json.dumps(request).encode(), headers).value

"""Pages of the viewer as a reader without a browser sees them: the record, and each array decoded by NumPy."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import numpy as np

KINDS = {"Uint8Array": "<u1", "Uint16Array": "<u2", "Uint32Array": "<u4", "Float32Array": "<f4"}


@dataclass
class ReadPage:
    """The elements of a page: its record, arrays by name, policy, scripts and styles that run, and names of all elements."""

    record: dict[str, Any]
    arrays: dict[str, np.ndarray]
    policy: str
    scripts: list[str]
    styles: list[str]
    tags: list[tuple[str, dict[str, str]]]

    @property
    def points(self) -> np.ndarray:
        """The points in the page's order, as its script computes them."""
        told = self.record["points"]
        numbers = self.arrays["places"].astype(np.float64).reshape(-1, 3)
        return np.array(told["origin"]) + np.array(told["low"]) + np.array(told["stride"]) * numbers

    def keypoints(self, image: dict[str, Any]) -> np.ndarray:
        """Positions in pixels of one image's sightings."""
        rows = slice(image["first"], image["first"] + image["count"])
        return self.arrays["keypoints"].reshape(-1, 2)[rows] / 65535 * np.array(image["size"])

    def seen(self, image: dict[str, Any]) -> np.ndarray:
        """The points of one image's sightings, -1 for none."""
        rows = self.arrays["seen"][image["first"] : image["first"] + image["count"]].astype(np.int64)
        return np.where(rows == 0xFFFFFFFF, -1, rows)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, dict[str, str], str]] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append((tag, attributes))
        self._open = tag in ("script", "style")
        if self._open:
            self.parts.append((tag, attributes, ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, attributes, text = self.parts[-1]
            self.parts[-1] = tag, attributes, text + data


def read_page(html: str) -> ReadPage:
    """The parts of a page."""
    reader = _Reader()
    reader.feed(html)
    (record,) = [text for tag, attributes, text in reader.parts if attributes.get("id") == "view"]
    arrays = {
        attributes["data-array"]: np.frombuffer(base64.b64decode(text, validate=True), dtype=KINDS[attributes["data-type"]])
        for tag, attributes, text in reader.parts
        if "data-array" in attributes
    }
    (policy,) = [
        attributes["content"] for tag, attributes in reader.tags if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    return ReadPage(
        record=json.loads(record),
        arrays=arrays,
        policy=policy,
        scripts=[text for tag, attributes, text in reader.parts if tag == "script" and "type" not in attributes],
        styles=[text for tag, _, text in reader.parts if tag == "style"],
        tags=reader.tags,
    )

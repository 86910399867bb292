"""The localizer in TypeScript, run by one process of Node.js that answers photographs one after the other."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict

import numpy as np

from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions
from veil.geometry.camera import Camera
from worlds.node_sift import MODULE

_PROGRAM = """
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
const client = process.argv[1];
const [{ extractSift }, { decodeManifest }, { decodeTile }, localizing, { poseOf }] = await Promise.all(
  ["sift", "tiles/tile_manifest", "tiles/tile_format", "tiles/localize", "tiles/answer"].map(
    (name) => import(`${client}/${name}.js`),
  ),
);
let manifest, facts, records;
const seconds = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1e6; };
for await (const line of createInterface({ input: process.stdin })) {
  const { folder, gray, width, height, camera, sift } = JSON.parse(line);
  if (folder !== undefined) {
    const text = readFileSync(`${folder}/manifest.json`, "utf8");
    manifest = decodeManifest(text, new Uint8Array(readFileSync(`${folder}/manifest.bin`)));
    facts = JSON.parse(text);
    records = new Uint8Array(readFileSync(`${folder}/tiles.bin`));
    console.log("{}");
    continue;
  }
  const pixels = new Uint8Array(readFileSync(gray)), begun = seconds();
  let answer, extracted = begun;
  try {
    const features = extractSift({ width, height, pixels }, sift), query = localizing.queryOf(manifest, features);
    extracted = seconds();
    const { axes, bits } = manifest.coding, wanted = localizing.wantedTiles(manifest, features, undefined, query);
    const tiles = wanted.map((index) => {
      const start = index * facts.record_bytes;
      return decodeTile(records.subarray(start, start + facts.tile_bytes), { index, axes, bits });
    });
    answer = poseOf(localizing.localizeInTiles(features, camera, manifest, tiles, { maxSeconds: 600 }, query), null);
  } catch (error) {
    answer = { status: "no pose", reason: String(error) };
  }
  const end = seconds();
  delete answer.keypointRows;
  delete answer.pointRows;
  console.log(JSON.stringify({ answer, extraction: extracted - begun, seconds: end - begun }));
}
"""


class NodeAnswer(TypedDict):
    """An answer as the client gives it, with processor seconds of the extraction and of all."""

    answer: dict[str, Any]
    extraction: float
    seconds: float


class NodeLocalizer:
    """A process of Node.js with the client's modules; `open` gives it a map's tiles."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="veil-node-localizer-")
        command = ["node", "--input-type=module", "--eval", _PROGRAM, MODULE.parent.as_uri()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> NodeLocalizer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._folder.cleanup()

    def open(self, folder: Path) -> None:
        """Read the tiles of a folder."""
        self._asked({"folder": str(folder)})

    def localize(self, picture: Picture, camera: Camera, sift: SiftOptions) -> NodeAnswer:
        """The answer to a photograph in the tiles that were opened."""
        path = Path(self._folder.name) / "gray"
        path.write_bytes(np.ascontiguousarray(picture.gray).tobytes())
        height, width = picture.gray.shape
        given: dict[str, object] = {"maxFeatures": sift.max_features, "normalization": sift.normalization}
        if sift.first_octave is not None:
            given["firstOctave"] = sift.first_octave
        lens = {
            "model": camera.model,
            "widthPx": camera.width_px,
            "heightPx": camera.height_px,
            "params": list(camera.params),
            "focalDeviation": camera.focal.deviation if camera.focal_is_known else None,
        }
        return self._asked({"gray": str(path), "width": width, "height": height, "camera": lens, "sift": given})

    def _asked(self, value: dict[str, object]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

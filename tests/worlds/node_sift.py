"""SIFT in TypeScript, run by Node.js on the gray pixels that Python's extractor takes, and how alike the two are."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, sift_space
from veil.features import Features

MODULE = Path(str(files("veil"))) / "server" / "static" / "client" / "sift.js"
_PROGRAM = """
import { readFileSync, writeFileSync } from "node:fs";
const [module, folder, width, height, options] = process.argv.slice(1);
const { extractSift } = await import(module);
const pixels = new Uint8Array(readFileSync(`${folder}/gray`));
const begun = performance.now();
const features = extractSift({ width: Number(width), height: Number(height), pixels }, JSON.parse(options));
console.log((performance.now() - begun) / 1000);
for (const name of ["keypoints", "descriptors", "scales", "orientations"]) writeFileSync(`${folder}/${name}`, features[name]);
"""


def no_node() -> str | None:
    """Why SIFT in TypeScript cannot run here; None if it can."""
    node = shutil.which("node")
    if node is None:
        return "Node.js is not installed"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return None if int(version[1:].split(".")[0]) >= 20 else "the client needs Node.js 20"


def node_sift(picture: Picture, options: SiftOptions) -> tuple[Features, float]:
    """The features of a picture by the module of the demo page, and the seconds that they took."""
    height, width = picture.gray.shape
    given: dict[str, object] = {"maxFeatures": options.max_features, "normalization": options.normalization}
    if options.first_octave is not None:
        given["firstOctave"] = options.first_octave
    with tempfile.TemporaryDirectory(prefix="veil-node-sift-") as folder:
        (Path(folder) / "gray").write_bytes(picture.gray.tobytes())
        command = ["node", "--input-type=module", "--eval", _PROGRAM, MODULE.as_uri(), folder, str(width), str(height)]
        done = subprocess.run([*command, json.dumps(given)], capture_output=True, text=True, check=True)

        def read(name: str, kind: str) -> np.ndarray:
            return np.fromfile(Path(folder) / name, dtype=kind)

        features = Features(
            keypoints=read("keypoints", "<f4").reshape(-1, 2),
            descriptors=read("descriptors", "u1").reshape(-1, 128),
            space=sift_space(options.normalization),
            camera=picture.camera,
            image_digest=picture.digest,
            scales=read("scales", "<f4"),
            orientations=read("orientations", "<f4"),
        )
    return features, float(done.stdout)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of two extractions of one picture.

    - `share`: share of the reference's features that the other has within 1 px, 10 % of scale and 10 degrees.
    - `offsets_px`: between their positions.
    - `distances`: of their descriptors, as unit vectors.
    """

    share: float
    offsets_px: np.ndarray
    distances: np.ndarray


def agreement(reference: Features, other: Features) -> Agreement:
    """Agreement of an extraction with the reference; of several features at a place, the nearest descriptor counts."""
    assert reference.scales is not None and other.scales is not None
    assert reference.orientations is not None and other.orientations is not None
    offsets, distances = [], []
    unit = [item.descriptors / np.linalg.norm(item.descriptors, axis=1, keepdims=True) for item in (reference, other)]
    for row, near in enumerate(cKDTree(other.keypoints).query_ball_point(reference.keypoints, 1.0)):
        rows = np.array(near, dtype=np.int64)
        turn = np.angle(np.exp(1j * (other.orientations[rows] - reference.orientations[row])))
        alike = (np.abs(np.log(other.scales[rows] / reference.scales[row])) < np.log(1.1)) & (np.abs(np.degrees(turn)) < 10)
        if alike.any():
            away = np.linalg.norm(unit[1][rows[alike]] - unit[0][row], axis=1)
            nearest = rows[alike][away.argmin()]
            distances.append(away.min())
            offsets.append(np.linalg.norm(other.keypoints[nearest] - reference.keypoints[row]))
    share = len(distances) / len(reference)
    return Agreement(share=share, offsets_px=np.array(offsets), distances=np.array(distances))

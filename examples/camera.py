"""A camera that localizes itself through a server which cannot see what it sees: poses are printed as they come.

    python examples/camera.py http://127.0.0.1:8700 photos/ --map lobby --token-file robot.token   # 0: the first webcam

Where the server has tiles of the map nothing leaves. Else words do, for which the camera and its gravity must be known, or with
--obfuscate subspaces, an obfuscation without proof. The ledger of this device notes every release. Features that an earlier
frame showed leave as they did then (docs/choose.md#near-repeats).
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

import veil


def frames(source: str, every_s: float) -> Iterator[tuple[str, veil.Picture]]:
    """Names and pictures: of a folder's photographs, or of what the webcam of this number sees once in `every_s` seconds."""
    if not source.isdigit():
        for path in sorted(path for path in Path(source).iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png")):
            yield path.name, veil.read_picture(path)
        return
    video = cv2.VideoCapture(int(source))
    while video.isOpened() and (read := video.read())[0]:
        yield time.strftime("%X"), veil.Picture.of(cv2.cvtColor(read[1], cv2.COLOR_BGR2RGB))
        time.sleep(every_s)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("server")
parser.add_argument("source", nargs="?", default="0", help="number of a webcam, or a folder of photographs")
parser.add_argument("--map", required=True)
parser.add_argument("--token-file", required=True, type=Path)
parser.add_argument("--camera", metavar="MODEL,P1,...", help="intrinsics, COLMAP's models (default: EXIF, or a guess)")
parser.add_argument("--gravity", metavar="X,Y,Z", help="down in the camera's frame (x right, y down, z forward)")
parser.add_argument("--obfuscate", action="store_true", help="send subspaces")
parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS")
asked = parser.parse_args()
with veil.Client(asked.server, asked.token_file.read_text().strip()) as client:
    protection = veil.Protection(descriptors=veil.HideInSubspaces()) if asked.obfuscate else None
    down = np.array(asked.gravity.split(","), dtype=float) if asked.gravity else None
    for name, seen in frames(asked.source, asked.every):
        size = seen.camera.width_px, seen.camera.height_px
        camera = veil.Camera.parse(asked.camera, *size) if asked.camera else None
        answer = client.localize(asked.map, veil.extract(seen, camera=camera), protection, gravity=down, name=name)
        print(f"{name}: {answer}", flush=True)

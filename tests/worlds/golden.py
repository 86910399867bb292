"""The golden corpus: what veil makes of the bundled photographs, as records that two commits can be compared by.

Messages of every kind, three maps, sixty queries and one audit, under a fixed secret and with one thread. On one machine, a
change that only moves code leaves every record as it is, to the last bit:

    python tests/worlds/golden.py write before.json     (at one commit)
    python tests/worlds/golden.py write after.json      (at the other one)
    python tests/worlds/golden.py compare before.json after.json

The record that is kept, `tests/golden/corpus.json`, is written by `python tests/worlds/golden.py write`. Another processor may
give other last digits, so that it also says where it was made.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

import veil
from veil.attacks.registry import ATTACKS
from veil.files.photographs.examples import HELD_OUT, lund_door, other_place

KEPT = Path(__file__).parents[1] / "golden" / "corpus.json"
PARTS = ("messages", "maps", "queries", "audit")
# Photographs of the queries: held out of the maps, of another place, and eight that are mapped.
ASKED = (*HELD_OUT, "elsewhere", *(f"DSC_{number:04d}.jpg" for number in (1, 2, 4, 5, 7, 8, 9, 11)))
SECRET = b"golden corpus".ljust(32, b".")
# Packages whose version enters the numbers.
NUMERICAL = ("numpy", "scipy", "numba", "opencv-python-headless", "faiss-cpu", "poselib", "pycolmap")
Answer = veil.Localization | veil.NoPose


def machine() -> dict[str, str]:
    """The processor's kernels and the versions that the last digits of a record depend on."""
    import threadpoolctl

    kernels = sorted({str(row.get("architecture")) for row in threadpoolctl.threadpool_info() if row["user_api"] == "blas"})
    return {"kernels": " ".join(kernels), "machine": platform.machine()} | {name: version(name) for name in NUMERICAL}


def digest(*parts: Any) -> str:
    """Hash of arrays (their types, shapes and bytes), bytes and texts."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype.str}{part.shape}".encode())
            state.update(np.ascontiguousarray(part).tobytes())
        else:
            state.update(part if isinstance(part, bytes) else str(part).encode())
        state.update(b"\0")
    return state.hexdigest()[:32]


def numbers(values: Any) -> list[str]:
    """Floats as text that keeps every bit."""
    return [float(value).hex() for value in np.ravel(values)]


class Corpus:
    """The corpus of one run, in a folder that is thrown away; each method gives records by name.

    Its audit runs every attack but `unasked`, its queries are those of the photographs `asked`.
    """

    def __init__(self, folder: Path, unasked: Collection[str], asked: Collection[str]) -> None:
        home = folder / "home"
        home.mkdir(mode=0o700)
        (home / "secret").touch(mode=0o600)
        (home / "secret").write_bytes(SECRET)
        self.folder, self.unasked, self.asked = folder, unasked, asked
        self.device = veil.Device(home)

    @cache  # noqa: B019 - a corpus lives as long as the run
    def features(self) -> dict[str, Any]:
        """Raw features of the photographs of a door that are mapped or asked, and of one of another place, by name."""
        options = veil.SiftOptions(max_features=700)
        with lund_door() as place:
            names = [name for name in sorted(place.poses) if name not in HELD_OUT[1:] or name in self.asked]
            paths = {name: place.folder / name for name in names}
            taken = {name: veil.read_picture(path, camera=place.camera) for name, path in paths.items()}
            features = {name: veil.extract(picture, options=options) for name, picture in taken.items()}
        with other_place() as path:
            picture = veil.read_picture(path)
            features["elsewhere"] = veil.extract(picture, options=options)
        return features

    @cache  # noqa: B019
    def gravity(self) -> dict[str, np.ndarray]:
        """Gravity in each camera, from the reference poses: down is where the cameras' y axes point on average."""
        with lund_door() as place:
            turns = {name: np.asarray(pose.rotation) for name, pose in place.poses.items()}
        down = np.mean([turn[1] for turn in turns.values()], axis=0)
        readings = {name: turn @ (down / np.linalg.norm(down)) for name, turn in turns.items()}
        return readings | {"elsewhere": np.array([0.0, 1.0, 0.0])}

    def protections(self, name: str) -> dict[str, veil.Protection]:
        """Every kind of message of one photograph."""
        lines, random = veil.HideInLines(gravity=self.gravity()[name]), veil.HideInLines()
        words = veil.HideInWords(epsilon=8.0, features_sent=500)
        return {
            "subspaces": veil.Protection(descriptors=veil.HideInSubspaces()),
            "paper": veil.Protection(descriptors=veil.HideInSubspaces(profile=veil.Profile.paper(m=4))),
            "subspaces and lines": veil.Protection(descriptors=veil.HideInSubspaces(), lines=lines),
            "subspaces and lines without gravity": veil.Protection(descriptors=veil.HideInSubspaces(), lines=random),
            "words": veil.Protection(descriptors=words),
            "words and lines": veil.Protection(descriptors=words, lines=lines),
            "positions alone": veil.Protection(descriptors=veil.HideInWords.positions_alone()),
        }

    @cache  # noqa: B019
    def message(self, name: str, kind: str) -> bytes:
        return self.device.release(
            self.features()[name], self.protections(name)[kind], name=name, purpose="map", allow_second=True
        ).message

    def messages(self) -> dict[str, Any]:
        """Bytes of every kind of message, of one photograph of each place."""
        made = {}
        for name in (HELD_OUT[0], "elsewhere"):
            for kind in self.protections(name):
                sent = self.message(name, kind)
                made[f"{name}: {kind}"] = {"bytes": len(sent), "digest": digest(sent)}
        return made

    def images(self, kind: str) -> dict[str, Any]:
        names = [name for name in self.features() if name not in (*HELD_OUT, "elsewhere")]
        if kind == "raw":
            return {name: self.features()[name] for name in names}
        return {name: veil.decode(self.message(name, kind)) for name in names}

    @cache  # noqa: B019
    def built(self, kind: str) -> veil.BuiltMap:
        options = veil.MappingOptions(workers=1)
        built = veil.map_images(self.images(kind), options=options, gravity=self.gravity() if kind == "raw" else None)
        assert isinstance(built, veil.BuiltMap), built
        return built

    def maps(self) -> dict[str, Any]:
        """Maps of raw features, subspaces, and lines alone: their arrays, and the same read back from a folder."""
        made = {}
        for kind in ("raw", "subspaces", "subspaces and lines"):
            folder = self.folder / f"map of {kind}"
            self.built(kind).map.write(folder)
            for name, scene in ((kind, self.built(kind).map.scene), (f"{kind}, from its folder", veil.Map.read(folder).scene)):
                made[name] = {
                    "images": len(scene.images),
                    "points": len(scene.points),
                    "digest": digest(scene.points, *(part for each in scene.images.values() for part in image_parts(each))),
                    "centers": {key: numbers(each.cam_from_world.center) for key, each in scene.images.items()},
                }
        return made

    def queries(self) -> dict[str, Any]:
        """Answers to each photograph that is asked, in five forms, on the maps that serve them."""
        kinds = {
            "raw": "raw",
            "subspaces": "subspaces",
            "words and lines": "raw",
            "paper": "raw",
            "subspaces and lines": "subspaces and lines",
        }
        return {
            f"{name}: {kind} on {where}": self.answer(name, kind, where) for kind, where in kinds.items() for name in self.asked
        }

    def answer(self, name: str, kind: str, where: str) -> dict[str, Any]:
        query = self.features()[name] if kind == "raw" else veil.decode(self.message(name, kind))
        options = veil.LocalizeOptions(workers=1)
        answer = veil.localize(query, self.built(where).map, options=options)
        record: dict[str, Any] = {"inliers": answer.inliers, "log10_nfa": numbers(answer.log10_nfa)[0]}
        if isinstance(answer, veil.Localization):
            pose = answer.cam_from_world
            record |= {"center": numbers(pose.center), "digest": digest(pose.rotation, pose.translation, answer.keypoint_rows)}
        return record | {"correspondences": answer.correspondences}

    def audit(self) -> dict[str, Any]:
        """Findings of every attack but `unasked` on one release of subspaces, without a limit of time."""
        name = HELD_OUT[0]
        releases = {name: veil.decode(self.message(name, "subspaces"))}
        attacks = [attack for attack in ATTACKS if attack.name not in self.unasked]
        options = veil.AuditOptions(features=24, seconds=math.inf, threads=1, attacks=attacks)
        audit = veil.run_audit(releases, originals={name: self.features()[name]}, options=options)
        return json.loads(json.dumps(timeless(audit.as_json())))


def image_parts(image: Any) -> tuple[Any, ...]:
    form = image.form
    arrays = [value for value in vars(form).values() if isinstance(value, np.ndarray)]
    pose = image.cam_from_world
    return (image.name, pose.rotation, pose.translation, image.keypoints, image.point_rows, *arrays)


def timeless(record: Any) -> Any:
    """A record without the entries that say how long something took."""
    if isinstance(record, Mapping):
        return {key: timeless(value) for key, value in record.items() if "seconds" not in key}
    if isinstance(record, list | tuple):
        return [timeless(value) for value in record]
    return record.hex() if isinstance(record, float) else record


def made(*, unasked: Collection[str] = (), asked: Collection[str] = ASKED) -> dict[str, Any]:
    """The corpus; its audit runs every attack but `unasked`, and its queries are those of the photographs `asked`."""
    from veil.threads import settle

    settle()
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(Path(folder), unasked, asked)
        return {"machine": machine()} | {part: getattr(corpus, part)() for part in PARTS}


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two records differ, a line each."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return [line for key in keys for line in differences(before.get(key), after.get(key), f"{path}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return [line for row, pair in enumerate(pairs) for line in differences(*pair, f"{path}/{row}")]
    return [] if before == after else [f"{path}: {before} -> {after}"]


def main(arguments: list[str]) -> int:
    """Write a record, or compare two of them; 0 if they are equal."""
    if arguments[:1] == ["write"] and len(arguments) <= 2:
        path = Path(arguments[1]) if len(arguments) == 2 else KEPT
        path.write_text(json.dumps(made(), indent=1) + "\n")
        print(f"{path}: written")
        return 0
    if arguments[:1] == ["compare"] and len(arguments) == 3:
        lines = differences(*(json.loads(Path(path).read_text()) for path in arguments[1:]))
        print("\n".join(lines) if lines else "equal to the last bit")
        return 1 if lines else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

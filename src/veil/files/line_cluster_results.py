"""Maps of the clusters of an unfinished run of mapping from lines, so that a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.files.kept_arrays import KeptArrays
from veil.geometry.rigid import Rigid
from veil.mapping import NoMap
from veil.mapping.lines import LineMap, LineMapCheck, Tracks

VERSION = 1


class LineClusterResults:
    """A folder with one file for each cluster that was mapped from lines, or that has no map.

    Damaged files and those of another version count as missing. Which four images a map began with is not kept.
    """

    def __init__(self, folder: Path) -> None:
        self._kept = KeptArrays(folder)

    def get(self, key: str) -> LineMap | NoMap | None:
        """The answer for a cluster; None if it is missing or damaged."""
        arrays = self._kept.get(key)
        try:
            return None if arrays is None else _answer(arrays)
        except (ValueError, LookupError, TypeError):
            return None

    def put(self, key: str, answer: LineMap | NoMap) -> None:
        """Keep an answer, at once or not at all. Raises InputError if it cannot be written."""
        self._kept.put(key, _arrays(answer))


def _arrays(answer: LineMap | NoMap) -> dict[str, np.ndarray]:
    """Arrays that stand for an answer; `_answer` is the inverse."""
    if isinstance(answer, NoMap):
        return {"header": np.array(json.dumps({"version": VERSION, "reason": answer.reason}))}
    facts = {
        "version": VERSION,
        "names": answer.tracks.names,
        "left_out": answer.tracks.left_out,
        "mapped": list(answer.cam_from_world),
        "refused": dict(answer.refused),
        "check": answer.check.as_json(),
    }
    poses = list(answer.cam_from_world.values())
    return {
        "header": np.array(json.dumps(facts)),
        "rotations": np.array([pose.rotation for pose in poses]).reshape(-1, 3, 3),
        "translations": np.array([pose.translation for pose in poses]).reshape(-1, 3),
        "track": answer.tracks.track,
        "image": answer.tracks.image,
        "feature": answer.tracks.feature,
        "points": answer.points,
        "observed": answer.observed,
    }


def _answer(arrays: Mapping[str, np.ndarray]) -> LineMap | NoMap | None:
    facts = json.loads(str(arrays["header"]))
    if facts["version"] != VERSION:
        return None
    if "reason" in facts:
        return NoMap(facts["reason"])
    poses = zip(arrays["rotations"], arrays["translations"], strict=True)
    return LineMap(
        tracks=Tracks(
            names=tuple(facts["names"]),
            track=arrays["track"],
            image=arrays["image"],
            feature=arrays["feature"],
            left_out=facts["left_out"],
        ),
        cam_from_world={
            name: Rigid(rotation=rotation, translation=translation)
            for name, (rotation, translation) in zip(facts["mapped"], poses, strict=True)
        },
        points=arrays["points"],
        observed=arrays["observed"],
        quad=None,
        refused=facts["refused"],
        check=LineMapCheck(**facts["check"]),
    )

"""Hooks that give schemathesis valid messages, existing ids, and proper rotations. Its runs load them.

Requests that the contract calls valid get these; no request that is to be refused is changed, and no check is.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st

PREY: dict[str, Any] = json.loads(Path(os.environ["VEIL_CONTRACT_PREY"]).read_text())
MESSAGES = [base64.b64decode(each) for each in PREY["messages"]]
EXITS = {size: exit for exit, size in PREY["query_bytes"].items()}
IDS = {"map_id": "m", "contribution_id": "c", "job_id": "j", "token_id": "t"}

schemathesis.openapi.media_type("application/vnd.veil.message", st.sampled_from(MESSAGES))
schemathesis.openapi.media_type("application/vnd.veil.tile-queries", st.sampled_from([bytes(size) for size in EXITS]))
schemathesis.openapi.format("veil-message", st.sampled_from(PREY["messages"]))
schemathesis.openapi.format(
    "printable", st.text(min_size=1, max_size=200).filter(lambda text: text.isprintable() and text.strip())
)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Have half of the valid requests ask for what is there, and repair what no schema can say."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if "stateful" not in str(case.meta.phase.name).lower() and case.method in ("GET", "POST", "PUT"):
        for name, value in (case.path_parameters or {}).items():
            known = PREY["known"].get(f"{case.path}#{name}", PREY["known"].get(name))
            if known is not None and (name not in IDS or re.fullmatch(IDS[name] + "[0-9a-f]{16}", str(value))) and _even(value):
                case.path_parameters[name] = known
    if case.path.endswith("/answers/{exit}"):
        case.path_parameters["exit"] = EXITS[len(case.body)]
    if isinstance(case.body, dict):
        _repair(case.body)


def _even(value: object) -> bool:
    """A coin that falls alike for equal values."""
    return sum(str(value).encode()) % 2 == 0


def _repair(body: dict[str, Any]) -> None:
    """A place with a rotation and as many positions as agree; unit quaternions."""
    if isinstance(body.get("enu_from_map"), dict):
        body["enu_from_map"]["rotation"] = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        body["positions"] = max(body["positions"], body["agreeing"])
    for sensor in body.get("sensors") or []:
        if "rigRotation" in sensor:
            sensor["rigRotation"] |= {"x": 0.0, "y": 0.0, "z": 0.6, "w": 0.8}

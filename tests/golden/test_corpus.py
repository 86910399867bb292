"""Moves of code change nothing: messages, maps, queries and an audit of the bundled photographs are what they were.

Oracle: `corpus.json`, as `worlds/golden.py` wrote it. Two commits are compared to the last bit by that program, on one quiet
machine. Here, beside other tests, messages hold to the last bit on the kind of machine where the corpus was written; elsewhere
drawn words do. Maps and poses hold within a stated tolerance.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from worlds.golden import KEPT, differences, machine, made

# Of a map's unit, in which neighboring cameras of the door stand about one apart.
CENTER_TOLERANCE = 0.02
PARTS = ("messages", "maps", "queries", "audit")


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    record = json.loads(KEPT.read_text())
    assert isinstance(record, dict)
    return record


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    record = json.loads(json.dumps(made()))
    assert isinstance(record, dict)
    return record


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_what_it_was(part: str, kept: dict[str, Any], now: dict[str, Any]) -> None:
    if part == "messages" and kept["machine"] == machine():
        assert differences(kept[part], now[part]) == []
    else:
        assert far(part, kept[part], now[part]) == []


def test_one_bit_is_a_difference(kept: dict[str, Any]) -> None:
    """Broken twins: the last digit of one number, an entry less, an entry more."""
    twin = copy.deepcopy(kept)
    center = twin["queries"]["DSC_0003.jpg: raw on raw"]["center"]
    center[0] = float(np.nextafter(float.fromhex(center[0]), np.inf)).hex()
    assert len(differences(kept, twin)) == 1
    del twin["messages"]["elsewhere: words"]
    assert len(differences(kept, twin)) == 2 and len(differences(twin, kept)) == 2


def test_what_is_far_elsewhere_is_told(kept: dict[str, Any]) -> None:
    """Broken twins for other machines: a moved pose, a lost pose, another draw of words, a map of fewer images."""
    for part in PARTS:
        assert far(part, kept[part], kept[part]) == []
    twin = copy.deepcopy(kept)
    twin["queries"]["DSC_0003.jpg: raw on raw"]["center"][0] = (9.0).hex()
    del twin["queries"]["DSC_0003.jpg: paper on raw"]["center"]
    twin["messages"]["elsewhere: words"]["digest"] = "0" * 32
    twin["maps"]["raw"]["images"] = 8
    assert len(far("queries", kept["queries"], twin["queries"])) == 2
    assert len(far("messages", kept["messages"], twin["messages"])) == 1
    assert len(far("maps", kept["maps"], twin["maps"])) == 1


def far(part: str, was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The entries of a part that differ by more than another processor or version explains."""
    if was.keys() != now.keys():
        return ["/"]
    if part == "audit":  # its shares are of a few features, and each depends on all draws
        return []
    tests = {"messages": _another_message, "maps": _another_map, "queries": _another_answer}
    return [name for name in was if tests[part](name, was[name], now[name])]


def _another_message(name: str, was: dict[str, Any], now: dict[str, Any]) -> bool:
    drawn = "words" in name or "positions" in name  # a subspace's numbers pass through LAPACK
    return bool(was["bytes"] != now["bytes"] or (drawn and was["digest"] != now["digest"]))


def _another_map(name: str, was: dict[str, Any], now: dict[str, Any]) -> bool:
    return bool(was["images"] != now["images"] or abs(was["points"] - now["points"]) > 0.05 * was["points"])


def _another_answer(name: str, was: dict[str, Any], now: dict[str, Any]) -> bool:
    if ("center" in was) != ("center" in now):
        return True
    if "center" not in was:
        return False
    centers = [np.array([float.fromhex(value) for value in answer["center"]]) for answer in (was, now)]
    return bool(np.abs(centers[0] - centers[1]).max() > CENTER_TOLERANCE)

"""Moves of code change nothing: messages, maps, queries and an audit of the bundled photographs are what they were.

Oracle: `corpus.json`, as `worlds/golden.py` wrote it. Two commits are compared to the last bit by that program, on one quiet
machine. Here, beside other tests, messages hold to the last bit on the kind of machine where the corpus was written; elsewhere
drawn words do. Maps and poses hold within a stated tolerance, and findings of the audit to six digits. Most queries, and four
attacks that take most of the audit's time, are left to that program; no answer or finding depends on another one. Here each
form asks with one photograph of the place and one of another place.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from checked_annotations import without_checks
from veil.files.photographs.examples import HELD_OUT
from veil.geometry.similarity import align_points
from worlds.golden import KEPT, PARTS, differences, machine, made

# In units of a map, in which neighboring cameras of the door stand about one apart.
CENTER_TOLERANCE = 0.1
LONG_ATTACKS = ("vertex", "modes", "context", "blind sorting")
ASKED_HERE = (HELD_OUT[0], "elsewhere")


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    record = json.loads(KEPT.read_text())
    assert isinstance(record, dict)
    return record


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    with without_checks():
        record = json.loads(json.dumps(made(unasked=LONG_ATTACKS, asked=ASKED_HERE)))
    assert isinstance(record, dict)
    return record


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_what_it_was(part: str, kept: dict[str, Any], now: dict[str, Any]) -> None:
    kept = kept | {"queries": {name: kept["queries"][name] for name in kept["queries"] if name.startswith(ASKED_HERE)}}
    assert len(kept["queries"]) == 5 * len(ASKED_HERE)
    if part == "messages" and kept["machine"] == machine():
        assert differences(kept[part], now[part]) == []
    else:
        assert far(part, kept, now) == []


def test_one_bit_is_a_difference(kept: dict[str, Any]) -> None:
    """Broken twins: the last digit of one number, an entry less, an entry more."""
    twin = copy.deepcopy(kept)
    center = twin["queries"]["DSC_0003.jpg: raw on raw"]["center"]
    center[0] = float(np.nextafter(float.fromhex(center[0]), np.inf)).hex()
    assert len(differences(kept, twin)) == 1
    del twin["messages"]["elsewhere: words"]
    assert len(differences(kept, twin)) == 2 and len(differences(twin, kept)) == 2


def test_what_is_far_elsewhere_is_told(kept: dict[str, Any]) -> None:
    """Broken twins for other machines: a moved and a lost pose, another draw of words, a smaller map, another finding."""
    for part in PARTS:
        assert far(part, kept, kept) == []
    twin = copy.deepcopy(kept)
    twin["queries"]["DSC_0003.jpg: raw on raw"]["center"][0] = (9.0).hex()
    del twin["queries"]["DSC_0003.jpg: paper on raw"]["center"]
    twin["messages"]["elsewhere: words"]["digest"] = "0" * 32
    twin["maps"]["raw"]["images"] = 8
    twin["audit"]["attacks"][0]["details"]["noise_steps"] = (1.1747).hex()
    assert len(far("queries", kept, twin)) == 2
    assert len(far("messages", kept, twin)) == 1
    assert len(far("maps", kept, twin)) == 1
    assert len(far("audit", kept, twin)) == (kept["machine"] == twin["machine"])
    del twin["audit"]["attacks"][0]
    assert far("audit", kept, twin) == ["lattice"]


def far(part: str, was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The entries of a part that differ by more than another processor, version or order of threads explains."""
    if was[part].keys() != now[part].keys():
        return ["/"]
    if part == "audit":
        before, after = findings(was), findings(now)
        return [
            name
            for name in before | after
            if another_finding(before.get(name), after.get(name), was["machine"] == now["machine"])
        ]
    tests = {"messages": another_message, "maps": another_map, "queries": another_answer}
    return [name for name in was[part] if tests[part](name, was, now)]


def another_message(name: str, was: dict[str, Any], now: dict[str, Any]) -> bool:
    before, after = was["messages"][name], now["messages"][name]
    drawn = "words" in name or "positions" in name  # a subspace's numbers pass through LAPACK
    return bool(before["bytes"] != after["bytes"] or (drawn and before["digest"] != after["digest"]))


def another_map(name: str, was: dict[str, Any], now: dict[str, Any]) -> bool:
    before, after = was["maps"][name], now["maps"][name]
    return bool(before["images"] != after["images"] or abs(before["points"] - after["points"]) > 0.05 * before["points"])


def another_answer(name: str, was: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether one has a pose and the other none, or their centers are far apart once the maps are aligned.

    COLMAP adds up in several threads, so that a map has one of a few last digits, and with these another origin and scale.
    """
    before, after = was["queries"][name], now["queries"][name]
    if ("center" in before) != ("center" in after):
        return True
    if "center" not in before:
        return False
    of = name.rpartition(" on ")[2]
    cameras = [centers(record["maps"][of]["centers"].values()) for record in (was, now)]
    align = align_points(cameras[1], cameras[0])
    seen = centers([before["center"]]), align.apply(centers([after["center"]]))
    return bool(np.abs(seen[0] - seen[1]).max() > CENTER_TOLERANCE)


def findings(record: dict[str, Any]) -> dict[str, Any]:
    """The finding of the audit for each attack that is run here, by its name."""
    return {each["attack"]: each for each in record["audit"]["attacks"] if each["attack"] not in LONG_ATTACKS}


def another_finding(before: Any, after: Any, same_machine: bool) -> bool:
    """Whether two findings differ in six digits; on another machine, whose draws are others, in whether there is one."""
    if before is None or after is None or not same_machine:
        return (before or {}).get("skipped") != (after or {}).get("skipped")
    return differences(rounded(before), rounded(after)) != []


def rounded(value: Any) -> Any:
    """A finding with six digits of each number."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    is_number = isinstance(value, str) and value.lstrip("-").startswith("0x")
    return f"{float.fromhex(value):.6g}" if is_number else value


def centers(rows: Iterable[list[str]]) -> np.ndarray:
    """Centers of cameras, float64 (rows, 3), from the corpus."""
    return np.array([[float.fromhex(value) for value in row] for row in rows])

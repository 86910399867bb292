"""Recall of retrieval: counted by hand, and from real photographs."""

from __future__ import annotations

import numpy as np
import pytest

from veil.features import Features
from veil.forms import Form, Points
from veil.progress import ignore_progress
from veil_lab.studies.matching.retrieval_recall import overlapping, recall_rows
from worlds.random_forms import RAW, points
from worlds.releases import taken


def test_recall_is_counted_by_hand() -> None:
    """Enumeration: similarities are given; a query with two right images of which the second comes third."""
    names = [f"{number:02}" for number in range(30)]
    form = Points(vectors=points(1).astype(np.float32), space=RAW)
    scores = np.zeros((30, 30), dtype=np.float32)
    scores[0, [5, 7, 1]] = 3, 2, 1  # right are 5 and 1
    scores[5, :] = -np.arange(30)  # right is 0, which comes first
    scores[1, 2:23] = 1  # right is 0, which comes after 21 others
    pairs = {frozenset(("00", "05")), frozenset(("00", "01"))}
    forms: dict[str, dict[str, Form]] = {"raw": dict.fromkeys(names, form)}
    rows = recall_rows(forms, {"a": names[:3], "b": names[5:]}, pairs, lambda images: (sorted(images), scores))
    by_scene = {row.scene: row for row in rows}
    assert by_scene["a"].queries == 2 and by_scene["b"].queries == 1 and by_scene[""].queries == 3
    # Query 00: 1 of 1, then 2 of 2. Query 01: none up to 20. Query 05: at once.
    assert by_scene["a"].recall == {1: 0.5, 5: 0.5, 10: 0.5, 20: 0.5}
    assert by_scene["b"].recall == {1: 1.0, 5: 1.0, 10: 1.0, 20: 1.0}
    assert by_scene[""].recall[1] == pytest.approx(2 / 3) and by_scene[""].images == 30
    none = recall_rows(forms, {"c": names[10:]}, pairs, lambda images: (sorted(images), scores))
    assert none[0].queries == 0 and none[0].recall == {}


@pytest.mark.slow
def test_photographs_overlap_with_neighbors_and_not_with_another_place(door: dict[str, Features], elsewhere: Features) -> None:
    """Planted: neighboring photographs of a door, and one of another place."""
    names = sorted(door)[:3]
    pairs = overlapping({**{name: taken(door[name], np.arange(400)) for name in names}, "x": elsewhere}, ignore_progress)
    assert frozenset(names[:2]) in pairs and not any("x" in pair for pair in pairs)

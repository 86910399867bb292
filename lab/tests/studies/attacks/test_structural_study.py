"""The studies of structural attacks and of defenses, small: the paper's lifting falls, the hardened one does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil_lab.report.attacks import draw_defenses
from veil_lab.studies.attacks.defenses import DefenseEffort, DescriptorPools, codebook_for, default_defenses, defense_study
from veil_lab.studies.attacks.structural import structural_attacks
from veil_lab.studies.matching.homographies import ImageSequence

BOOK = bundled_codebook()
WORDS = replace(BOOK, stored=BOOK.stored[:1024], slices=4)


def part(features: Features, count: int) -> Features:
    rows = slice(0, count)
    return replace(
        features, keypoints=features.keypoints[rows], descriptors=features.descriptors[rows], scales=None, orientations=None
    )


@pytest.mark.slow
def test_the_papers_lifting_falls(door: dict[str, Features]) -> None:
    """Planted truth: real descriptors. Full precision is recovered exactly, half precision almost; nothing is claimed
    wrongly."""
    rows = structural_attacks(list(door.values())[:2], words=WORDS, dimensions=[2], count=40)
    by_case = {(row.attack, row.dtype): row for row in rows}
    assert set(by_case) == {(a, d) for a in ("lattice", "vertex") for d in ("float32", "float16")}
    assert by_case["lattice", "float32"].exact >= 0.97 and by_case["lattice", "float32"].certified >= 0.97
    assert by_case["vertex", "float32"].exact >= 0.8
    assert all(row.features == 40 and row.wrongly_certified == 0 and row.seconds > 0 for row in rows)
    with pytest.raises(InputError, match="features of each photograph are to be attacked"):
        structural_attacks(list(door.values())[:2], words=WORDS, dimensions=[2], count=10_000)


@pytest.mark.slow
def test_a_defense_is_measured_on_both_sides(door: dict[str, Features], tmp_path: Path) -> None:
    """Against the same attacks: the paper's lifting loses its descriptors, the hardened one keeps matching and most of them.

    Broken twin: the paper's profile itself, which the same table must call recovered.
    """
    victim = part(next(iter(door.values())), 24)
    sequence = ImageSequence(name="still", features=(victim, victim), homographies=(np.eye(3),))
    pools = DescriptorPools.split(WORDS, replace(bundled_decoys(), stored=bundled_decoys().stored[:4000], slices=8))
    defenses = [item for item in default_defenses(4) if item.name in ("paper", "hardened")]
    victims, effort = [victim, part(list(door.values())[1], 24)], DefenseEffort(structural=8, restarts=5, tours=1)
    rows = list(defense_study([sequence], victims, pools, defenses, effort=effort, workers=1))
    recoveries = {row.defense.name: {item.attack: item for item in row.recoveries} for row in rows}
    assert recoveries["paper"]["lattice"].exact > 0.97 and recoveries["paper"]["lattice"].features == 48
    assert recoveries["hardened"]["lattice"].within[0] == 0 and recoveries["hardened"]["lattice"].features == 8
    assert all(
        item.within[0] <= item.within[1] and item.upper >= item.within[0] for f in recoveries.values() for item in f.values()
    )
    # A photograph matched with itself: every match is right, raw and lifted.
    assert all(row.raw == pytest.approx(1) and row.p2s > 0.95 for row in rows)
    records = [json.loads(json.dumps(row.as_json())) for row in rows]
    assert [record["reduced"] for record in records] == [None, 48] and records[1]["dither_steps"] == 4
    draw_defenses(tmp_path / "d.png", rows)
    with Image.open(tmp_path / "d.png") as picture:
        assert picture.width > 1000


def test_the_codebook_of_a_defense_knows_its_dither() -> None:
    pools = DescriptorPools.split(WORDS, bundled_decoys())
    by_name = {item.name: item for item in default_defenses(4)}
    hardened = codebook_for(by_name["hardened, PCA-32"], pools)
    assert hardened.dither_steps == 4 and hardened.compression.require_pca().axes.shape == (32, 128)
    assert codebook_for(by_name["paper"], pools) is WORDS
    assert len(pools.decoys) == len(pools.database) == len(bundled_decoys()) // 2
    shared = {bytes(row) for row in pools.decoys.stored} & {bytes(row) for row in pools.database.stored}
    assert len(shared) <= 2  # identical descriptors of flat places may stand in both halves

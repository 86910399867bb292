"""`veil evaluate neighborhoods`: what it prints and writes on small photographs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from veil.cli import main
from veil.files.attack_networks import read_pair_network
from veil.files.photographs.examples import lund_door
from worlds.schemas import validate

pytestmark = pytest.mark.usefixtures("unchecked")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.slow
def test_a_network_is_trained_kept_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The network that is written is the one that attacks: both runs find the same. Shared photographs are refused."""
    folders = tmp_path / "victims", tmp_path / "attacker"
    with lund_door() as example:
        for k, name in enumerate(sorted(example.poses)[:4]):
            folders[k % 2].mkdir(exist_ok=True)
            with Image.open(example.folder / name) as picture:
                picture.resize((343, 512)).save(folders[k % 2] / name)
    few = ("--max-features", 100, "--rules", "uniform", "parallel")
    trained, record, again = tmp_path / "net.npz", tmp_path / "a.json", tmp_path / "b.json"
    arguments = ("evaluate", "neighborhoods", folders[0])
    options = ("--attacker", folders[1], "--steps", 20, "--write-network", trained)
    assert run(*arguments, *options, *few, "--json", record) == 0
    content, printed = json.loads(record.read_text()), capsys.readouterr().out
    validate("evaluate-neighborhoods", content)
    assert {row["rule"] for row in content["rows"]} == {"uniform", "parallel"} and len(content["rows"]) == 10
    assert "2 photographs, 20 steps, seed 0" in content["network"] == read_pair_network(trained).source
    assert "true neighbors" in printed and "bound:" in printed
    assert run(*arguments, "--network", trained, *few, "--json", again) == 0
    for one, two in zip(content["rows"], json.loads(again.read_text())["rows"], strict=True):
        if one["attack"] != "learned neighbors":  # which the rounding of the file to float16 may move
            assert one == two
    assert run(*arguments, "--attacker", folders[0], "--steps", 1, *few) == 1
    assert "both the attacker's and attacked" in capsys.readouterr().err
    assert run(*arguments, "--write-network", trained) == 1

"""`veil lab match`: matches of two uploads or photographs, by nearest neighbors and by a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.cli import main
from veil.features import Features
from veil.files.features import write_features
from veil.mechanisms.profile import Profile
from veil.wire.codec import encode
from worlds.documents import documented, keys
from worlds.lightglue_weights import still_weights
from worlds.releases import released
from worlds.schemas import validate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, door: dict[str, Features]) -> Path:
    """Raw features and messages of two photographs each, both photographs in one file, and a network's weights."""
    made = tmp_path_factory.mktemp("matched")
    np.savez(made / "still.npz", **still_weights())  # type: ignore[arg-type]
    two = sorted(door.items())[:2]
    write_features(made / "both.h5", two)
    for number, (name, features) in enumerate(two):
        write_features(made / f"{number}.h5", [(name, features)])
        (made / f"{number}.veil").write_bytes(encode(released(features, Profile.hardened(quantized=True))[0]))
    return made


def run(*arguments: object) -> int:
    return main(["lab", "match", *(str(argument) for argument in arguments)])


@pytest.mark.slow
def test_a_ratio_leaves_fewer_neighbors(folder: Path, tmp_path: Path) -> None:
    """Oracle: a subset. What passes the calibrated ratio is among all mutual neighbors."""
    records = {}
    for ratio in ("none", "auto"):
        out = tmp_path / f"{ratio}.json"
        assert run(folder / "0.veil", folder / "1.veil", "--ratio", ratio, "--json", out) == 0
        validate("lab-match", record := json.loads(out.read_text()))
        assert record["distance"] == "s2s" and keys(record) <= documented("veil lab match")
        records[ratio] = set(map(tuple, record["matches"]))
    assert records["none"] > records["auto"] > set()


@pytest.mark.slow
def test_a_network_tells_probabilities(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted weights, which compare descriptors: distances are probabilities, below the least one that is accepted."""
    out, network = tmp_path / "m.json", ("--matcher", "lightglue", "--matcher-weights", folder / "still.npz")
    assert run(folder / "0.h5", folder / "1.h5", *network, "--json", out) == 0
    validate("lab-match", record := json.loads(out.read_text()))
    assert record["distance"] == "lightglue" and len(record["matches"]) == len(record["distances"]) > 20
    assert min(record["distances"]) >= 0 and max(record["distances"]) < 0.9
    assert f"{len(record['matches'])} matches of 600 and 600 features, by LightGlue" in capsys.readouterr().out


def test_slips_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted slips: several images on a side, a protected one for a network, and a text that is no ratio."""
    alone, both, message = folder / "0.h5", folder / "both.h5", folder / "0.veil"
    network = ("--matcher", "lightglue", "--matcher-weights", folder / "still.npz")
    for words, said in (
        ((both, alone), "holds 2 images"),
        ((alone, both), "holds 2 images"),
        ((message, message, *network), "0.veil is protected: its descriptors are hidden"),
        ((alone, alone, "--ratio", "much"), "--ratio takes"),
    ):
        assert run(*words) == 1
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_matches_as_python_does(folder: Path, tmp_path: Path) -> None:
    """Second method: `veil.match` on the same messages, whose subspaces have half precision."""
    assert run(folder / "0.veil", folder / "1.veil", "--ratio", "none", "--json", tmp_path / "m.json") == 0
    matches = veil.match(*(veil.decode((folder / f"{number}.veil").read_bytes()) for number in (0, 1)))
    record = json.loads((tmp_path / "m.json").read_text())
    assert record["matches"] == matches.indices.tolist() and record["distances"] == matches.distances.tolist()

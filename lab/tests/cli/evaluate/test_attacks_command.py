"""`veil evaluate attacks`, `defenses`, `inversion` and `word-inversion` on small photographs: output, records and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.cli import _parser, main
from veil.files.attack_networks import bundled_inverter, read_weights, write_weights
from veil.files.codebooks import read_codebook
from veil.files.photographs.examples import lund_door
from veil.inversion.weights import Weights
from veil_lab.studies.attacks.defenses import DefenseRow, defense_study
from worlds.documents import documented, keys
from worlds.schemas import validate

pytestmark = pytest.mark.usefixtures("unchecked")

STUDY = (
    "--attacked-features",
    20,
    "--per-image",
    20,
    "--m",
    2,
    "--word-count",
    64,
    "--public",
    512,
    "--line-photographs",
    1,
    "--threads",
    1,
)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def photographs(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of four small photographs each, none in both."""
    folders = tmp_path / "victims", tmp_path / "attacker"
    for folder in folders:
        folder.mkdir()
    with lund_door() as example:
        for k, name in enumerate(sorted(example.poses)[:8]):
            with Image.open(example.folder / name) as picture:
                picture.resize((256, 384)).save(folders[k % 2] / name)
    return folders


@pytest.mark.slow
def test_attacks_are_run_and_told(photographs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victims, attacker = photographs
    figure, record = tmp_path / "p.png", tmp_path / "a.json"
    assert run("evaluate", "attacks", victims, "--attacker", attacker, *STUDY, "--figure", figure, "--json", record) == 0
    printed, content = capsys.readouterr().out, json.loads(record.read_text())
    validate("evaluate-attacks", content)
    assert set(content) == {"structural", "distribution", "decoys", "positions"}
    lattice = next(row for row in content["structural"] if row["attack"] == "lattice" and row["dtype"] == "float32")
    assert lattice["exact"] >= 0.95 and f"{100 * lattice['exact']:.1f}" in printed
    assert {"raw", "nearest", "database", "clustering"} <= {row["attack"] for row in content["distribution"]}
    assert figure.stat().st_size > 10_000
    assert run("evaluate", "attacks", victims, "--attacker", victims, *STUDY) == 1
    assert "both the attacker's and attacked" in capsys.readouterr().err
    assert run("evaluate", "attacks", victims, "--attacker", attacker, *STUDY[:6], "--word-count", 10**6) == 1
    assert "ask for fewer" in capsys.readouterr().err


@pytest.mark.slow
def test_random_lifting_has_no_attack_on_decoys(
    photographs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the attacks that need no decoys, by [D21], Sec. 4.2."""
    victims, attacker = photographs
    asked = ("evaluate", "attacks", victims, "--attacker", attacker, "--lifting", "random")
    assert run(*asked, *STUDY, "--json", tmp_path / "a.json") == 0
    content = json.loads((tmp_path / "a.json").read_text())
    names = {row["attack"].split(" of")[0].split(",")[0] for row in content["distribution"]}
    assert names == {"nearest", "oracle", "raw"} and content["decoys"] == []
    assert "decoys found by" not in capsys.readouterr().out
    assert run(*asked, "--descriptor", "sift") == 1
    assert "leave --descriptor out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_defense_is_chosen_by_name(
    photographs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    victims, attacker = photographs
    sequence = tmp_path / "sequences" / "still"
    sequence.mkdir(parents=True)
    (first, *_) = sorted(attacker.iterdir())
    for k in (1, 2):
        (sequence / f"{k}.jpg").write_bytes(first.read_bytes())
    np.savetxt(sequence / "H_1_2", np.eye(3))
    options = ("--victims", victims, "--photographs", 2, "--per-image", 10, "--max-features", 100, "--threads", 1)
    record = tmp_path / "d.json"
    folder = tmp_path / "sequences"
    assert run("evaluate", "defenses", folder, *options, "--only", "paper", "float16", "--json", record) == 0
    rows = json.loads(record.read_text())["rows"]
    validate("evaluate-defenses", {"rows": rows})
    assert [row["defense"] for row in rows] == ["paper", "float16"]
    assert rows[0]["mma3"]["raw"] == pytest.approx(1) and rows[0]["mma3"]["p2s"] > 0.95
    assert {item["attack"] for item in rows[0]["attacks"]} >= {"lattice", "vertex"}
    assert "shares of descriptors that attacks recover" in capsys.readouterr().out
    assert run("evaluate", "defenses", folder, *options, "--only", "magic") == 1
    assert "there is no defense magic; there are paper" in capsys.readouterr().err

    def interrupted(*given: object, **options: object) -> Iterator[DefenseRow]:
        yield next(defense_study(*given, **options))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr("veil_lab.cli.evaluate.attacks.defenses.defense_study", interrupted)
    assert run("evaluate", "defenses", folder, *options, "--only", "paper", "float16", "--json", record) != 0
    assert json.loads(record.read_text())["rows"] == rows[:1]  # what was done is kept


def test_pictures_are_made_from_what_an_upload_holds() -> None:
    """No fewer features than `veil extract` finds unasked: fewer would show less than an upload does."""
    study = _parser().parse_args(["evaluate", "inversion", "photos"])
    device = _parser().parse_args(["extract", "photos", "-o", "features.h5"])
    assert study.first_octave is device.first_octave is None
    assert study.max_features == device.max_features > 1000


@pytest.mark.slow
def test_pictures_get_worse_with_the_attack(
    photographs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without torch: the bundled network in NumPy. Raw features show most of these photographs."""
    victims, _ = photographs
    figure, drawn, record = tmp_path / "s.png", tmp_path / "p.png", tmp_path / "i.json"
    options = (
        "--photographs",
        2,
        "--m",
        2,
        "--max-features",
        100,
        "--shown",
        1,
        "--figure",
        figure,
        "--reconstructions",
        drawn,
    )
    assert run("evaluate", "inversion", victims, *options, "--json", record) == 0
    content = json.loads(record.read_text())
    validate("evaluate-inversion", content)
    ssim = {row["attack"]: row["ssim"] for row in content["rows"]}
    assert {row["lifting"] for row in content["rows"]} == {"none", "sub-hybrid"}
    assert set(ssim) == {"raw", "database", "clustering", "nearest"} and ssim["raw"] > ssim["nearest"]
    assert content["photographs"] == 2 and content["weights"]["direct"] == {} and len(content["pictures"]) == 8
    assert "photograph by photograph" in capsys.readouterr().out
    assert figure.stat().st_size > 5_000 and drawn.stat().st_size > 20_000
    assert run("evaluate", "inversion", victims, "--photographs", 1, "--max-features", 100) == 1
    assert "two photographs" in capsys.readouterr().err
    assert run("evaluate", "inversion", victims, "--photographs", 2, "--m", 2, "--shown-m", 4, "--reconstructions", drawn) == 1
    capsys.readouterr()
    assert run("evaluate", "inversion", victims, "--lifting", "random", "hybrid", "--figure", figure) == 1
    assert "one way of lifting" in capsys.readouterr().err


@pytest.mark.slow
def test_direct_inversion_is_of_the_lifting_that_its_network_knows(
    photographs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without torch: the bundled network, widened so that it reads origins of subspaces alone."""
    victims, _ = photographs
    bundled, record = bundled_inverter(), tmp_path / "i.json"
    wider = np.pad(bundled.arrays["embedding.first.weight"], [(0, 0), (0, 257)])  # learned directions, and m
    probes = np.zeros((256, 128), dtype=np.float16)
    arrays = {**bundled.arrays, "embedding.first.weight": wider, "embedding.probes.weight": probes}
    networks = {}
    for lifting in ("", "random"):
        training = replace(bundled.training, lifting=lifting, dims=(2,))
        networks[lifting] = Weights(kind="subspaces", arrays=arrays, training=training)
        write_weights(tmp_path / f"{lifting}.npz", networks[lifting])
        assert read_weights(tmp_path / f"{lifting}.npz").training.lifting == lifting
    options = ("--photographs", 2, "--m", 2, "--max-features", 50, "--attacks", "nearest", "--json", record)
    both = ("--direct", tmp_path / ".npz", tmp_path / "random.npz")
    assert run("evaluate", "inversion", victims, *options, "--lifting", "random", "adversarial", "sub-hybrid", *both) == 0
    content = json.loads(record.read_text())
    validate("evaluate-inversion", content)
    direct = {row["lifting"] for row in content["rows"] if row["attack"] == "direct"}
    assert direct == {"random", "sub-hybrid"} == set(content["weights"]["direct"])
    assert content["weights"]["direct"]["random"] == networks["random"].digest
    capsys.readouterr()
    assert run("evaluate", "inversion", victims, *options, *both) == 1
    assert "random lifting, and --lifting does not name it" in capsys.readouterr().err
    assert run("evaluate", "inversion", victims, *options, "--direct", tmp_path / ".npz", tmp_path / ".npz") == 1
    assert "sub-hybrid lifting, and another network is" in capsys.readouterr().err
    write_weights(tmp_path / "raw.npz", bundled)
    assert run("evaluate", "inversion", victims, *options, "--direct", tmp_path / "raw.npz") == 1
    assert "reads raw, not subspaces" in capsys.readouterr().err


@pytest.mark.slow
def test_pictures_are_drawn_from_words(
    photographs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without torch: the bundled network reads single words as descriptors. The table tells what the record does."""
    victims, others = photographs
    book, network, record = tmp_path / "b.npz", tmp_path / "w.npz", tmp_path / "i.json"
    assert run("codebook", "build", others, "--word-count", 200, "-o", book) == 0
    bundled = bundled_inverter()
    training = replace(bundled.training, codebook=read_codebook(book).digest, dims=(1,))
    write_weights(network, Weights(kind="words", arrays=bundled.arrays, training=training))
    options = ("--photographs", 2, "--max-features", 100, "--m", 1, 2, "--epsilon", 9, "--equal-to", 400, "--json", record)
    capsys.readouterr()
    assert run("evaluate", "word-inversion", victims, "--inverter", network, "--dictionary", book, *options) == 0
    content, said = json.loads(record.read_text()), capsys.readouterr().out
    validate("evaluate-word-inversion", content)
    assert keys(content) <= documented("veil evaluate word-inversion")
    rows = content["rows"]
    assert [row["source"] for row in rows] == ["raw descriptors", "true words", "words", "words", "random words"]
    assert rows[0]["ssim"] > rows[1]["ssim"] > rows[-1]["ssim"]
    for row in rows:
        assert any(f"{row['ssim']:.3f}" in line and row["source"] in line for line in said.splitlines())
    assert run("evaluate", "word-inversion", victims, "--inverter", network, *options) == 1
    assert "give its --dictionary" in capsys.readouterr().err

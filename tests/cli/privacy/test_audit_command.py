"""`veil audit` from messages to report: numbers against what is known of the release, exit codes, one offline page."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.cli import main
from veil.cli.common import EXIT_POLICY
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.features import read_features, write_features
from veil.files.maps.format import write_map
from veil.files.photographs.pictures import read_picture
from worlds.edges import door_photographs
from worlds.recorded_steps import RecordedSteps
from worlds.releases import as_published, planted_map, taken
from worlds.schemas import validate
from worlds.small_pictures import half_camera, shrink

FEATURES = 120
# First row of the squares.
TOP = 84


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def audit(work: Path, upload: str, *choices: object) -> tuple[int, dict, str]:
    """Exit code, record and page."""
    drawn = () if "--pictures" in choices else ("--pictures", 0)
    code = run("audit", work / upload, "-o", work / "a.html", "--json", work / "a.json", *drawn, *choices)
    record = json.loads((work / "a.json").read_text())
    validate("audit", record)
    return code, record, (work / "a.html").read_text()


def attack(record: dict, name: str) -> dict:
    (entry,) = (item for item in record["attacks"] if item["attack"] == name)
    return entry


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares of two of the bundled photographs at half their size: the inverter draws one square at a time."""
    folder = tmp_path_factory.mktemp("photographs") / "squares"
    for path in door_photographs(folder, 1, 3).iterdir():
        shrink(path, path)
        with Image.open(path) as picture:
            picture.crop((0, TOP, picture.width, TOP + picture.width)).save(path, quality=95)
    return folder


@pytest.fixture
def work(tmp_path: Path, photographs: Path) -> Path:
    """Two photographs of a hundred-odd features each."""
    few, half = [], half_camera()
    focal, x, y, distortion = half.params
    camera = replace(half, height_px=half.width_px, params=(focal, x, y - TOP, distortion))
    for path in sorted(photographs.iterdir()):
        name, features = path.name, extract_sift(read_picture(path, camera=camera), SiftOptions(max_features=600))
        rows = np.random.default_rng(0).permutation(len(features))[:FEATURES]
        few.append(
            (
                name,
                replace(
                    features,
                    keypoints=features.keypoints[rows],
                    descriptors=features.descriptors[rows],
                    scales=None,
                    orientations=None,
                ),
            )
        )
    write_features(tmp_path / "f.h5", few)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_paper_profile_is_broken(
    work: Path, photographs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bars = {what: RecordedSteps() for what in ("recognizing", "attacking", "pictures")}
    monkeypatch.setattr("veil.cli.privacy.audit.StepBar", lambda what: bars[what].bar(what))
    (name, features), *_ = read_features(work / "f.h5")
    write_features(work / "f.h5", [(name, taken(features, np.arange(60)))])
    as_published(work / "f.h5", work / "up")
    originals = ("--images", work / "f.h5", photographs)
    choices = ("--attacked-features", 50, "--fail-on", "structural>5%", "--pictures", 1)
    code, record, page = audit(work, "up", *originals, *choices)
    for bar in bars.values():
        bar.require_time_left(last=0.0)
    assert code == EXIT_POLICY
    lattice, vertex = attack(record, "lattice"), attack(record, "vertex")
    assert lattice["features"] == 50 and lattice["exact"] > 0.97 and lattice["certified"] > 0.97
    assert lattice["false_certificates"] == vertex["false_certificates"] == 0
    assert vertex["exact"] > 0.6 and lattice["interval"]["exact"][0] > 0.9
    assert lattice["details"]["noise_steps"] < lattice["details"]["identifiable_steps"]
    assert attack(record, "oracle of 100")["within_0.4"] >= attack(record, "nearest, projected")["within_0.4"]
    assert record["verdict"]["grade"] == "broken" and "lattice" in record["verdict"]["headline"]
    assert record["policy"][0]["broken"].startswith("lattice")
    assert record["release"]["messages"] == sorted(path.stem for path in (work / "up").glob("*.veil"))
    assert "BROKEN" in capsys.readouterr().out
    # The broken release shows what raw features show, to rounding of what is drawn.
    images = {item["attack"]: item for item in record["images"]}
    assert set(images) == {"raw features, had they been sent", "lattice", "nearest, projected", "database"}
    raw, lattice = images["raw features, had they been sent"], images["lattice"]
    assert raw["features"] == lattice["features"] and abs(raw["ssim"] - lattice["ssim"]) < 0.02
    assert raw["ssim"] > 0.1 and 0 < raw["mae"] < 0.5 and raw["psnr"] > 5
    # Complete in itself: every picture is inside, nothing is fetched, and no script runs.
    assert page.count("data:image/") >= 8 and "reconstructed from lattice" in page
    assert not re.search(r"(src|href)=\"(?!data:)|<script|@import|url\((?!data:)|https?://", page)
    assert html.escape(record["verdict"]["headline"]) in page


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_without_originals_only_certificates_count(work: Path) -> None:
    as_published(work / "f.h5", work / "up", m=2)
    code, record, page = audit(work, "up", "--attacked-features", 40, "--only", "lattice", "oracle")
    assert code == 0
    lattice = attack(record, "lattice")
    assert lattice["exact"] is None and lattice["mean_distance"] is None and lattice["certified"] > 0.95
    assert attack(record, "oracle of 100")["skipped"]
    assert record["verdict"]["grade"] == "broken"
    assert "originals were not given" in page
    assert "photograph: stays on the device" not in page


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_hardened_releases_with_lines(work: Path) -> None:
    run("privatize", work / "f.h5", "-o", work / "up", "--for", "map", "--lines", "--min-distance", 0)
    code, record, page = audit(
        work, "up", "--images", work / "f.h5", "--attacked-features", 2, "--fail-on", "structural.certified>0"
    )
    assert code == 0
    assert attack(record, "lattice")["certified"] == 0 and attack(record, "lattice")["features"] == 2
    density = attack(record, "line density")
    assert density["features"] == 2 * FEATURES and density["within_px"]["20"] < 0.5 and density["within_0.1"] is None
    assert attack(record, "repeat of lines")["features"] == 2 * FEATURES  # the other release counts as seen
    assert "a line through each keypoint" in page
    again, secret, _ = audit(work, "up", "--images", work / "f.h5", "--only", "database", "--secret-decoys")
    assert again == 0 and "secret" in attack(secret, "database")["skipped"]


@pytest.mark.slow
def test_words_and_their_epsilon(work: Path) -> None:
    run("privatize", work / "f.h5", "-o", work / "up", "--for", "map", "--words", "bundled", "--epsilon", 9)
    code, record, _ = audit(work, "up", "--images", work / "f.h5", "--fail-on", "epsilon.feature>9", "--fail-on", "epsilon>1")
    assert code == EXIT_POLICY
    assert [rule["broken"] is None for rule in record["policy"]] == [True, False]
    posterior = attack(record, "posterior")
    expected = posterior["details"]["posterior"]
    assert posterior["features"] == 2 * FEATURES
    assert posterior["identified"] == pytest.approx(expected, abs=5 * np.sqrt(expected / (2 * FEATURES)))
    assert record["epsilon"]["feature"] == 9 and 9 < record["epsilon"]["image"] < record["epsilon"]["session"]
    assert attack(record, "neighbors")["skipped"]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_map_shows_what_its_holder_learns(work: Path) -> None:
    """Planted: the map sees the query's own features, so that most match. Without it the attack says what it needs."""
    (name, features), *_ = read_features(work / "f.h5")
    write_features(work / "one.h5", [(name, features)])
    write_map(work / "map", planted_map(features, public=True))
    as_published(work / "one.h5", work / "up")
    _, record, _ = audit(work, "up", "--only", "inliers")
    assert "no map of the place was given" in attack(record, "inliers")["skipped"]
    choices = ("--map", work / "map", "--images", work / "one.h5", "--fail-on", "matches>10%", "--only", "inliers")
    code, record, page = audit(work, "up", *choices)
    entry = attack(record, "inliers")
    assert code == EXIT_POLICY and entry["within_0.1"] > 0.7 and entry["details"]["matched"] > 0.7
    assert "by design" in entry["notes"][0] and "Matches: what a holder of a map" in page


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_subspaces_beside_words_carry_no_epsilon(work: Path) -> None:
    """The ledger's words have an epsilon, which covers nothing of a release of subspaces (it stopped with a KeyError)."""
    assert run("privatize", work / "f.h5", "-o", work / "up", "--for", "map") == 0
    second = ("--words", "bundled", "--epsilon", 8, "--allow-second-release")
    assert run("privatize", work / "f.h5", "-o", work / "words", *second) == 0
    code, record, page = audit(work, "up", "--attacked-features", 4, "--only", "lattice")
    assert code == 0 and set(record["epsilon"]) >= {"session"} and "feature" not in record["epsilon"]
    assert "carries no epsilon" in record["verdict"]["sentences"][0] and "carries no epsilon" in page


@pytest.mark.slow
def test_fresh_releases_of_words_add_up(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):  # four clients, or one without its secret
        monkeypatch.setenv("VEIL_HOME", str(tmp_path / f"home{number}"))
        run("privatize", work / "f.h5", "-o", work / f"up{number}", "--words", "bundled", "--epsilon", 9)
    others = [work / f"up{number}" for number in (1, 2, 3)]
    _, record, _ = audit(work, "up0", "--images", work / "f.h5", "--against", *others, "--only", "repeat", "posterior")
    assert attack(record, "repeat")["identified"] > attack(record, "posterior")["identified"] + 0.3


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_fresh_second_release_is_broken_by_the_first(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_published(work / "f.h5", work / "up", m=8)
    memoized = audit(work, "up", "--images", work / "f.h5", "--against", work / "up", "--only", "repeat")[1]
    assert attack(memoized, "repeat")["within_0.1"] < 0.1  # the same again tells nothing
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "another"))
    as_published(work / "f.h5", work / "again", m=8)
    fresh = audit(work, "up", "--images", work / "f.h5", "--against", work / "again", "--only", "repeat")[1]
    assert attack(fresh, "repeat")["exact"] > 0.95


@pytest.mark.slow
def test_one_attack_alone_says_that_others_were_not_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_published(work / "f.h5", work / "up", m=2)
    code, record, page = audit(work, "up", "--images", work / "f.h5", "--attacked-features", 20, "--only", "lattice", "vertex")
    assert code == 0 and [item["attack"] for item in record["attacks"]] == ["lattice", "vertex"]
    said = [line for line in record["verdict"]["sentences"] if "were not asked for, and may recover more: " in line]
    assert len(said) == 1 and "nearest" in said[0] and "lattice" not in said[0] and html.escape(said[0]) in page
    assert run("audit", work / "up", "--only", "latice", "-o", work / "b.html") == 1
    assert "there is no attack 'latice'; there are: lattice, " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (("--fail-on", "structural"), "is not a rule"),
        (("--fail-on", "structural>500%"), "between 0 and 1"),
        (("--policy", "missing.txt"), "missing.txt"),
        (("--images", "missing.h5"), "missing.h5"),
        (("--codebook", "missing.npz"), "there is no codebook"),
        (("--against", "f.h5"), "f.h5"),
    ],
)
def test_bad_input_is_refused(
    work: Path, choices: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    as_published(work / "f.h5", work / "up")
    assert run("audit", "up", "-o", "a.html", *choices) == 1
    assert said in capsys.readouterr().err
    assert not (work / "a.html").exists()


@pytest.mark.slow
def test_an_empty_folder_and_a_foreign_file(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "empty").mkdir()
    assert run("audit", work / "empty") == 1
    assert "holds no .veil messages" in capsys.readouterr().err
    assert run("audit", work / "f.h5") == 1
    assert "not a veil message" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("chromium") or shutil.which("chromium-browser")), reason="needs a headless Chromium")
def test_the_page_fits_a_phone(work: Path, tmp_path: Path) -> None:
    """In a frame of 390 px, as wide as a phone, nothing sticks out; in one of 150 px something would (the broken twin)."""
    as_published(work / "f.h5", work / "up")
    page = audit(work, "up", "--images", work / "f.h5", "--attacked-features", 10)[2]
    measure = (
        "<body><script>onload = () => { document.title = [...document.querySelectorAll('iframe')].map("
        "f => f.contentDocument.documentElement.scrollWidth).join(' ') }</script>"
        + "".join(f'<iframe width="{width}" srcdoc="{html.escape(page)}"></iframe>' for width in (390, 150))
    )
    (tmp_path / "frame.html").write_text(measure)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    done = subprocess.run(
        [
            str(chromium),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            "--virtual-time-budget=5000",
            f"file://{tmp_path / 'frame.html'}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    title = re.search(r"<title>([\d ]+)</title>", done.stdout)
    assert title, done.stderr[-500:]
    phone, narrow = (int(width) for width in title.group(1).split())
    assert phone <= 394 < narrow + 300

"""Queries in words from photographs to poses: with and without an index, with lines, and maps of words."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.cli import main
from veil.files.maps.format import read_map
from veil.files.maps.indexes import read_vocabulary
from veil.files.photographs.colmap_text import read_images
from veil.files.photographs.examples import lund_door
from veil.geometry.rigid import Rigid
from veil.matching.inverted_index import InvertedIndex
from worlds.edges import door_photographs, truncated
from worlds.schemas import validate


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def references() -> dict[str, Rigid]:
    with lund_door() as example:
        return {name: pose for name, (_, pose) in read_images(example.folder / "images.txt").items()}


def gravity_table(path: Path, names: list[str], *, upside_down: bool = False, faulty: str = "") -> Path:
    """Exact gravity: the mean y-axis of the reference cameras is down in their world; `faulty` is off by 34.8 degrees."""
    poses = references()
    down = np.mean([pose.rotation[1] for pose in poses.values()], axis=0)
    down *= (-1 if upside_down else 1) / np.linalg.norm(down)
    cosine, sine = np.cos(np.radians(34.8)), np.sin(np.radians(34.8))
    turn = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
    readings = {name: (turn if name == faulty else np.eye(3)) @ poses[name].rotation @ down for name in names}
    rows = [",".join([name, *(repr(float(v)) for v in reading)]) for name, reading in readings.items()]
    path.write_text("\n".join(["image,x,y,z", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A public map of five photographs with gravity, one reading wrong, also with its index of words ("indexed"), and a sixth
    one as a query: in words, and in words with lines."""
    folder = tmp_path_factory.mktemp("words")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()), lund_door() as example:
        patch.setenv("VEIL_HOME", str(folder / "home"))
        camera = ",".join([example.camera.model, *map(str, example.camera.params)])
        for place, numbers in (("mapped", (2, 4, 5, 7, 8)), ("query", (6,))):
            photographs = door_photographs(folder / place, *numbers)
            options = ("--max-features", 1500, "--camera", camera)
            assert run("extract", photographs, "-o", folder / f"{place}.h5", *options) == 0
            names = sorted(path.name for path in photographs.iterdir())
            gravity_table(folder / f"{place}.csv", names, faulty="DSC_0005.jpg")
        told = ("--gravity", folder / "mapped.csv", "--json", folder / "map.json")
        assert run("map", folder / "mapped.h5", "-o", folder / "map", *told) == 0
        words = ("--words", "bundled", "--epsilon", 9, "--m", 2)
        assert run("privatize", folder / "query.h5", "-o", folder / "words", *words) == 0
        second = ("--lines", "--gravity", folder / "query.csv", "--allow-second-release")
        assert run("privatize", folder / "query.h5", "-o", folder / "lines", *words, *second) == 0
        small = ("--words", "bundled", "--epsilon", 4, "--m", 2, "--features", 1000, "--allow-second-release")
        assert run("privatize", folder / "query.h5", "-o", folder / "blind", *small) == 0
        assert run("privatize", folder / "query.h5", "-o", folder / "upright", *small, "--gravity", folder / "query.csv") == 0
        assert run("index", copied(folder, folder / "indexed")) == 0
    return folder


def message(folder: Path) -> Path:
    return next(folder.glob("*.veil"))


def copied(work: Path, target: Path, of: str = "map") -> Path:
    shutil.copytree(work / of, target)
    return target


def localized(map_folder: Path, query: Path, target: Path, *options: object) -> dict:
    assert run("localize", map_folder, query, "--json", target, *options) == 0
    return json.loads(target.read_text())["queries"][0]


@pytest.mark.slow
def test_a_query_in_words_is_localized_with_and_without_an_index(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the query's neighbors 5 and 7 in the row of cameras; and the index changes nothing but the time."""
    place = copied(work, tmp_path / "map")
    without = localized(place, message(work / "words"), tmp_path / "a.json")
    assert run("index", place, "--json", tmp_path / "index.json") == 0
    facts = json.loads((tmp_path / "index.json").read_text())
    validate("index", facts)
    assert facts["words"] == 16384 and facts["entries"] >= facts["points"]
    assert "wrote the index for queries in words to" in capsys.readouterr().out
    answer = localized(place, message(work / "words"), tmp_path / "b.json")
    assert answer["cam_from_world"] == without["cam_from_world"]
    assert answer["inliers"] > 40 and answer["log10_nfa"] < -20
    poses = references()
    rotation = np.array(answer["cam_from_world"]["rotation"])
    # Both worlds are turned against each other; the angle to a mapped camera is not.
    import pycolmap

    mapped = {
        image.name: image.cam_from_world().rotation.matrix()
        for image in pycolmap.Reconstruction(place / "sparse").images.values()
    }
    for name in mapped:
        ours, theirs = rotation @ mapped[name].T, poses["DSC_0006.jpg"].rotation @ poses[name].rotation.T
        assert np.degrees(np.arccos(np.clip((np.trace(ours @ theirs.T) - 1) / 2, -1, 1))) < 1.0


@pytest.mark.slow
def test_words_with_lines_are_localized_upright(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = localized(work / "indexed", message(work / "words"), tmp_path / "a.json")
    lines = localized(work / "indexed", message(work / "lines"), tmp_path / "b.json")
    ours, theirs = (np.array(item["cam_from_world"]["rotation"]) for item in (points, lines))
    assert np.degrees(np.arccos(np.clip((np.trace(ours @ theirs.T) - 1) / 2, -1, 1))) < 1.0


@pytest.mark.slow
def test_gravity_beside_positions_localizes_at_a_smaller_epsilon(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same words at epsilon 4 are refused without gravity. Oracle: the pose from words at epsilon 9 without it."""
    usual = localized(work / "indexed", message(work / "words"), tmp_path / "a.json")
    capsys.readouterr()
    assert run("localize", work / "indexed", message(work / "blind"), "--max-seconds", 1) == 3
    told = capsys.readouterr().out
    assert "not upright without the query's gravity" in told and "give it with --gravity" in told
    assert "larger --epsilon" not in told
    x, y, z = usual["camera_center"]
    images = sorted(path.name for path in (work / "mapped").iterdir())
    for options in (
        (),
        ("--near", x, y, z, "--nearest", 2),
        ("--near-images", *images[1:4]),
    ):
        answer = localized(work / "indexed", message(work / "upright"), tmp_path / "b.json", *options)
        ours, theirs = (np.array(item["cam_from_world"]["rotation"]) for item in (answer, usual))
        assert np.degrees(np.arccos(np.clip((np.trace(ours @ theirs.T) - 1) / 2, -1, 1))) < 0.5
        assert answer["inliers"] > 100 and answer["log10_nfa"] < -30
    assert run("localize", work / "indexed", message(work / "upright"), "--near-images", "nowhere.jpg") == 1
    capsys.readouterr()
    assert run("inspect", message(work / "upright")) == 0
    told = capsys.readouterr().out
    assert (
        ", gravity (" in told
        and "no guarantee covers them" in told
        and "without any descriptor or word" in told.replace("\n", " ")
    )
    assert run("inspect", message(work / "words")) == 0
    assert ", gravity (" not in capsys.readouterr().out


@pytest.mark.slow
def test_positions_alone_are_localized_near_known_images(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the pose from words at epsilon 9. The message says nothing of any descriptor, and the inspection says so."""
    usual = localized(work / "indexed", message(work / "words"), tmp_path / "a.json")
    sent = ("--no-descriptors", "--features", 500, "--allow-second-release", "--gravity", work / "query.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VEIL_HOME", str(work / "home"))
        capsys.readouterr()
        assert run("privatize", work / "query.h5", "-o", tmp_path / "bare", *sent) == 0
        assert "nothing of the descriptors is sent" in capsys.readouterr().out
        for wrong in (("--lines",), ("--words", "bundled"), ("--epsilon", 1), ("--min-distance", 5)):
            assert run("privatize", work / "query.h5", "-o", tmp_path / "no", *sent, *wrong) == 1
            assert "--no-descriptors sends positions alone" in capsys.readouterr().err
    query = message(tmp_path / "bare")
    answer = localized(work / "indexed", query, tmp_path / "b.json", "--near-images", "DSC_0005.jpg", "DSC_0007.jpg")
    ours, theirs = (np.array(item["cam_from_world"]["rotation"]) for item in (answer, usual))
    assert np.degrees(np.arccos(np.clip((np.trace(ours @ theirs.T) - 1) / 2, -1, 1))) < 0.5
    assert run("localize", work / "indexed", query) == 1
    assert "--near-images" in capsys.readouterr().err
    assert run("inspect", query, "--json", tmp_path / "facts.json") == 0
    told = capsys.readouterr().out
    assert "positions alone: each has a word at random" in told and "epsilon 0 for each" in told
    facts = json.loads((tmp_path / "facts.json").read_text())
    validate("inspect", facts)


@pytest.mark.slow
def test_a_wrong_reading_is_named_by_the_map(work: Path) -> None:
    """Planted: 34.8 degrees off, four others right. Their common down is that of the reference cameras, as the map has it."""
    gravity = json.loads((work / "map.json").read_text())["gravity"]
    assert gravity["wrong"] == {"DSC_0005.jpg": pytest.approx(34.8, abs=1.5)}
    assert (gravity["readings"], gravity["agreeing"], gravity["reason"]) == (5, 4, "")
    scene = read_map(work / "map")
    right = references()["DSC_0002.jpg"].rotation @ np.mean([pose.rotation[1] for pose in references().values()], axis=0)
    ours = scene.images["DSC_0002.jpg"].cam_from_world.rotation @ scene.down
    assert np.degrees(np.arccos(np.clip(ours @ right / np.linalg.norm(right), -1, 1))) < 1.5


@pytest.mark.slow
def test_lines_need_the_gravity_of_the_map(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_stdout(io.StringIO()):
        assert run("map", work / "mapped.h5", "-o", tmp_path / "map") == 0
    assert run("localize", tmp_path / "map", message(work / "lines")) == 1
    assert "the map has no gravity" in capsys.readouterr().err
    gravity_table(tmp_path / "other.csv", ["DSC_0001.jpg"])
    assert run("map", work / "mapped.h5", "-o", tmp_path / "map2", "--gravity", tmp_path / "other.csv") == 1
    assert "names none of the images" in capsys.readouterr().err
    assert not (tmp_path / "map2").exists()


@pytest.mark.slow
def test_another_dictionary_is_named(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = tmp_path / "book.npz"
    with redirect_stdout(io.StringIO()):
        assert run("codebook", "build", work / "mapped.h5", "-o", book, "--word-count", 64) == 0
    assert run("localize", work / "map", message(work / "words"), "--dictionary", book) == 1
    assert "has no index for it" in capsys.readouterr().err
    # An index for another dictionary is no index for this one, and does not stand in its way.
    place = copied(work, tmp_path / "map")
    assert run("index", place, "--dictionary", book) == 0
    assert run("localize", place, message(work / "words")) == 0


@pytest.mark.slow
def test_a_query_by_distance_is_matched_with_the_images_that_the_index_names(work: Path, tmp_path: Path) -> None:
    """Second method: all images. One image is matched first, and the pose lies where that from all images does."""
    place = copied(work, tmp_path / "map")
    every = localized(place, work / "query.h5", tmp_path / "all.json")
    assert run("index", place, "--for", "distances", "--json", tmp_path / "index.json") == 0
    facts = json.loads((tmp_path / "index.json").read_text())
    validate("index", facts)
    assert 0 < facts["listed_points"] <= facts["points"] and "words" not in facts
    ((_, query),) = veil.read_features(work / "query.h5")
    options = veil.LocalizeOptions(retrieved=(2, 4))
    answer = veil.localize(query, veil.Map.read(place), options=options)
    assert isinstance(answer, veil.Localization) and answer.correspondences < every["correspondences"]
    extent = np.linalg.norm(np.ptp([references()[name].center for name in references()], axis=0))
    assert np.linalg.norm(np.subtract(answer.center, every["camera_center"])) < 0.02 * extent
    again = localized(place, work / "query.h5", tmp_path / "again.json", "--search", "all")
    assert again["cam_from_world"] == every["cam_from_world"]


def index_of(place: Path) -> tuple[Path, str]:
    folder = next((place / "vocabularies").iterdir())
    return folder, json.loads((folder / "header.json").read_text())["dictionary"]


@pytest.mark.slow
def test_a_damaged_or_outdated_index_is_refused(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = copied(work, tmp_path / "map", of="indexed")
    folder, dictionary = index_of(place)
    assert isinstance(read_vocabulary(place, dictionary), InvertedIndex)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for part in truncated(whole, 4):
            path.write_bytes(part)
            assert run("localize", place, message(work / "words")) == 1, path.name
            assert "veil index" in capsys.readouterr().err
        path.write_bytes(whole)
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps(header | {"map": "another"}))
    assert run("localize", place, message(work / "words")) == 1
    assert "another state of the map" in capsys.readouterr().err
    assert run("index", place) == 0  # made again, it serves again
    assert run("localize", place, message(work / "words")) == 0


@pytest.mark.slow
def test_a_map_of_subspaces_has_no_words(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    with redirect_stdout(io.StringIO()):
        assert run("privatize", work / "mapped.h5", "-o", tmp_path / "up", "--for", "map", "--features", 300) == 0
        assert run("map", tmp_path / "up", "-o", tmp_path / "map") == 0
    assert run("index", tmp_path / "map", "--for", "words") == 1
    assert "--for distances" in capsys.readouterr().err
    assert run("localize", tmp_path / "map", message(work / "words")) == 1
    assert "these do not compare" in capsys.readouterr().err


@pytest.mark.slow
def test_words_map_and_serve_words(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither side holds a descriptor: the map is made of words (Pittaluga and Zhuang 2023, Sec. S2.2)."""
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    words = ("--words", "bundled", "--epsilon", 13, "--m", 1)
    with redirect_stdout(io.StringIO()):
        assert run("privatize", work / "mapped.h5", "-o", tmp_path / "up", "--for", "map", *words) == 0
        assert run("privatize", work / "query.h5", "-o", tmp_path / "query", *words) == 0
    assert run("map", tmp_path / "up", "-o", tmp_path / "map", "--json", tmp_path / "map.json") == 0
    facts = json.loads((tmp_path / "map.json").read_text())
    assert facts["registered"] == 5 and not facts["public"] and facts["mean_reprojection_error_px"] < 1
    assert run("index", tmp_path / "map") == 1
    assert "needs no index" in capsys.readouterr().err
    assert localized(tmp_path / "map", message(tmp_path / "query"), tmp_path / "pose.json")["inliers"] > 20

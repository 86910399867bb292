"""The command line from photographs to a pose, and what it says when something is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.cli import main
from veil.files.photographs.examples import lund_door, other_place
from worlds.schemas import validate

COMMANDS = [
    ["extract"],
    ["privatize"],
    ["budget"],
    ["budget", "show"],
    ["budget", "set"],
    ["budget", "plan"],
    ["codebook"],
    ["codebook", "build"],
    ["codebook", "info"],
    ["map"],
    ["localize"],
    ["inspect"],
    ["gravity"],
    ["demo"],
]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """Five photographs extracted, privatized and mapped, four of them in the map."""
    folder = tmp_path_factory.mktemp("pipeline")
    with pytest.MonkeyPatch.context() as patch, lund_door() as example:
        patch.setenv("VEIL_HOME", str(folder / "home"))
        for place, names in (("mapped", ("01", "03", "05", "07")), ("query", ("04",))):
            (folder / place).mkdir()
            for name in names:
                shutil.copy(example.folder / f"DSC_00{name}.jpg", folder / place)
        camera = ",".join([example.camera.model, *map(str, example.camera.params)])
        for place in ("mapped", "query"):
            common = ["--max-features", "650", "--camera", camera, "--json", folder / f"{place}.json"]
            assert run("extract", folder / place, "-o", folder / f"{place}.h5", *common) == 0
            assert (
                run(
                    "privatize",
                    folder / f"{place}.h5",
                    "-o",
                    folder / f"{place}-up",
                    "--for",
                    "map",
                    "--json",
                    folder / f"{place}-up.json",
                )
                == 0
            )
        assert run("map", folder / "mapped-up", "-o", folder / "private", "--json", folder / "private.json") == 0
        assert run("map", folder / "mapped.h5", "-o", folder / "public", "--json", folder / "public.json") == 0
    return folder


@pytest.mark.slow
def test_what_was_extracted_and_released_is_described(work: Path) -> None:
    for place in ("mapped", "query"):
        validate("extract", json.loads((work / f"{place}.json").read_text()))
        validate("privatize", json.loads((work / f"{place}-up.json").read_text()))


def query(work: Path) -> Path:
    return next((work / "query-up").glob("*.veil"))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_helps_with_examples(command: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["private", "public"])
def test_a_private_query_is_localized(work: Path, kind: str, tmp_path: Path, capsys) -> None:
    assert run("localize", work / kind, query(work), "--json", tmp_path / "pose.json") == 0
    validate("localize", record := json.loads((tmp_path / "pose.json").read_text()))
    row = record["queries"][0]
    assert row["status"] == "localized"
    assert row["inliers"] > 30
    rotation = np.array(row["cam_from_world"]["rotation"])
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(-rotation.T @ row["cam_from_world"]["translation"], row["camera_center"], atol=1e-9)
    assert "inliers of" in capsys.readouterr().out


@pytest.mark.slow
def test_maps_open_in_pycolmap(work: Path) -> None:
    import pycolmap

    for kind in ("private", "public"):
        facts = json.loads((work / f"{kind}.json").read_text())
        validate("map", facts)
        model = pycolmap.Reconstruction(work / kind / "sparse")
        assert (model.num_reg_images(), model.num_points3D()) == (facts["registered"], facts["points"])
        assert facts["registered"] == facts["images"] == 4
        assert facts["public"] == (kind == "public")
        assert model.compute_mean_reprojection_error() == pytest.approx(facts["mean_reprojection_error_px"], rel=1e-3)


@pytest.mark.slow
def test_another_place_gets_no_pose_and_exit_code_3(work: Path, tmp_path: Path, capsys) -> None:
    with other_place() as path:
        assert run("extract", path, "-o", tmp_path / "f.h5", "--max-features", 500) == 0
    assert run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up", "--for", "map") == 0
    assert run("localize", work / "public", next((tmp_path / "up").glob("*.veil")), "--json", tmp_path / "p.json") == 3
    validate("localize", record := json.loads((tmp_path / "p.json").read_text()))
    row = record["queries"][0]
    assert row["status"] == "no pose" and row["reason"]
    assert "cam_from_world" not in row
    assert "no pose" in capsys.readouterr().out


@pytest.mark.slow
def test_repeating_repeats_and_second_choices_are_refused(work: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """The repeated release has identical bytes; a fresh draw or another choice is refused, and nothing is written."""
    monkeypatch.setenv("VEIL_HOME", str(work / "home"))
    name = query(work).name
    assert run("privatize", work / "query.h5", "-o", tmp_path / "again", "--for", "map") == 0
    assert (tmp_path / "again" / name).read_bytes() == query(work).read_bytes()
    for choice in (["--fresh"], ["--features", "100"]):
        assert run("privatize", work / "query.h5", "-o", tmp_path / "second", "--for", "map", *choice) == 1
        assert "--allow-second-release" in capsys.readouterr().err
        assert not (tmp_path / "second").exists()
    assert (
        run("privatize", work / "query.h5", "-o", tmp_path / "second", "--for", "map", "--fresh", "--allow-second-release") == 0
    )
    assert len(list((tmp_path / "second").glob("*.veil"))) == 1
    assert run("inspect", work / "home" / "ledger.sqlite") == 0
    assert "drawn afresh" in capsys.readouterr().out


@pytest.mark.slow
def test_nothing_that_leaves_names_the_photograph(work: Path) -> None:
    data = query(work).read_bytes()
    assert b"DSC" not in data and b"jpg" not in data
    assert "DSC" not in query(work).name


@pytest.mark.slow
def test_inspect_says_what_is_not_protected(work: Path, capsys) -> None:
    for target, words in (
        (query(work), "no proof of privacy"),
        (work / "private", "private map of 4 images"),
        (work / "public", "Publish only public scenes"),
        (work / "query.h5", "Do not upload this file"),
    ):
        assert run("inspect", target) == 0
        assert words in capsys.readouterr().out


@pytest.mark.slow
def test_codebooks_are_built_described_and_used(work: Path, tmp_path: Path, capsys) -> None:
    book, pool = tmp_path / "book.npz", tmp_path / "pool.npz"
    sizes = ["--word-count", 200]
    assert run("codebook", "build", work / "mapped.h5", "-o", book, *sizes, "--license", "CC0") == 0
    assert run("codebook", "build", "--decoy-pool", work / "mapped.h5", "-o", pool, "--word-count", 2400) == 0
    assert run("codebook", "info", book, "--json", tmp_path / "info.json") == 0
    info = json.loads((tmp_path / "info.json").read_text())
    validate("codebook-info", info)
    assert (info["kind"], info["words"], info["slices"], info["pca_dim"], info["license"]) == ("centroids", 200, 16, 48, "CC0")
    # The pool was made from photographs of the map: they refuse, the query does not.
    capsys.readouterr()
    books = ["--decoys", pool, "--codebook", book]
    assert run("privatize", work / "mapped.h5", "-o", tmp_path / "up", "--for", "map", *books, "--features", 150) == 1
    assert "decoy pool" in capsys.readouterr().err
    assert run("privatize", work / "query.h5", "-o", tmp_path / "up", "--for", "map", *books) == 1
    assert "use a pool of" in capsys.readouterr().err
    assert run("privatize", work / "query.h5", "-o", tmp_path / "up", "--for", "map", *books, "--features", 150) == 0
    assert "share decoys" in capsys.readouterr().out
    assert run("localize", work / "public", next((tmp_path / "up").glob("*.veil"))) == 1
    assert "--codebook" in capsys.readouterr().err
    assert run("localize", work / "public", next((tmp_path / "up").glob("*.veil")), "--codebook", book) == 0


@pytest.mark.slow
def test_features_of_others_go_in(work: Path, tmp_path: Path) -> None:
    """hloc's HDF5 and a COLMAP database, made by h5py and pycolmap alone."""
    import pycolmap

    with h5py.File(work / "query.h5") as ours, h5py.File(tmp_path / "hloc.h5", "w") as theirs:
        group = ours["DSC_0004.jpg"]
        other = theirs.create_group("db/DSC_0004.jpg")
        for key in ("keypoints", "descriptors", "image_size"):
            other[key] = group[key][()]
        stored, keypoints = group["descriptors_u8"][()], group["keypoints"][()] + 0.5
    assert run("extract", tmp_path / "hloc.h5", "-o", tmp_path / "a.h5", "--imported", "sift") == 0
    database = pycolmap.Database.open(tmp_path / "colmap.db")
    camera = pycolmap.Camera.create_from_model_name(1, "SIMPLE_PINHOLE", 800.0, 686, 1024)
    camera_id = database.write_camera(camera)
    image_id = database.write_image(pycolmap.Image(name="DSC_0004.jpg", camera_id=camera_id))
    database.write_keypoints(image_id, keypoints)
    kind = pycolmap.FeatureExtractorType.SIFT
    database.write_descriptors(image_id, pycolmap.FeatureDescriptors(type=kind, data=stored))
    database.close()
    assert run("extract", tmp_path / "colmap.db", "-o", tmp_path / "b.h5", "--normalization", "L2") == 0
    for name in ("a", "b"):
        assert run("privatize", tmp_path / f"{name}.h5", "-o", tmp_path / name, "--for", "map") == 0
        assert run("localize", work / "public", next((tmp_path / name).glob("*.veil"))) == 0


@pytest.mark.slow
def test_what_is_wrong_is_said_with_a_remedy(work: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.veil").write_bytes(b"VEIL but not really" * 20)
    (tmp_path / "cut.veil").write_bytes(query(work).read_bytes()[:1000])
    (tmp_path / "bad.h5").write_bytes(b"no")
    (tmp_path / "bad.npz").write_bytes(b"no")
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "x.db").write_text("no database")
    cases = [
        (["extract", tmp_path / "nowhere", "-o", tmp_path / "o.h5"], "there is no file or folder"),
        (["extract", tmp_path / "empty", "-o", tmp_path / "o.h5"], "no photographs in"),
        (["extract", tmp_path / "text.jpg", "-o", tmp_path / "o.h5"], "convert it to JPEG"),
        (["extract", tmp_path / "x.db", "-o", tmp_path / "o.h5", "--normalization", "L2"], "not a COLMAP database"),
        (["extract", work / "query", "-o", tmp_path / "o.h5", "--camera", "PINHOLE,1"], "takes 4 parameters"),
        (["privatize", tmp_path / "bad.h5", "-o", tmp_path / "o", "--for", "map"], "not an HDF5"),
        (["privatize", work / "query.h5", "-o", tmp_path / "o"], "veil gravity"),
        (["privatize", work / "query.h5", "-o", tmp_path / "o", "--obfuscate", "--m", "8"], "sends subspaces"),
        (["privatize", work / "query.h5", "-o", tmp_path / "o", "--lines"], "--obfuscate"),
        (
            ["privatize", work / "query.h5", "-o", tmp_path / "o", "--for", "map", "--decoys", tmp_path / "bad.npz"],
            "not a veil codebook",
        ),
        (["map", tmp_path / "empty", "-o", tmp_path / "m"], "no .veil messages"),
        (["map", query(work), "-o", tmp_path / "m"], "at least two images"),
        (["map", work / "mapped-up", "-o", work / "private"], "not empty"),
        (["localize", tmp_path / "empty", query(work)], "not a veil map"),
        (["localize", work / "private", tmp_path / "bad.veil"], "update veil"),
        (["localize", work / "private", tmp_path / "cut.veil"], "transfer it again"),
        (["localize", work / "private", work / "query.h5"], "different spaces"),
        (["map", work / "mapped-up", "-o", tmp_path / "m", "--ratio", "much"], "--ratio takes"),
        (["localize", work / "private", query(work), "--ratio", "much"], "--ratio takes"),
        (["inspect", tmp_path / "nothing"], "there is no"),
        (["codebook", "info", tmp_path / "nothing.npz"], "veil codebook build"),
    ]
    for arguments, remedy in cases:
        assert run(*arguments) == 1, arguments
        said = capsys.readouterr().err
        assert remedy in said, (arguments, said)
        assert "Traceback" not in said
    assert not (tmp_path / "o.h5").exists() and not (tmp_path / "m").exists()
    assert main([]) == 2


@pytest.mark.slow
def test_a_query_that_hides_its_positions_is_localized(work: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """Lines and subspaces together: neither descriptor nor position leaves the device raw; map and match say what they can."""
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    (tmp_path / "g.csv").write_text("image,x,y,z\nDSC_0004.jpg,0.01,0.99,0.05\n")
    arguments = ["--obfuscate", "--lines", "--gravity", tmp_path / "g.csv"]
    assert run("privatize", work / "query.h5", "-o", tmp_path / "up", *arguments) == 0
    message = next((tmp_path / "up").glob("*.veil"))
    assert run("localize", work / "public", message, "--json", tmp_path / "pose.json") == 0
    row = json.loads((tmp_path / "pose.json").read_text())["queries"][0]
    assert row["status"] == "localized"
    assert run("localize", work / "public", query(work), "--json", tmp_path / "points.json") == 0
    points = json.loads((tmp_path / "points.json").read_text())["queries"][0]
    # COLMAP scales the cameras of a map to an extent of about 10.
    assert np.linalg.norm(np.subtract(row["camera_center"], points["camera_center"])) < 0.1
    capsys.readouterr()
    assert run("inspect", message) == 0
    assert "a line through each" in capsys.readouterr().out
    # A position and a line of one keypoint would meet in it.
    assert run("privatize", work / "query.h5", "-o", tmp_path / "up2", "--for", "map") == 1
    assert "--allow-second-release" in capsys.readouterr().err
    (tmp_path / "two").mkdir()
    for index in range(2):
        shutil.copy(message, tmp_path / "two" / f"{index}.veil")
    assert run("map", tmp_path / "two", "-o", tmp_path / "m") == 1
    assert "at least four images" in capsys.readouterr().err
    for table, words in (
        ("image,x\n", "expected image"),
        ("a,1,2\n", "expected image"),
        ("a,0,-1,0\n", "negate"),
        ("image,x,y,z\n", "no readings"),
    ):
        (tmp_path / "bad.csv").write_text(table)
        assert (
            run(
                "privatize",
                work / "query.h5",
                "-o",
                tmp_path / "o",
                "--for",
                "map",
                "--lines",
                "--gravity",
                tmp_path / "bad.csv",
            )
            == 1
        )
        assert words in capsys.readouterr().err
    assert run("privatize", work / "query.h5", "-o", tmp_path / "o", "--for", "map", "--gravity", tmp_path / "g.csv") == 1
    assert "--allow-second-release" in capsys.readouterr().err

"""`veil map import` and `veil map --known-poses`: from a project of another tool to a pose in two commands."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.features import write_features
from veil.files.maps.format import read_map
from veil.files.photographs.gravity import write_gravity
from veil.geometry.gravity import Gravity
from worlds.projects import LENSES, files_of, planted_hloc_project, planted_project
from worlds.schemas import validate

pytestmark = pytest.mark.filterwarnings("ignore::veil.errors.VeilWarning")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.slow
def test_from_a_project_to_a_private_pose_in_two_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted truth: the pose of the query, in the coordinates of the model; its message comes from the device."""
    scene, raw = planted_project(tmp_path / "project")
    name = sorted(raw)[0]
    write_features(tmp_path / "query.h5", [("query.jpg", raw[name])])
    assert run("privatize", tmp_path / "query.h5", "-o", tmp_path / "up", "--for", "map", "--min-distance", "0") == 0
    before = files_of(tmp_path / "project")
    capsys.readouterr()
    project = tmp_path / "project"
    down = np.array([0.1, 0.99, 0.1]) / np.linalg.norm([0.1, 0.99, 0.1])
    readings = {key: Gravity(direction=image.cam_from_world.rotation @ down) for key, image in scene.images.items()}
    write_gravity(tmp_path / "gravity.csv", readings)
    options = ["--normalization", "L2", "--json", tmp_path / "facts.json", "--gravity", tmp_path / "gravity.csv"]
    assert run("map", "import", project / "sparse" / "0", "-o", tmp_path / "map", *options) == 0
    (message,) = (tmp_path / "up").glob("*.veil")
    assert run("localize", tmp_path / "map", message, "--json", tmp_path / "pose.json") == 0
    assert files_of(project) == before
    told = capsys.readouterr().out
    assert f"descriptors of {project / 'database.db'} (sift L2 128-D), the model's own points" in told
    facts = json.loads((tmp_path / "facts.json").read_text())
    validate("map-import", facts)
    assert facts["registered"] == len(raw) and facts["descriptors"] == "stored" and facts["left_out"] == {}
    assert facts["gravity"]["agreeing"] == facts["gravity"]["readings"] == len(raw)
    np.testing.assert_allclose(read_map(tmp_path / "map").measured_down, down, atol=1e-8)  # type: ignore[arg-type]
    (query,) = json.loads((tmp_path / "pose.json").read_text())["queries"]
    np.testing.assert_allclose(query["camera_center"], scene.images[name].cam_from_world.center, atol=0.05)


def digests(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files_of(folder).items()}


@pytest.mark.slow
@pytest.mark.parametrize("model", LENSES)
def test_from_an_hloc_project_to_a_private_pose(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    """Planted truth: the pose of the query in the model's coordinates; hloc's layout by hand, RootSIFT and a rig, read-only."""
    project = tmp_path / "project"
    scene, raw = planted_hloc_project(project, model)
    assert {path.name for path in (project / "sfm").iterdir()} >= {"rigs.bin", "frames.bin", "database.db"}
    name = sorted(raw)[0]
    write_features(tmp_path / "query.h5", [("query.jpg", raw[name])])
    assert run("privatize", tmp_path / "query.h5", "-o", tmp_path / "up", "--for", "map", "--min-distance", "0") == 0
    before = digests(project)
    for path in (project, *project.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    words = [project / "sfm", project / "feats-sift.h5", "--imported", "sift", "--normalization", "L1_ROOT"]
    assert run("map", "import", *words, "-o", tmp_path / "map", "--json", tmp_path / "facts.json") == 0
    (message,) = (tmp_path / "up").glob("*.veil")
    assert run("localize", tmp_path / "map", message, "--json", tmp_path / "pose.json") == 0
    assert digests(project) == before
    assert "(sift L2 128-D), the model's own points" in capsys.readouterr().out
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["registered"] == len(raw) and facts["left_out"] == {} and facts["mean_reprojection_error_px"] < 0.3
    assert {image.camera.model for image in read_map(tmp_path / "map").images.values()} == {model}
    for key, image in read_map(tmp_path / "map").images.items():
        np.testing.assert_allclose(image.cam_from_world.center, scene.images[key].cam_from_world.center, atol=1e-9)
    (query,) = json.loads((tmp_path / "pose.json").read_text())["queries"]
    np.testing.assert_allclose(query["camera_center"], scene.images[name].cam_from_world.center, atol=0.05)


@pytest.mark.slow
def test_own_features_at_the_poses_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted truth: the poses, which stay; an image that the model lacks is named."""
    scene, raw = planted_project(tmp_path)
    more = {**raw, "another.jpg": next(iter(raw.values()))}
    write_features(tmp_path / "more.h5", sorted(more.items()))
    model = tmp_path / "sparse" / "0"
    facts = tmp_path / "facts.json"
    assert run("map", tmp_path / "more.h5", "-o", tmp_path / "map", "--known-poses", model, "--json", facts) == 0
    validate("map", json.loads(facts.read_text()))
    assert "another.jpg: the model has no image of this name" in capsys.readouterr().out
    for name, image in read_map(tmp_path / "map").images.items():
        np.testing.assert_allclose(image.cam_from_world.center, scene.images[name].cam_from_world.center, atol=1e-6)
    for others in (["--add-to", tmp_path / "map"], ["--locate"], ["--mapper", "global"]):
        assert run("map", tmp_path / "more.h5", "-o", tmp_path / "new", "--known-poses", model, *others) == 1
        assert f"{others[0]} looks for poses, and --known-poses keeps the model's" in capsys.readouterr().err


def test_what_cannot_be_imported_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted_project(tmp_path)
    model, output = tmp_path / "sparse" / "0", tmp_path / "map"
    (tmp_path / "notes.txt").touch()
    (tmp_path / "images").mkdir()
    for words, reason in (
        ([tmp_path / "database.db", tmp_path / "features.h5"], "one file of features and one folder of photographs at most"),
        ([tmp_path / "notes.txt"], "notes.txt is neither features (.db, .h5) nor a folder of photographs"),
        ([tmp_path / "none.h5"], "there is no file"),
        ([tmp_path / "images"], "holds no photograph of"),
    ):
        assert run("map", "import", model, *words, "-o", output) == 1
        assert reason in capsys.readouterr().err
    (tmp_path / "gravity.csv").write_text("image,x,y,z\nother.jpg,0,1,0\n")
    assert run("map", "import", model, "-o", output, "--gravity", tmp_path / "gravity.csv") == 1
    assert "gravity is of none of the images of" in capsys.readouterr().err
    assert run("map", "import", tmp_path, "-o", output) == 1
    assert f"is not a model, but {model} is one" in capsys.readouterr().err
    (tmp_path / "database.db").unlink()
    assert run("map", "import", model, "-o", output) == 1
    assert "give the COLMAP database or hloc's features that it was made of" in capsys.readouterr().err
    assert not output.exists()

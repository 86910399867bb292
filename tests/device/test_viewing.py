"""Views from files: queries, what the device gives, audits, and the refusal of what belongs to other images."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.attacks.registry import unbounded
from veil.audit.audit_result import Audit
from veil.audit.verdict import judge
from veil.device.viewing import inverted, known_images, view_audit, view_map, view_of
from veil.errors import FileFormatError, InputError
from veil.files.features import write_features
from veil.geometry.camera import guessed, resized
from veil.places.held_map import Map
from veil.places.poses.answer import camera_json
from veil.progress import ignore_progress
from veil.report.audit import Shown, ShownPicture, page
from veil.report.viewer.content import view_of_scene
from worlds.line_worlds import features_of
from worlds.map_scenes import image_name, planted_map


def photographs(folder: Path, names: list[str], size: tuple[int, int] = (640, 480)) -> Path:
    """Photographs of one color each, by name: the k-th is (10 k, 0, 0)."""
    folder.mkdir()
    for k, name in enumerate(names):
        Image.new("RGB", size, (10 * k, 0, 0)).save(folder / name, "PNG")
    return folder


@pytest.mark.parametrize("kind", ["public", "subspaces", "lines"])
def test_a_device_recognizes_its_images_by_their_features(kind: str, tmp_path: Path) -> None:
    """Planted truth: images of a map are called otherwise than the photographs, and each is recognized by positions or lines.

    Broken twin: features of another world, of which none belongs to any image.
    """
    scene, world = planted_map("device", kind)
    features = features_of(world, "device")
    write_features(tmp_path / "features.h5", [(f"{key}.png", item) for key, item in features.items()])
    folder = photographs(tmp_path / "photos", [f"{key}.png" for key in features])
    images = view_of_scene(scene, "map").images
    known = known_images(images, [tmp_path / "features.h5", folder], most_px=64)
    assert set(known) == set(scene.images)
    for k, key in enumerate(features):
        item = known[image_name(key)]
        assert item.photograph is not None and item.keypoints is not None
        assert item.photograph.shape == (48, 64, 3) and (item.photograph == (10 * k, 0, 0)).all()
        assert np.array_equal(item.keypoints, features[key].keypoints)
    _, other = planted_map("elsewhere", kind)
    write_features(tmp_path / "other.h5", [(f"{key}.png", item) for key, item in features_of(other, "elsewhere").items()])
    with pytest.raises(InputError, match=r"belongs to an image.*features\.h5"):
        known_images(images, [tmp_path / "other.h5"], most_px=64)


def test_true_positions_of_another_size_are_rescaled(tmp_path: Path) -> None:
    """Planted features of half the size. Counterexample: those of another shape, which are refused."""
    scene, place = planted_map("sizes")
    shown = view_of_scene(scene, "map").images[0]
    whole = next(iter(features_of(place, "sizes").values()))
    half = replace(whole, keypoints=whole.keypoints * np.float32(0.5), camera=resized(whole.camera, 320, 240))
    write_features(tmp_path / "half.h5", [(shown.name, half)])
    known = known_images([shown], [tmp_path / "half.h5"], most_px=100)[shown.name]
    assert known.keypoints is not None
    np.testing.assert_allclose(known.keypoints, whole.keypoints, atol=1e-3)
    write_features(tmp_path / "odd.h5", [(shown.name, replace(whole, camera=resized(whole.camera, 700, 480)))])
    with pytest.raises(InputError, match=r"features of .* are of 700x480 px, in the map it has 640x480 px"):
        known_images([shown], [tmp_path / "odd.h5"], most_px=100)


def test_photographs_go_by_their_names(tmp_path: Path) -> None:
    """By the whole name, by its last part, and by that without a suffix; a name that two photographs have means neither."""
    scene, _ = planted_map("names")
    images = view_of_scene(scene, "map").images
    names = ["a.png", "sub/b.jpg", "c", "twice", "none.png"]
    shown = [replace(image, name=name) for image, name in zip(images, names, strict=False)]
    folder = tmp_path / "photos"
    for k, name in enumerate(("a.png", "b.jpg", "c.png", "x/twice.png", "y/twice.png")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (10 * k, 0, 0)).save(folder / name, "PNG")
    known = known_images(shown, [folder], most_px=100)
    reds = {name: int(item.photograph[0, 0, 0]) for name, item in known.items() if item.photograph is not None}
    assert reds == {"a.png": 0, "sub/b.jpg": 10, "c": 20}
    assert all(item.keypoints is None for item in known.values())


def test_poses_of_a_file_are_shown(tmp_path: Path) -> None:
    """Oracle: the formula of the center's covariance for a pose at the origin, where it is that of the translation.

    A query is drawn with the camera that its record tells, and one of an older version with that of an image of the map.
    """
    scene, _ = planted_map("poses")
    covariance = np.diag([1e-6, 1e-6, 1e-6, 0.04, 0.09, 0.16])
    pose = {"rotation": np.eye(3).tolist(), "translation": [0.0, 0.0, 0.0]}
    record = {"name": "q", "status": "localized", "cam_from_world": pose, "covariance": covariance.tolist()}
    rows = [
        {**record, "inliers": 30, "correspondences": 50, "camera": camera_json(guessed(640, 480, focal_px=432.1))},
        {**record, "name": "r", "covariance": None, "inliers": 3, "correspondences": 5},
        {"name": "s", "status": "no pose", "reason": "too few inliers", "seconds": 1.0},
    ]
    text = json.dumps({"queries": rows, "skipped": {}})
    (tmp_path / "poses.json").write_bytes(text.encode("utf-16"))  # as PowerShell writes what a command printed
    viewed = view_map(Map(scene=scene), title="map", queries=[tmp_path / "poses.json"])
    shown = [image for image in view_of(viewed).images if image.is_query]
    assert [image.name for image in shown] == ["q", "r"] and viewed.refused == {"s": "too few inliers"}
    assert shown[0].center_covariance == pytest.approx(np.diag([0.04, 0.09, 0.16])) and shown[1].center_covariance is None
    assert shown[0].camera.params == guessed(640, 480, focal_px=432.1).params
    assert shown[1].camera == next(iter(scene.images.values())).camera
    assert any("No pose for s: too few inliers" in text for text in view_of(viewed).of_server)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "no json",
        '{"queries": [{"name": "q", "status": "localized"}]}',
        '{"queries": [{"name": "q", "status": "localized", "cam_from_world": {"rotation": [[1]], "translation": [1]}}]}',
        '{"queries": [{"name": "q", "status": "localized", "cam_from_world": {"rotation": [[NaN,0,0],[0,1,0],[0,0,1]], '
        '"translation": [0,0,0]}, "inliers": 1, "correspondences": 1}]}',
        "[" * 100_000,
    ],
)
def test_other_json_is_refused(text: str, tmp_path: Path) -> None:
    scene, _ = planted_map("poses")
    (tmp_path / "poses.json").write_text(text)
    with pytest.raises(FileFormatError, match="no record of localized queries"):
        view_map(Map(scene=scene), title="map", queries=[tmp_path / "poses.json"])


def test_raw_features_are_no_query(tmp_path: Path) -> None:
    """Raw features, which no server receives, are refused as a query of a view."""
    scene, world = planted_map("poses")
    write_features(tmp_path / "features.h5", features_of(world, "poses").items())
    with pytest.raises(InputError, match=r"view_map\(device="):
        view_map(Map(scene=scene), title="map", queries=[tmp_path / "features.h5"])


def uri(color: tuple[int, int, int], size: tuple[int, int]) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "JPEG", quality=95)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def audited(path: Path, name: str, image: str = "") -> Path:
    """The page that `veil audit` writes, with one release of this name: a gray photograph, its lines, and two pictures."""
    time = unbounded().as_record()
    outcome = Audit(
        messages=[name],
        facts={},
        findings=[],
        not_looked_at={},
        pictures=[],
        epsilons={},
        delta=1e-6,
        measured=None,
        verdict=judge([], {}, 1e-6),
        rules=[],
        breaches={},
        originals={name: image},
        recovered={},
        time=time,
        picture_time=time,
    )
    pictures = (
        ShownPicture(kind="photograph", title="the photograph", uri=uri((90, 90, 90), (64, 48))),
        ShownPicture(kind="sent", title="what is sent", uri=uri((250, 250, 250), (64, 48))),
        ShownPicture(kind="unprotected", title="had it been sent", uri=uri((1, 1, 1), (32, 32))),
        ShownPicture(kind="reconstructed", title="by an attack", uri=uri((0, 200, 0), (32, 32))),
    )
    path.write_text(page(outcome, shown=[Shown(name=name, image=image, pictures=pictures)], seconds=1.0))
    return path


def test_an_audit_brings_the_pictures_of_its_attacks(tmp_path: Path) -> None:
    """Planted truth: the green picture is an attack's; that of raw features, had they been sent, is not what one gets back."""
    scene, world = planted_map("audited", "subspaces")
    name = image_name(next(iter(world.poses)))
    for release, image in ((name, ""), ("3f2a", name)):
        report = audited(tmp_path / "audit.html", release, image)
        view = view_of(view_map(Map(scene=scene), title="map", report=report))
        (item,) = view.recovered[name]
        assert set(view.recovered) == {name} and item.title == "by an attack" and view.known == {}
        assert np.abs(item.rgb.astype(int) - (0, 200, 0)).max() < 12
    with pytest.raises(InputError, match="no picture that an attack drew of an image of this map"):
        view_map(Map(scene=scene), title="map", report=audited(tmp_path / "other.html", "other"))


def test_an_audit_alone_is_a_view(tmp_path: Path) -> None:
    view = view_audit(audited(tmp_path / "audit.html", "3f2a"))
    (image,) = view.images
    assert (image.name, image.camera.width_px, image.camera.height_px, image.cam_from_world) == ("3f2a", 64, 48, None)
    assert image.sent is not None and image.sent.mean() > 240
    assert view.known["3f2a"].photograph is not None and view.known["3f2a"].photograph.mean() == pytest.approx(90, abs=3)
    assert [item.title for item in view.recovered["3f2a"]] == ["by an attack"]
    text = (tmp_path / "audit.html").read_text()
    (tmp_path / "bare.html").write_text(text.replace("data-release", "data-nothing"))
    with pytest.raises(InputError, match=r"AuditOptions\(pictured="):
        view_audit(tmp_path / "bare.html")


@pytest.mark.slow
def test_only_a_public_map_is_inverted() -> None:
    """Its pictures are of the images asked for; a private map has no raw descriptors."""
    scene, _ = planted_map("inverted", "public")
    pictures = inverted(Map(scene=scene), 2, ignore_progress)
    assert set(pictures) == {min(scene.images), max(scene.images)}
    assert all(item.rgb.shape == (256, 256, 3) and item.rgb.std() > 0 for item in pictures.values())
    private, _ = planted_map("inverted", "subspaces")
    with pytest.raises(InputError, match="make the audit"):
        inverted(Map(scene=private), 2, ignore_progress)

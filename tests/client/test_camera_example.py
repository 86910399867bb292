"""examples/camera.py as it stands, with a folder as its camera, against a server in a thread."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import veil
from veil.device.device import Device
from veil.features import Features
from veil.files.photographs.examples import lund_door, other_place
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.servers import messages_of, running
from worlds.small_pictures import half_camera, shrink

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "camera.py"


@pytest.mark.slow
def test_a_folder_is_a_camera(
    door: dict[str, Features], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Second method: the same message, localized here on the server's map. A photograph of another place has a reason."""
    home, photos = tmp_path / "home", tmp_path / "photos"
    monkeypatch.setenv("VEIL_HOME", str(home))
    photos.mkdir()
    service = Service(tmp_path / "store", ServerSettings(workers=1, map_workers=1))
    with running(service) as server:
        owner, secret = service.tokens.make("robot", ["localize", "contribute"])
        record = service.records.make("door", MapPolicy())
        for message in messages_of(door, Device(tmp_path / "mapper")).values():
            job = service.contribute(owner, record.id, message)[1]
        assert job is not None and server.done(job.id)["result"]["mapped"] >= 5
        with lund_door() as example:
            name = next(name for name in sorted(example.poses) if name not in door)
            shrink(example.folder / name, photos / "1.jpg")
        half = half_camera()
        camera = ",".join([half.model, *map(str, half.params)])
        with other_place() as path:
            shrink(path, photos / "2.jpg")
        (photos / "notes.txt").write_text("no photograph")
        (tmp_path / "token").write_text(secret + "\n")
        given = [
            server.url,
            str(photos),
            "--map",
            "door",
            "--token-file",
            str(tmp_path / "token"),
            "--camera",
            camera,
            "--obfuscate",
        ]
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *given])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        folder = service.version_folder(service.map_record(record.id))
    shown = capsys.readouterr().out.splitlines()
    line = re.fullmatch(r"1\.jpg: RemotePose\(center=[\[(](.*?)[\])], .*inliers=(\d+)\)", shown[0])
    assert line and int(line[2]) >= 20 and len(shown) == 2
    assert shown[1].startswith("2.jpg: ") and "inliers" in shown[1] and "center" not in shown[1]
    picture = veil.read_picture(photos / "1.jpg")
    features = veil.extract(veil.read_picture(photos / "1.jpg", camera=veil.Camera.parse(camera, *_size(picture))))
    assert folder is not None
    here = veil.localize(
        veil.decode(veil.Device(home).release(features, veil.Protection(descriptors=veil.HideInSubspaces())).message),
        veil.Map.read(folder),
    )
    assert isinstance(here, veil.Localization)
    assert [float(number) for number in line[1].replace(",", " ").split()] == pytest.approx(here.center.tolist(), abs=1e-3)


def test_the_example_is_short() -> None:
    """It is to be read: fifty lines at most, and what it takes beyond the public interface is named in its imports."""
    assert len(EXAMPLE.read_text().splitlines()) <= 50


def _size(picture: object) -> tuple[int, int]:
    camera = picture.camera  # type: ignore[attr-defined]
    return camera.width_px, camera.height_px

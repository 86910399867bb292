"""examples/camera.py as it stands, with a folder as its camera, against a server in a thread."""

from __future__ import annotations

import hashlib
import re
import runpy
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import veil
from veil.device.device import Device
from veil.features import Features
from veil.files.photographs.examples import lund_door, other_place
from veil.forms import Subspaces
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds import generator
from worlds.servers import messages_of, running
from worlds.small_pictures import half_camera, shrink

SUBSPACES = veil.Protection(descriptors=veil.HideInSubspaces())
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "camera.py"


@pytest.mark.slow
def test_a_folder_is_a_camera(
    door: dict[str, Features], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Second method: the same message, localized here on the server's map. A photograph of another place has a reason.

    The third is the first with noise. Its features leave as they did in the first. Broken twin: a device that draws anew.
    """
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
        first = cv2.imread(str(photos / "1.jpg"))
        assert first is not None
        noise = generator("noise of a camera").normal(scale=1.0, size=first.shape)
        cv2.imwrite(str(photos / "3.jpg"), np.clip(np.round(first + noise), 0, 255).astype(np.uint8))
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
    line = re.fullmatch(r"1\.jpg: RemotePose\(center=[\[(](.*?)[\])], .*\)", shown[0])
    assert line and "inliers" not in shown[0] and len(shown) == 3
    assert shown[1].startswith("2.jpg: NoPose(reason='the map tells no pose") and "center" not in shown[1]
    seen = [_features(photos / name, camera) for name in ("1.jpg", "3.jpg")]
    features = seen[0]
    assert folder is not None
    here = veil.localize(
        veil.decode(veil.Device(home).release(features, SUBSPACES).message),
        veil.Map.read(folder),
    )
    assert isinstance(here, veil.Localization)
    sent = [veil.Device(home).release(item, SUBSPACES) for item in seen]
    entered = {entry.message_digest for entry in veil.Device(home).ledger.entries()}
    assert len(entered) == 3 and all(hashlib.sha256(item.message).hexdigest() in entered for item in sent)
    anew = [veil.Device(tmp_path / "twin").release(item, SUBSPACES, purpose="map") for item in seen]
    again = sent[1].shown_before
    assert equal_subspaces(sent) > 0.9 * again > 0.5 * len(sent[1].upload) and equal_subspaces(anew) < 10
    assert [float(number) for number in line[1].replace(",", " ").split()] == pytest.approx(here.center.tolist(), abs=1e-3)


def test_the_example_is_short() -> None:
    """It is to be read: fifty lines at most, and what it takes beyond the public interface is named in its imports."""
    assert len(EXAMPLE.read_text().splitlines()) <= 50


def equal_subspaces(releases: list[veil.DeviceRelease]) -> int:
    """Number of subspaces of the second message that the first one has, too."""
    first, second = (veil.decode(item.message).form for item in releases)
    assert isinstance(first, Subspaces) and isinstance(second, Subspaces)
    return len({row.tobytes() for row in first.origin} & {row.tobytes() for row in second.origin})


def _features(path: Path, camera: str) -> Features:
    """Raw features of a photograph, as the example extracts them."""
    picture = veil.read_picture(path)
    return veil.extract(picture, camera=veil.Camera.parse(camera, picture.camera.width_px, picture.camera.height_px))

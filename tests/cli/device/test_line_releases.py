"""Two different releases of lines of one photograph: refused, whatever changed between them, and what would come of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.cli import main
from veil.device.device import Device
from veil.device.protection import HideInSubspaces, Protection
from veil.errors import ReleaseRefused
from veil.features import Features
from veil.files.device.home import home
from veil.files.features import write_features
from veil.geometry.camera import FROM_EXIF, GUESS, Camera, as_colmap
from veil.mechanisms.release import HideInConvergentLines, HideInLines, HideInParallelLines, LineHiding
from veil.wire import decode
from veil.wire.message import LineUpload
from worlds import features, generator

COUNT = 60
PINHOLE = Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, 0.0))
RADIAL = replace(PINHOLE, params=(500.0, 320.0, 240.0, -0.03))
DOWN = (0.05, 0.99, 0.12)
IMAGE = replace(features(generator("line releases"), COUNT), camera=PINHOLE)


def with_camera(**changes: Any) -> Callable[[Features], Features]:
    return lambda image: replace(image, camera=replace(image.camera, **changes))


def moved(image: Features) -> Features:
    """As another version of an extractor finds the keypoints: a tenth of a pixel off."""
    return replace(image, keypoints=image.keypoints + np.float32(0.1))


# What may change while the pixels, and so the image's digest, stay: one thing at a time.
CHANGES: dict[str, Callable[[Features], Features]] = {
    "focal": with_camera(params=(550.0, 320.0, 240.0, 0.0)),
    "focal, last digits": with_camera(params=(500.0000001, 320.0, 240.0, 0.0)),
    "principal point": with_camera(params=(500.0, 322.0, 240.0, 0.0)),
    "distortion": with_camera(params=RADIAL.params),
    "model": with_camera(model="SIMPLE_PINHOLE", params=(500.0, 320.0, 240.0)),
    "aspect": with_camera(model="PINHOLE", params=(500.0, 510.0, 320.0, 240.0)),
    "size": with_camera(width_px=641),
    "focal is known": with_camera(focal=GUESS),
    "class of the focal": with_camera(focal=FROM_EXIF),
    "keypoints": moved,
}


def privatize(
    folder: Path, image: Features, down: tuple[float, ...] | None, name: str, *more: object, lines: bool = True
) -> tuple[int, bytes]:
    """The exit code, and the message that was written; none if none was."""
    write_features(folder / "f.h5", [("photo.jpg", image)])
    options: list[object] = ["--lines"] if lines else []
    if down is not None:
        (folder / "g.csv").write_text(f"image,x,y,z\nphoto.jpg,{','.join(map(repr, down))}\n")
        options += ["--gravity", folder / "g.csv"]
    rc = main([str(item) for item in ("privatize", folder / "f.h5", "-o", folder / name, "--for", "map", *options, *more)])
    return rc, next((path.read_bytes() for path in (folder / name).glob("*.veil")), b"")


def released_by(image: Features, lines: LineHiding) -> bytes:
    """The message of a device that hides positions in lines. Raises ReleaseRefused as it does."""
    return Device().release(image, Protection(descriptors=HideInSubspaces(), lines=lines), name="photo.jpg").message


def recovered(messages: list[bytes], image: Features) -> tuple[int, int]:
    """Number of features whose lines of two releases cross within 1 px of a keypoint, first of those that cross only once in
    the picture, then of all.

    Rows belong together, as the order is a function of the features. A line of one camera is a curve to another, so the pixels
    along the first line are walked, and those kept where the second line is crossed.
    """
    first, second = (decode(message) for message in messages)
    assert isinstance(first, LineUpload) and isinstance(second, LineUpload) and len(first) == len(second)
    once = anywhere = 0
    for row in range(len(first)):
        a, b = (upload.lines.coefficients[row].astype(np.float64) for upload in (first, second))
        along = np.linspace(-2, 2, 4001)[:, None]
        points = np.insert(-a[:2] * a[2] + along * [-a[1], a[0]], 2, 1.0, axis=1)
        pixels = np.asarray(as_colmap(first.camera).img_from_cam(points))
        pixels = pixels[((pixels > 0) & (pixels < [640, 480])).all(axis=1)]
        side = np.asarray(as_colmap(second.camera).cam_from_img(pixels)) @ b[:2] + b[2]
        if len(pixels) < 2 or np.abs(side).max() < 1e-5:
            continue  # one and the same line
        step = np.flatnonzero(side[:-1] * side[1:] < 0)
        share = (side[step] / (side[step] - side[step + 1]))[:, None]
        crossings = pixels[step] * (1 - share) + pixels[step + 1] * share
        near = [np.linalg.norm(image.keypoints - crossing, axis=1).min() < 1 for crossing in crossings]
        once += len(near) == 1 and near[0]
        anywhere += any(near)
    return once, anywhere


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> tuple[Path, bytes]:
    """A client's folder in which the photograph was released once, and the message."""
    folder = tmp_path_factory.mktemp("released")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VEIL_HOME", str(folder / "home"))
        rc, message = privatize(folder, IMAGE, DOWN, "first")
    assert rc == 0 and message
    return folder, message


@pytest.mark.slow
@pytest.mark.parametrize("change", [*CHANGES, "gravity", "no gravity"])
def test_whatever_changes_a_line_is_refused(released, tmp_path: Path, monkeypatch, capsys, change: str) -> None:
    """The pixels are the same, so only the ledger can see it; what changed is named."""
    monkeypatch.setenv("VEIL_HOME", str(released[0] / "home"))
    other = CHANGES.get(change, lambda image: image)(IMAGE)
    down = {"gravity": (0.05, 0.99, 0.14), "no gravity": None}.get(change, DOWN)
    assert privatize(tmp_path, other, down, "second") == (1, b"")
    error = capsys.readouterr().err
    assert "photo.jpg was already released" in error and "--allow-second-release" in error
    named = {
        "size": "size",
        "focal is known": "focal",
        "class of the focal": "focal",
        "keypoints": "keypoints",
        "gravity": "another",
        "no gravity": "without",
    }
    assert f"now {named.get(change, 'camera')} " in error


def test_another_share_of_aligned_lines_is_refused(released, monkeypatch) -> None:
    """The command's lines have the usual share; the least change of it is another release, and is named."""
    monkeypatch.setenv("VEIL_HOME", str(released[0] / "home"))
    with pytest.raises(ReleaseRefused, match=r"photo\.jpg was already released.* now aligned "):
        released_by(IMAGE, HideInLines(gravity=np.array(DOWN), aligned_share=0.5000001))
    assert released_by(IMAGE, HideInLines(gravity=np.array(DOWN))) == released[1]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [HideInConvergentLines, HideInParallelLines], ids=["convergent", "parallel"])
def test_another_rule_is_another_release(released, tmp_path: Path, monkeypatch, rule: Callable[..., LineHiding]) -> None:
    """Two different lines through one keypoint meet in it: the second rule is refused, and a repeat of the first one is not."""
    monkeypatch.setenv("VEIL_HOME", str(released[0] / "home"))
    with pytest.raises(ReleaseRefused, match=r"photo\.jpg was already released"):
        released_by(IMAGE, rule(gravity=np.array(DOWN)))
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "home"))
    assert released_by(IMAGE, rule(gravity=np.array(DOWN))) == released_by(IMAGE, rule(gravity=np.array(DOWN)))
    assert privatize(tmp_path, IMAGE, DOWN, "c")[0] == 1


def test_lines_that_another_version_draws_otherwise_are_refused(tmp_path: Path, capsys) -> None:
    """Every choice is the same, but not the key of the draws, as after a renamed option: the draws themselves are compared."""
    assert privatize(tmp_path, IMAGE, DOWN, "first")[0] == 0
    with closing(sqlite3.connect(home() / "ledger.sqlite")) as connection, connection:
        cut = "substr(parameters, 1, instr(parameters, 'draws=') - 1)"
        connection.execute(f"UPDATE releases SET message_digest = 'other', parameters = {cut} || 'draws=0123456789abcdef'")
    capsys.readouterr()
    assert privatize(tmp_path, IMAGE, DOWN, "again") == (1, b"")
    assert "drawn otherwise by this version of veil" in capsys.readouterr().err


def test_what_changes_no_line_repeats_the_message(released, tmp_path: Path, monkeypatch) -> None:
    """Byte for byte: after all the refusals, from features in another order."""
    monkeypatch.setenv("VEIL_HOME", str(released[0] / "home"))
    assert privatize(tmp_path, IMAGE, DOWN, "again") == (0, released[1])
    turned = IMAGE.take(np.arange(COUNT)[::-1].copy())
    assert privatize(tmp_path, turned, DOWN, "turned") == (0, released[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "change", "down"),
    [
        (PINHOLE, "focal", DOWN),
        (PINHOLE, "distortion", DOWN),
        (RADIAL, "focal", None),
        (PINHOLE, "aspect", None),
    ],
)
def test_the_intersection_of_two_calibrations_finds_nothing(tmp_path: Path, first, change: str, down) -> None:
    """Without --allow-second-release there is no second message; with it (the broken twin) the attack finds keypoints."""
    home().mkdir()
    (home() / "secret").write_bytes(b"line releases".ljust(32, b"."))  # so that the twin's lines are the same each time
    (home() / "secret").chmod(0o600)
    image = replace(IMAGE, camera=first)
    changed = CHANGES[change](image)
    assert privatize(tmp_path, image, down, "one")[0] == 0
    rc, second = privatize(tmp_path, changed, down, "two")
    recovered_counts = recovered([next((tmp_path / "one").glob("*.veil")).read_bytes(), second], image) if second else (0, 0)
    assert (rc, recovered_counts) == (1, (0, 0))
    rc, twin = privatize(tmp_path, changed, down, "twin", "--allow-second-release")
    once, anywhere = recovered([next((tmp_path / "one").glob("*.veil")).read_bytes(), twin], image)
    assert rc == 0 and anywhere > 0.4 * COUNT and once > 0.05 * COUNT

"""Files as others write them, and ways to damage them; for the tests of files, wire and command line."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image

from veil.errors import VeilError
from veil.files.photographs.examples import lund_door
from veil.forms import Form, Points
from veil.scene import MappedImage, Scene
from worlds import generator, subspaces, world


def truncated(data: bytes, pieces: int) -> Iterator[bytes]:
    """The first bytes of `data`, `pieces` lengths from none to almost all."""
    for length in np.linspace(0, len(data) - 1, pieces).astype(int):
        yield data[:length]


def flipped(random: np.random.Generator, data: bytes, cases: int, *, most: int = 5) -> Iterator[bytes]:
    """Copies of `data` with 1 to `most` bytes replaced at random."""
    for _ in range(cases):
        changed = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, most + 1)):
            changed[place] = random.integers(256)
        yield bytes(changed)


def outcome(read: Callable[[], Any]) -> VeilError | None:
    """The VeilError that `read` raises, or None. Any other exception passes on, and fails the test."""
    try:
        read()
    except VeilError as error:
        return error
    return None


def colmap_database(
    path: Path, tables: dict[str, tuple[np.ndarray, np.ndarray]], *, model: str = "SIMPLE_RADIAL", kind: str = "SIFT"
) -> Path:
    """A database that pycolmap alone wrote: image name -> (keypoints, descriptors in bytes or float32)."""
    import pycolmap

    database = pycolmap.Database.open(path)
    camera = pycolmap.Camera.create_from_model_name(1, model, 500.0, 640, 480)
    camera.has_prior_focal_length = True
    camera_id = database.write_camera(camera)
    for name, (keypoints, descriptors) in tables.items():
        image_id = database.write_image(pycolmap.Image(name=name, camera_id=camera_id))
        database.write_keypoints(image_id, keypoints)
        data = np.ascontiguousarray(descriptors).view(np.uint8)
        stored = pycolmap.FeatureDescriptors(type=getattr(pycolmap.FeatureExtractorType, kind), data=data)
        database.write_descriptors(image_id, stored)
    database.close()
    return path


def other_database(path: Path) -> Path:
    """A SQLite file of some other program."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.commit()
    connection.close()
    return path


def apple_note(*acceleration_g: float, tag: int = 0x0008, kind: int = 10, values: int = 3) -> bytes:
    """A maker note as an iPhone writes it: one directory of three entries, big-endian, the vector as signed rationals."""
    entries = [(0x0001, 9, 1, 14), (tag, kind, values, 14 + 2 + 3 * 12 + 4), (0x000A, 9, 1, 4)]
    directory = struct.pack(">H", len(entries)) + b"".join(struct.pack(">HHII", *entry) for entry in entries) + bytes(4)
    rationals = b"".join(struct.pack(">ii", round(value * 1_000_000), 1_000_000) for value in acceleration_g)
    return b"Apple iOS\x00\x00\x01MM" + directory + rationals


def phone_photograph(
    path: Path, note: bytes | None, orientation: int = 6, *, size: tuple[int, int] = (64, 48), lens: str = "", xmp: bytes = b""
) -> Path:
    """A gray JPEG with the EXIF block of a phone; `size` is (width, height) as stored, before the orientation turns it."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    detail = exif.get_ifd(ExifTags.IFD.Exif)
    if note is not None:
        detail[ExifTags.Base.MakerNote] = note
    if lens:
        detail[ExifTags.Base.LensModel] = lens
    Image.new("RGB", size, "gray").save(path, exif=exif, xmp=xmp)
    return path


def gimbal_packet(pitch: object, roll: object, *, maker: str = "dji", written_as: str = "attributes") -> bytes:
    """An XMP packet of a drone with its camera's angles, as attributes of one element or as elements of their own.

    Skydio's stand in a structure, beside one of the same names in another frame.
    """
    form = {"dji": "drone-dji:Gimbal{}Degree", "parrot": "drone-parrot:Camera{}Degree", "autel": "drone:Gimbal{}Degree"}
    names = {"skydio": "drone-skydio:{}", "pix4d": "Camera:{}"} | form
    angles = {names[maker].format(name): value for name, value in (("Roll", roll), ("Pitch", pitch))}
    within = "".join(f' {name}="{value}"' for name, value in angles.items()) + ">"
    if written_as == "elements":
        within = ">" + "".join(f"<{name}>{value}</{name}>" for name, value in angles.items())
    about = ' rdf:about="Autel Robotics Meta Data"' if maker == "pix4d" else ""
    packet = f"<rdf:Description{about}{within}</rdf:Description>"
    if maker == "skydio":
        told, kind = "drone-skydio:CameraOrientation", ' rdf:parseType="Resource"' if written_as == "elements" else ""
        other = f'<{told}FLU drone-skydio:Roll="77" drone-skydio:Pitch="-77"/>'
        own = f"<{told}NED{kind}{within}</{told}NED>" if kind else f"<{told}NED{within[:-1]}/>"
        packet = f"<rdf:Description>{other}{own}{other}</rdf:Description>"
    return f"<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF>{packet}</rdf:RDF></x:xmpmeta>".encode()


def door_photographs(folder: Path, *numbers: int) -> Path:
    """Copies of some of the bundled photographs in `folder`."""
    folder.mkdir(parents=True)
    with lund_door() as example:
        for number in numbers:
            shutil.copy(example.folder / f"DSC_{number:04d}.jpg", folder)
    return folder


def door_scene(folder: Path) -> Path:
    """Five photographs of the bundled portal with their reference cameras, as a scene."""
    place = folder / "door"
    door_photographs(place / "images", 3, 4, 5, 6, 7)
    with lund_door() as example:
        for name in ("cameras.txt", "images.txt"):
            shutil.copy(example.folder / name, place)
    return place


def scene(m: int, *, names: str = "photo {}.jpg") -> Scene:
    """Three views of forty points, raw (m = 0) or as subspaces of dimension m; every point is seen at least twice."""
    place = world("edges", images=3, points=40)
    seen = np.concatenate(list(place.visible.values()))
    points, counts = np.unique(seen, return_counts=True)
    row = {int(point): index for index, point in enumerate(points[counts > 1])}
    images = {}
    for number, (key, pose) in enumerate(place.poses.items()):
        kept = np.array([int(point) in row for point in place.visible[key]])
        form: Form = place.form(key).take(kept)
        if m:
            assert isinstance(form, Points)
            form = subspaces(generator(f"edges {key}"), form.vectors, m, form.space)
        name = names.format(number)
        images[name] = MappedImage(
            name=name,
            camera=place.camera,
            cam_from_world=pose,
            keypoints=place.keypoints[key][kept],
            point_rows=np.array([row[int(point)] for point in place.visible[key][kept]], dtype=np.int64),
            form=form,
        )
    return Scene(images=images, points=place.points[list(row)], mean_reprojection_error_px=0.3)
